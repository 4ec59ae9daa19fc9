"""This machine's clock, beside MongoDB's and LINE's.

Reply tokens, timers and the ages that an operator reads go by it; leases do not.
"""

from __future__ import annotations

from datetime import UTC, datetime

from linedesk.console.health import CLOCK_BAD_SECONDS, CLOCK_WARN_SECONDS
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import Finding, bad, ok, skip, warn

DO = "`systemctl enable --now chronyd` (Debian: chrony); `chronyc tracking` shows how it does"


def beside_mongodb(box: DoctorContext) -> Finding:
    """By the time in the server's hello, half way between question and answer."""
    asked = box.now
    told = box.server_time
    answered = box.now
    return judge((told - (asked + (answered - asked) / 2)).total_seconds(), "MongoDB's")


def beside_line(box: DoctorContext) -> Finding:
    """By the date of an answer of LINE's."""
    reply = box.bot_info
    if reply.date is None:
        return skip("LINE's answer had no date")
    return judge(beyond(reply.date, reply.asked_at, reply.answered_at), "LINE's")


def beyond(told: datetime, asked_at: float, answered_at: float) -> float:
    """By how many seconds a date was surely after this clock (before it: below 0).

    It names a second that began at most a second before it was written, between question and
    answer; within that nothing can be told.
    """
    at = told.replace(tzinfo=told.tzinfo or UTC).timestamp()
    if at > answered_at:
        return at - answered_at
    return min(0.0, at + 1.0 - asked_at)


def judge(ahead_seconds: float, whose: str) -> Finding:
    """`ahead_seconds` is how far the other clock is ahead of ours."""
    off = abs(ahead_seconds)
    saw = f"{off:.1f} s {'behind' if ahead_seconds > 0 else 'ahead of'} {whose}"
    if off > CLOCK_BAD_SECONDS:
        return bad(saw, DO)
    return (
        warn(saw, DO)
        if off > CLOCK_WARN_SECONDS
        else ok(f"within {CLOCK_WARN_SECONDS:.0f} s of {whose}")
    )
