"""The account at LINE: token, quota, and where webhooks go."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pymongo.errors import PyMongoError

from linedesk.console import health, processes
from linedesk.console.facts import leader
from linedesk.console.overview import closed_since
from linedesk.doctor.context import NOT_HERE, TOKEN, DoctorContext
from linedesk.doctor.finding import Finding, bad, of, ok, skip, warn
from linedesk.doctor.line_api import Reply

TEST = "/v2/bot/channel/webhook/test"
# LINE waits 2 s for the front desk, and has its own way there and back.
TEST_SECONDS = 6.0
CONSOLE = "LINE's console (developers.line.biz), Messaging API"
REASONS = {
    "COULD_NOT_CONNECT": "is the port open to the internet, and the certificate a public one?",
    "REQUEST_TIMEOUT": "the front desk did not answer within 2 s: see its journal",
    "ERROR_STATUS_CODE": "401 says that LINE_CHANNEL_SECRET is another channel's, 404 the path",
}


def token(box: DoctorContext) -> Finding:
    """Whether LINE knows it, and whose it is."""
    if not box.settings.access_token and box.is_known_to_processes(TOKEN):
        saw = f"{TOKEN} is {NOT_HERE.format(processes.DISPATCHER, 'has')}"
        return skip(saw, "set it here, too, and doctor also checks LINE")
    if not box.settings.access_token:
        return bad(f"{TOKEN} is not set", f"issue one in {CONSOLE}, and set it")
    reply = box.bot_info
    if reply.status == 401:
        return of(health.token_refused())
    if not reply.good:
        return _refusal(reply)
    return ok(f"{reply.body.get('displayName', '?')} ({reply.body.get('basicId', '?')})")


def quota(box: DoctorContext) -> Finding:
    """What pushes there may still be this month; replies are free."""
    limit, used = (
        box.line.get("/v2/bot/message/quota"),
        box.line.get("/v2/bot/message/quota/consumption"),
    )
    if not (limit.good and used.good):
        return _refusal(used if limit.good else limit)
    return judge_quota(limit.body, used.body, closed_since=partial(_closed_since, box))


def _closed_since(box: DoctorContext) -> datetime | None:
    """Since when the dispatcher that leads makes no pushes; None also where none can be asked."""
    try:
        row = leader(box.database)
    except PyMongoError:
        return None
    if row is None or not processes.is_fresh(row, now=box.now):
        return None
    return closed_since(processes.combined([row]))


def endpoint(box: DoctorContext) -> Finding:
    """Where LINE sends webhooks, beside where the front desk takes them."""
    reply = box.webhook
    if reply.status == 404:
        return bad("LINE has no webhook URL", f"set it in {CONSOLE}")
    if not reply.good:
        return _refusal(reply)
    return judge_endpoint(reply.body, box.settings.frontdesk_path)


def test(box: DoctorContext) -> Finding:
    """LINE's own call of the webhook, without events."""
    reply = box.line.post(TEST, {}, seconds=TEST_SECONDS)
    if reply.status == 429:
        return skip("LINE tests 60 times an hour only", "try again in a few minutes")
    if reply.status == 404:
        return skip("LINE has no webhook URL")
    if not reply.good:
        return _refusal(reply)
    return judge_test(reply.body)


def redelivery(box: DoctorContext) -> Finding:
    """What no API tells, and what brings back a webhook that nobody answered."""
    return skip(
        "LINE tells it in its console only, where it is off at first",
        f"switch on Webhook redelivery in {CONSOLE}",
    )


def judge_quota(
    limit: Mapping[str, Any],
    used: Mapping[str, Any],
    *,
    closed_since: Callable[[], datetime | None] = lambda: None,
) -> Finding:
    """The bodies of quota and consumption; the dispatcher is asked only where all is used."""
    count, most = int(used.get("totalUsage", 0)), limit.get("value")
    if limit.get("type") != "limited" or most is None:
        return ok(f"{count} messages this month, without a limit")
    since = closed_since() if count >= int(most) else None
    problem = health.quota(count, int(most), closed_since=since)
    return of(problem, well=f"{count} of {most} messages this month")


def judge_endpoint(body: Mapping[str, Any], path: str) -> Finding:
    """`path` is FRONTDESK_PATH."""
    url = str(body.get("endpoint", ""))
    parts = urlsplit(url)
    if not body.get("active"):
        return bad(f"{url}, not in use", f"switch on Use webhook in {CONSOLE}")
    if parts.path != path:
        # No more than odd: a proxy may rewrite it, and the test call tells.
        return warn(
            f"{url}, but FRONTDESK_PATH is {path}", f"set the path in {CONSOLE}, or FRONTDESK_PATH"
        )
    if parts.scheme != "https":
        return warn(f"{url}, not https", "LINE itself takes https only: this is a simulator's")
    return ok(url)


def judge_test(body: Mapping[str, Any]) -> Finding:
    """LINE's report of its test call."""
    reason, detail = str(body.get("reason", "UNKNOWN")), body.get("detail", "")
    if body.get("success"):
        return ok("LINE's call was answered 200 (it makes 60 an hour at most)")
    return bad(
        f"{reason} {body.get('statusCode', '')}, {detail}",
        REASONS.get(reason, "see the front desk's journal, and LINE's error statistics"),
    )


def _refusal(reply: Reply) -> Finding:
    return bad(f"LINE answers {reply.status}: {reply.message}", "see LINE's status page, try again")
