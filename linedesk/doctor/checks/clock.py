"""This machine's clock against MongoDB's and LINE's.

Reply tokens, timers and the ages in status use this machine's clock; leases do not.
"""

from __future__ import annotations

from datetime import UTC, datetime

from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, ok, skip, warn
from linedesk.operate.health import CLOCK_BAD_SECONDS, CLOCK_WARN_SECONDS
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark

DO = mark(
    "run `systemctl enable --now chronyd` (Debian: chrony); `chronyc tracking` shows the offset"
)


def beside_mongodb(box: DoctorContext) -> Finding:
    """By the time in the server's hello, compared with the middle of request and answer."""
    asked = box.now
    told = box.server_time
    answered = box.now
    return judge((told - (asked + (answered - asked) / 2)).total_seconds(), "MongoDB")


def beside_line(box: DoctorContext) -> Finding:
    """By the date of an answer of LINE."""
    reply = box.bot_info
    if reply.date is None:
        return skip(_("LINE's answer had no date"))
    return judge(beyond(reply.date, reply.asked_at, reply.answered_at), "LINE")


def beyond(told: datetime, asked_at: float, answered_at: float) -> float:
    """By how many seconds a date was certainly after this clock (before it: below 0).

    The date has whole seconds and was written between request and answer. A difference within this
    uncertainty counts as 0.
    """
    at = told.replace(tzinfo=told.tzinfo or UTC).timestamp()
    if at > answered_at:
        return at - answered_at
    return min(0.0, at + 1.0 - asked_at)


def judge(ahead_seconds: float, server: str) -> Finding:
    """`ahead_seconds` is how far the other clock is ahead of this one."""
    off = abs(ahead_seconds)
    saw = (
        _("{seconds:.1f} s behind {server}'s clock")
        if ahead_seconds > 0
        else _("{seconds:.1f} s ahead of {server}'s clock")
    ).format(seconds=off, server=server)
    if off > CLOCK_BAD_SECONDS:
        return bad(saw, _(DO))
    if off > CLOCK_WARN_SECONDS:
        return warn(saw, _(DO))
    well = _("within {seconds:.0f} s of {server}'s clock")
    return ok(well.format(seconds=CLOCK_WARN_SECONDS, server=server))
