"""The account at LINE: token, quota, and where webhooks go."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from linedesk.doctor.context import TOKEN, DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip, warn
from linedesk.doctor.line_api import Reply
from linedesk.operate import health, processes
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark

TEST = "/v2/bot/channel/webhook/test"
# LINE waits 2 s for the front desk; the network adds its delay.
TEST_SECONDS = 6.0
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
    if not box.settings.access_token and box.is_known_to_processes(TOKEN):
        saw = _("{names} not set in this shell, but in the running process: {processes}")
        saw = saw.format(names=TOKEN, processes=processes.DISPATCHER)
        return skip(saw, _("set it here, too: then `linedesk doctor` also checks LINE"))
    if not box.settings.access_token:
        do = _("issue a token in the {console}, and set it").format(console=_(CONSOLE))
        return bad(_("{name} is not set").format(name=TOKEN), do)
    reply = box.bot_info
    if reply.status == 401:
        return of(health.token_refused())
    if not reply.good:
        return _refusal(reply)
    return ok(f"{reply.body.get('displayName', '?')} ({reply.body.get('basicId', '?')})")


def endpoint(box: DoctorContext) -> Finding:
    """The webhook URL at LINE, against the path of the front desk."""
    reply = box.webhook
    if reply.status == 404:
        do = _("set it in the {console}").format(console=_(CONSOLE))
        return bad(_("LINE has no webhook URL"), do)
    if not reply.good:
        return _refusal(reply)
    return judge_endpoint(reply.body, box.settings.frontdesk_path)


def test(box: DoctorContext) -> Finding:
    """LINE's test call of the webhook, without events."""
    reply = box.line.post(TEST, {}, seconds=TEST_SECONDS)
    if reply.status == 429:
        return skip(_("LINE makes at most 60 test calls an hour"), _("try again in a few minutes"))
    if reply.status == 404:
        return skip(_("LINE has no webhook URL"))
    if not reply.good:
        return _refusal(reply)
    return judge_test(reply.body)


def redelivery(box: DoctorContext) -> Finding:
    """Webhook redelivery, which repeats an unanswered webhook. LINE's API does not report it."""
    return skip(
        _("only LINE's console shows it; it is off by default"),
        _("switch on Webhook redelivery in the {console}").format(console=_(CONSOLE)),
    )


def judge_endpoint(body: Mapping[str, Any], path: str) -> Finding:
    """`path` is FRONTDESK_PATH."""
    url = str(body.get("endpoint", ""))
    parts = urlsplit(url)
    if not body.get("active"):
        do = _("switch on Use webhook in the {console}").format(console=_(CONSOLE))
        return bad(_("{url}, not in use").format(url=url), do)
    if parts.path != path:
        # Only a warning: a proxy may rewrite the path, and the test call shows whether it does.
        saw = _("{url}, but FRONTDESK_PATH is {path}").format(url=url, path=path)
        do = _("set the path in the {console}, or FRONTDESK_PATH").format(console=_(CONSOLE))
        return warn(saw, do)
    if parts.scheme != "https":
        do = _("LINE accepts only https: this is the URL of a simulator")
        return warn(_("{url}, not https").format(url=url), do)
    return ok(url)


def judge_test(body: Mapping[str, Any]) -> Finding:
    """LINE's report of its test call."""
    reason, detail = str(body.get("reason", "UNKNOWN")), body.get("detail", "")
    if body.get("success"):
        return ok(_("LINE's call was answered with 200 (LINE makes at most 60 an hour)"))
    return bad(
        f"{reason} {body.get('statusCode', '')}, {detail}",
        _(REASONS.get(reason, OTHERWISE)),
    )


def _refusal(reply: Reply) -> Finding:
    saw = _("LINE answers {status}: {message}")
    return bad(
        saw.format(status=reply.status, message=reply.message),
        _("check LINE's status page, then try again"),
    )
