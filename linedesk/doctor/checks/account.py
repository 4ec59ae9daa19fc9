"""The account at LINE: the token, the clock, where webhooks go, and the certificate there."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip, warn
from linedesk.doctor.line_api import Reply
from linedesk.operate import health
from linedesk.operate.health import CLOCK_BAD_SECONDS, CLOCK_WARN_SECONDS
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark

TEST = "/v2/bot/channel/webhook/test"
# LINE waits 2 s for the front desk; the network adds its delay.
TEST_SECONDS = 6.0
CONNECT_SECONDS = 3.0
HTTPS = 443
CONSOLE = mark("LINE Developers console (developers.line.biz), Messaging API")
REASONS = {
    "COULD_NOT_CONNECT": mark(
        "check that the port is open to the internet and the certificate is a public one"
    ),
    "REQUEST_TIMEOUT": mark(
        "the front desk did not answer within 2 s: its journal shows the reason"
    ),
    "ERROR_STATUS_CODE": mark(
        "401: LINE_CHANNEL_SECRET belongs to another channel; 404: the path is wrong"
    ),
}
OTHERWISE = mark("see the front desk's journal and LINE's error statistics")


def token(box: DoctorContext) -> Finding:
    """Whether LINE accepts the token, and the bot that it belongs to."""
    reply = box.bot_info
    if reply.status == 401:
        return of(health.token_refused())
    if not reply.good:
        return _refusal(reply)
    return ok(f"{reply.body.get('displayName', '?')} ({reply.body.get('basicId', '?')})")


def clock(box: DoctorContext) -> Finding:
    """This machine's clock, by which reply tokens, timers and the ages in status are judged.

    LINE's date has whole seconds and was written between request and answer. A difference within
    this uncertainty counts as 0.
    """
    reply = box.bot_info
    if reply.date is None:
        return skip(_("LINE's answer had no date"))
    told = reply.date.timestamp()
    off_seconds = max(0.0, told - reply.answered_at, reply.asked_at - told - 1.0)
    if off_seconds <= CLOCK_WARN_SECONDS:
        return ok(_("within {seconds:.0f} s of LINE's clock").format(seconds=CLOCK_WARN_SECONDS))
    saw = _("{seconds:.1f} s off LINE's clock").format(seconds=off_seconds)
    do = _(
        "run `systemctl enable --now chronyd` (Debian: chrony); `chronyc tracking` shows the offset"
    )
    return bad(saw, do) if off_seconds > CLOCK_BAD_SECONDS else warn(saw, do)


def endpoint(box: DoctorContext) -> Finding:
    """The webhook URL at LINE, against the path of the front desk."""
    reply = box.webhook
    if reply.status == 404:
        do = _("set it in the {console}").format(console=_(CONSOLE))
        return bad(_("LINE has no webhook URL"), do)
    if not reply.good:
        return _refusal(reply)
    url, path = str(reply.body.get("endpoint", "")), box.settings.frontdesk_path
    if not reply.body.get("active"):
        do = _("switch on Use webhook in the {console}").format(console=_(CONSOLE))
        return bad(_("{url}, not in use").format(url=url), do)
    if urlsplit(url).path != path:
        # Only a warning: a proxy may rewrite the path, and the test call shows whether it does.
        saw = _("{url}, but FRONTDESK_PATH is {path}").format(url=url, path=path)
        do = _("set the path in the {console}, or FRONTDESK_PATH").format(console=_(CONSOLE))
        return warn(saw, do)
    return ok(url)


def certificate(box: DoctorContext) -> Finding:
    """The certificate at the webhook URL, verified as LINE does: by public authorities."""
    url = urlsplit(str(box.webhook.body.get("endpoint", "")))
    if url.scheme != "https" or not url.hostname:
        return skip(_("LINE has no https URL"))
    try:
        return judge_certificate(_shown_at(url.hostname, url.port or HTTPS), box.now)
    except ssl.SSLCertVerificationError as error:
        saw = _("LINE refuses the certificate of {host}: {error}")
        do = _("LINE sends no webhooks. The file must also contain the chain. {renew}")
        return bad(
            saw.format(host=url.hostname, error=error.verify_message),
            do.format(renew=_(health.RENEW)),
        )
    except OSError as error:
        # Behind many routers the public address cannot be reached; the test call uses it.
        saw = _("cannot be reached from here ({error}); the webhook test checks it")
        return skip(saw.format(error=type(error).__name__))


def test(box: DoctorContext) -> Finding:
    """LINE's test call of the webhook, without events."""
    reply = box.line.call("POST", TEST, seconds=TEST_SECONDS)
    if reply.status == 429:
        return skip(_("LINE makes at most 60 test calls an hour"), _("try again in a few minutes"))
    if not reply.good:
        return _refusal(reply)
    if reply.body.get("success"):
        return ok(_("LINE's call was answered with 200 (LINE makes at most 60 an hour)"))
    reason, detail = str(reply.body.get("reason", "UNKNOWN")), reply.body.get("detail", "")
    return bad(
        f"{reason} {reply.body.get('statusCode', '')}, {detail}",
        _(REASONS.get(reason, OTHERWISE)),
    )


def judge_certificate(shown: Mapping[str, Any], now: datetime) -> Finding:
    """By the time until a certificate expires, which is as `ssl` returns it."""
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(str(shown["notAfter"])), UTC)
    alternatives = shown.get("subjectAltName", ())
    names = [str(value) for kind, value in alternatives if kind in ("DNS", "IP Address")]
    saw = _("until {date}, {names}").format(
        date=f"{until:%Y-%m-%d}", names=", ".join(names) or _("without names")
    )
    problem = health.certificate(until - now)
    return ok(saw) if problem is None else of(problem, saw=f"{problem.saw}: {saw}")


def _shown_at(host: str, port: int) -> Mapping[str, Any]:
    """The certificate by a handshake with the system's trust. Raises ssl.SSLError, OSError."""
    with (
        socket.create_connection((host, port), timeout=CONNECT_SECONDS) as plain,
        ssl.create_default_context().wrap_socket(plain, server_hostname=host) as secure,
    ):
        shown = secure.getpeercert()
    assert shown is not None, "it was verified"
    return shown


def _refusal(reply: Reply) -> Finding:
    saw = _("LINE answers {status}: {message}")
    return bad(
        saw.format(status=reply.status, message=reply.message),
        _("check LINE's status page, then try again"),
    )
