"""What a person should look at, and what to do: judged by an overview. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from linedesk.console import processes
from linedesk.console.format import for_long, local, scope_words

if TYPE_CHECKING:
    from linedesk.console.overview import Overview

Level = Literal["bad", "warn"]
LEVELS: tuple[Level, ...] = ("bad", "warn")
DAY_SECONDS, HOUR_SECONDS = 86_400.0, 3_600.0
# What waits for a minute moves to `held`; what waits for ten nobody is at work on.
LATE_SECONDS, STALLED_SECONDS = 60.0, 600.0
LAG_SECONDS = 10.0
FULL_SHARE = 0.8
QUOTA_SHARE = 0.9
LEFT_SECONDS, SHORT_SECONDS = 24 * HOUR_SECONDS, 2 * HOUR_SECONDS
CERTIFICATE_SECONDS, EXPIRING_SECONDS = 21 * DAY_SECONDS, 7 * DAY_SECONDS
RESTART = "`systemctl status {unit}` and its journal tell why"


@dataclass(frozen=True)
class HealthProblem:
    """One thing that is not as it should be."""

    level: Level
    """bad: something stands still or will soon; warn: look at it when there is time."""
    about: str
    saw: str
    do: str


def what_is_wrong(seen: Overview) -> list[HealthProblem]:
    """Everything at once, the worst first."""
    found = [
        *_processes(seen),
        *_recvq(seen),
        *_queue(seen),
        *_reach(seen),
        *_line(seen),
        *_keys(seen),
        *_left_over(seen),
        *_door(seen),
    ]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def _processes(seen: Overview) -> Iterator[HealthProblem]:
    here = {one.role for one in seen.processes if one.is_fresh}
    asked = [processes.FRONTDESK, processes.DISPATCHER]
    if seen.scheduler_asked:
        asked.append(processes.SCHEDULER)
    for role in asked:
        if role not in here:
            yield _absent(seen, role)
    # Of a dispatcher without the field, an older version, a scheduler is looked for by its row.
    told = here if seen.scheduler_asked else here | {processes.SCHEDULER}
    for one in seen.processes:
        if not one.is_fresh and one.state != processes.ENDED and one.role in told:
            saw = f"process {one.pid} on {one.host}: no word for {for_long(one.silent_seconds)}"
            do = f"it hangs, is gone or without MongoDB: {RESTART.format(unit=_unit(one.role))}"
            yield HealthProblem("bad", one.role, saw, do)
    if processes.DISPATCHER in here and seen.obeyed is None:
        saw = "no dispatcher holds the lease"
        yield HealthProblem(
            "bad", processes.DISPATCHER, saw, "a standby takes over within 5 s; else its log"
        )


def _absent(seen: Overview, role: str) -> HealthProblem:
    silent = [one for one in seen.processes if one.role == role]
    saw = "none runs"
    if silent:
        one = silent[0]
        how = "ended" if one.state == processes.ENDED else "silent since"
        saw = f"none runs; {one.pid} on {one.host} {how} {local(one.at)}"
    unit = _unit(role)
    return HealthProblem(
        "bad", role, saw, f"`systemctl restart {unit}`; {RESTART.format(unit=unit)}"
    )


def _unit(role: str) -> str:
    return f"linedesk-{role}"


def _recvq(seen: Overview) -> Iterator[HealthProblem]:
    share = seen.queue.unread_share
    if seen.queue.is_closed:
        saw = "closed: it is full of unread documents, or not as it must be"
        yield HealthProblem(
            "bad", "recvq", saw, "the front desk spools; does the dispatcher get on?"
        )
    elif share is not None and share >= FULL_SHARE:
        yield HealthProblem("warn", "recvq", f"{share:.0%} of it is unread", "it closes at 95 %")
    spool = seen.spool
    if spool is not None and not spool.is_available:
        saw = "no spool: without MongoDB webhooks would be refused"
        yield HealthProblem("warn", "spool", saw, "the front desk's log says why; see SPOOL_PATH")
    if spool is not None and spool.documents:
        since = f", the oldest for {for_long(spool.oldest_seconds)}" if spool.oldest_seconds else ""
        full = bool(spool.max_bytes) and spool.bytes > FULL_SHARE * (spool.max_bytes or 0)
        saw = f"{spool.documents:,.0f} events wait in it{since}"
        do = "it empties once MongoDB confirms and recvq has room: `linedesk doctor`"
        yield HealthProblem("bad" if full else "warn", "spool", saw, do)


def _queue(seen: Overview) -> Iterator[HealthProblem]:
    lag = seen.queue.lag_seconds or 0.0
    if lag > LAG_SECONDS:
        saw = f"{seen.queue.lag_documents or 0:,.0f} not read yet, the oldest for {for_long(lag)}"
        do = "its log tells what holds the feed back"
        yield HealthProblem("bad" if lag > LATE_SECONDS else "warn", "lag", saw, do)
    # What is paused waits because somebody wants it to: in `held`, and all else goes on.
    queue = seen.queue
    oldest = (queue.behind_seconds if seen.pauses else queue.oldest_seconds) or 0.0
    if oldest > LATE_SECONDS:
        level: Level = "bad" if oldest > STALLED_SECONDS else "warn"
        saw = f"the oldest event waits for {for_long(oldest)}"
        yield HealthProblem(
            level, "queue", saw, "look at what waits, and why: handlers, LINE, MongoDB"
        )
    threads = seen.threads
    if threads.all and threads.busy == threads.all and seen.queue.in_hand:
        saw = f"all {threads.all:,.0f} are busy"
        yield HealthProblem(
            "warn", "threads", saw, "handlers are slow, or DISPATCHER_THREADS is too small"
        )


def _reach(seen: Overview) -> Iterator[HealthProblem]:
    for about, seconds in (
        ("recvq", seen.queue.recvq_left_seconds),
        ("oplog", seen.queue.oplog_left_seconds),
    ):
        if seconds is not None and seconds < LEFT_SECONDS:
            saw = f"{for_long(seconds)} until it overtakes the dispatcher, at the present rate"
            level: Level = "bad" if seconds < SHORT_SECONDS else "warn"
            yield HealthProblem(level, about, saw, "`linedesk doctor` tells how to enlarge it")


def _line(seen: Overview) -> Iterator[HealthProblem]:
    if seen.token_refused:
        do = "put a valid LINE_CHANNEL_ACCESS_TOKEN in its place and restart the dispatcher"
        yield HealthProblem("bad", "LINE", "it refuses the channel access token", do)
    for gate in seen.gates:
        if gate.breaker_open and not seen.token_refused:
            saw = f"host {gate.host}: it fails, so no calls but probes"
            do = "nothing is lost, sends wait; `linedesk calls --failed` tells more"
            yield HealthProblem("bad", "LINE", saw, do)
    share = seen.quota.share if seen.quota is not None else None
    if seen.quota is not None and share is not None and share >= QUOTA_SHARE:
        saw = f"{seen.quota.used:,.0f} of {seen.quota.messages:,.0f} messages are used this month"
        do = "pushes beyond it become dead letters; replies are free"
        yield HealthProblem("bad" if share >= 1 else "warn", "quota", saw, do)


def _keys(seen: Overview) -> Iterator[HealthProblem]:
    for row in seen.pauses:
        at = row.get("at")
        since = f" since {local(at)}" if isinstance(at, datetime) else ""
        because = f": {row['why']}" if row.get("why") else ""
        what = scope_words(row.get("channel"), row.get("key"))
        saw = f"{what}{since} by {row.get('by') or 'somebody'}{because}"
        yield HealthProblem("warn", "paused", saw, f"`linedesk resume {row['scope']}` goes on")
    yield from _waiting(seen)


def _waiting(seen: Overview) -> Iterator[HealthProblem]:
    """One word for all that wait too long, of the one that waits longest."""
    late = [
        one
        for one in seen.waiting
        if one.get("why") != "paused" and _waited(one, seen) > STALLED_SECONDS
    ]
    if not late:
        return
    first = max(late, key=lambda one: _waited(one, seen))
    scope = f"{first.get('channel')}/{first.get('key')}"
    others = f" (and {len(late) - 1} more)" if len(late) > 1 else ""
    why = first.get("why") or "no reason told"
    saw = f"{scope} waits for {for_long(_waited(first, seen))}: {why}{others}"
    yield HealthProblem(
        "warn", "waiting", saw, f"`linedesk release {scope}` gives up what is stuck"
    )


def _waited(one: Mapping[str, Any], seen: Overview) -> float:
    since = one.get("since")
    return (seen.at - since).total_seconds() if isinstance(since, datetime) else 0.0


def _left_over(seen: Overview) -> Iterator[HealthProblem]:
    if seen.letters_lately:
        saw = f"{seen.letters_lately} within a day"
        do = "`linedesk dead list --since 1d` tells what and why; replay or drop them"
        yield HealthProblem("warn", "dead letters", saw, do)
    if seen.threads.abandoned:
        saw = f"{seen.threads.abandoned:,.0f} handlers never returned since the start"
        do = "the log names them; at as many as it has threads it ends, and starts anew"
        yield HealthProblem("warn", "threads", saw, do)
    late = -(seen.figures[processes.SCHEDULER].number("nextTimerSeconds") or 0.0)
    if late > LATE_SECONDS:
        saw = f"the next one is late by {for_long(late)}"
        yield HealthProblem(
            "bad", "timers", saw, "the scheduler's log, or that of the dispatcher around it"
        )


def _door(seen: Overview) -> Iterator[HealthProblem]:
    desk = seen.figures[processes.FRONTDESK]
    if desk.rate("refusedRequests", "signature"):
        do = "is LINE_CHANNEL_SECRET that of this channel?"
        yield HealthProblem(
            "warn", processes.FRONTDESK, "it refuses requests with a wrong signature", do
        )
    ends = desk.number("certificateEndsSeconds")
    left = float("inf") if ends is None else ends - seen.at.timestamp()
    if left < CERTIFICATE_SECONDS:
        level: Level = "bad" if left < EXPIRING_SECONDS else "warn"
        saw = f"it ends in {for_long(left)}" if left > 0 else "it has ended"
        yield HealthProblem(
            level, "certificate", saw, "`certbot renew --dry-run` tells why it is not renewed"
        )
