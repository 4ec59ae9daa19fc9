"""Judges health: an overview becomes a list of problems, each with what to do about it. Pure.

All thresholds for operators stand here. `linedesk status`, the page and `linedesk doctor` use them,
and a test compares those of the alerts in deploy/prometheus. What a process reports of itself, to
systemd and in /readyz, is judged by the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from jobworker.line.rate_limits import RATE
from linedesk.console import processes
from linedesk.console.format import as_json, for_long, local, scope_words
from linedesk.console.overview import LATELY, GateView, Overview
from linedesk.console.processes import WorkerView
from linedesk.runtime.status_row import HAND, NEW, SILENT, STOPPING, SYSTEMD, UP
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.queue.gauge import CLOSE_SHARE, WARN_SHARE

Level = Literal["bad", "warn"]
LEVELS: tuple[Level, ...] = ("bad", "warn")
HOUR_SECONDS, DAY_SECONDS = 3_600.0, 86_400.0
GIGABYTE = 1024 * MEGABYTE

# The thresholds. A problem begins at WARN and is bad at BAD.

# Age of the newest document that the feed has not read: it takes milliseconds where all is well.
LAG_WARN_SECONDS, LAG_BAD_SECONDS = 10.0, 60.0
# Age of the oldest event that is not handled. What waits for a minute moves to `held`, and a reply
# token is worth no more then; what waits for ten minutes no thread is at work on.
WAIT_WARN_SECONDS, WAIT_BAD_SECONDS = 60.0, 600.0
# Since progress was saved: at least as often as a heartbeat comes, which is after 30 s of quiet.
# The dispatcher itself calls 90 s a stall.
QUIET_WARN_SECONDS = 120.0
# How late the next timer is: the scheduler retries within seconds, and fails over within ten.
TIMER_BAD_SECONDS = 60.0
# Unread share of recvq, 0 to 1: those at which the guard warns and closes it.
UNREAD_WARN_SHARE, UNREAD_BAD_SHARE = WARN_SHARE, CLOSE_SHARE
# For how long recvq or the oplog lasts. A dispatcher that is down from one evening to the next
# finds its place again; one that cannot even be down for an upgrade that fails has hours at most.
WINDOW_WARN_SECONDS, WINDOW_BAD_SECONDS = 24 * HOUR_SECONDS, 2 * HOUR_SECONDS
# Events in the spool: any of them says that MongoDB takes none.
SPOOL_WARN_DOCUMENTS = 0
# Used share of SPOOL_MAX_MB, 0 to 1: beyond all of it webhooks are refused.
SPOOL_BAD_SHARE = 0.8
# Webhooks refused a second: with neither store for them, any; that took too long to send, one in
# ten seconds, since strangers begin requests that they never end.
REFUSED_BAD_PER_SECOND, SLOW_BAD_PER_SECOND = 0.0, 0.1
REFUSED_REASONS = ("store", "overload")
# Used share of the month's messages, 0 to 1: pushes beyond it become dead letters.
QUOTA_WARN_SHARE, QUOTA_BAD_SHARE = 0.9, 1.0
# Used share of the gate's turns, 0 to 1, while sends wait for one.
GATE_WARN_SHARE = 0.9
# Dead letters of the last day that were not replayed: any is an answer that did not arrive.
LETTERS_WARN_COUNT, LETTERS_WITHIN = 0, LATELY
# What is left of a certificate. Let's Encrypt's are renewed 30 days before their end: three weeks
# say that renewing has failed for a while.
CERTIFICATE_WARN_SECONDS, CERTIFICATE_BAD_SECONDS = 21 * DAY_SECONDS, 7 * DAY_SECONDS
# This clock beside another. A timer may fire a second late unnoticed. Half of a reply token's
# minute is the most that may be misjudged without every reply becoming a push.
CLOCK_WARN_SECONDS, CLOCK_BAD_SECONDS = 1.0, 30.0
# How far a majority of the replica set is behind its primary: the front desk waits a second for its
# confirmation, then spools.
REPLICATION_WARN_SECONDS = 1.0
# Free on MongoDB's disk beyond what recvq and the oplog may still take.
DISK_WARN_BYTES, DISK_BAD_BYTES = 5 * GIGABYTE, GIGABYTE
# Free on the spool's disk beyond SPOOL_MAX_MB (warn), or at all (bad): it leaves a log of its own
# beside the documents, and SQLite a copy while it drains.
SPOOL_SPARE_BYTES = 64 * MEGABYTE

STATUS = "`systemctl status {unit}` and its journal show the reason"
SAME_WORKERS = (
    "install the same release and the same bot on every worker and restart it; the version that "
    "most threads have gets the jobs"
)
# What ends by itself, or with its worker.
WORKER_ADVICE = {
    STOPPING: "start another one: `systemctl start linedesk-worker` on a machine that has none",
    SILENT: (
        "its process hangs, or its way to RabbitMQ is cut: `systemctl status linedesk-worker` on "
        "its machine; after 10 s without a word its jobs go to other workers"
    ),
    NEW: "normal for a moment after its start; else its log shows the reason",
}
RENEW = "`certbot renew --dry-run` shows why it is not renewed; see deploy/tls for the hook"
# What each level is called wherever operators see it, and its sign beside the colour.
NAMES: dict[Level | None, str] = {"bad": "Critical", "warn": "Warning", None: "OK"}
SIGNS: dict[Level | None, str] = {"bad": "✕", "warn": "▲", None: "●"}
# What `python -m` runs for a role.
MODULES = {processes.SCHEDULER: "linedesk.scheduler"}
# Where no process has ever written a row.
UNKNOWN = "unknown"


@dataclass(frozen=True)
class HealthProblem:
    """One thing that is not as it should be."""

    level: Level
    """bad: something has stopped or will stop soon; warn: look at it when there is time."""
    about: str
    saw: str
    do: str

    @property
    def name(self) -> str:
        """Warning or Critical."""
        return NAMES[self.level]

    @property
    def sign(self) -> str:
        """The level without a colour."""
        return SIGNS[self.level]


def name_of_health(problems: Sequence[HealthProblem]) -> str:
    """Critical, Warning or OK: that of the worst of them."""
    levels = {one.level for one in problems}
    return NAMES[next((level for level in LEVELS if level in levels), None)]


def problems_of(seen: Overview) -> list[HealthProblem]:
    """Everything at once, the worst first."""
    facts = (
        *_database(seen),
        *_processes(seen),
        *_workers(seen),
        *_stores(seen),
        *_queue(seen),
        *_line(seen),
        *(paused(row) for row in seen.pauses),
        stuck_conversations(seen.waiting, seen.at),
        *_left_over(seen),
        *_front_desk(seen),
    )
    found = [one for one in facts if one is not None]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def overview_as_json(seen: Overview) -> Document:
    """An overview for programs, its problems under the name `wrong`."""
    return {**seen.as_json(), "wrong": as_json(problems_of(seen))}


# One function for each fact: its problem, or None where all is well.


def absent(
    role: str, saw: str, *, started_by: str | None = SYSTEMD, has_ended: bool = False
) -> HealthProblem:
    """No process of a role runs. A restart also ends one that hangs, which a start would leave.

    `started_by` is what started the processes here: systemd, up, hand or UNKNOWN. `has_ended`: all
    of them have ended in good order.
    """
    unit, reason = unit_of(role), reason_at(role, started_by)
    do = {
        UP: "start `linedesk up`"
        if has_ended
        else f"stop `linedesk up` and start it again; {reason}",
        HAND: f"start it again: `python -m {MODULES.get(role, role)}`; {reason}",
        UNKNOWN: "start linedesk: `linedesk up`, or by systemd `systemctl start linedesk.target`",
    }.get(started_by or SYSTEMD, f"`systemctl restart {unit}`; {reason}")
    return HealthProblem("bad", role, saw, do)


def reason_at(role: str, started_by: str | None) -> str:
    """Where the reason is found why a process ended or hangs."""
    if started_by == UP:
        return "the output of `linedesk up` shows the reason"
    if started_by in (HAND, UNKNOWN):
        return f"the log of the {role} shows the reason"
    return STATUS.format(unit=unit_of(role))


def lag(documents: float, seconds: float) -> HealthProblem | None:
    """What is stored and not read by the feed."""
    if seconds <= LAG_WARN_SECONDS:
        return None
    saw = f"{_events(documents)} not read yet, the oldest waits for {for_long(seconds)}"
    level: Level = "bad" if seconds > LAG_BAD_SECONDS else "warn"
    return HealthProblem(level, "lag", saw, "the dispatcher's log shows what delays the feed")


def oldest_event(seconds: float) -> HealthProblem | None:
    """For how long the oldest event waits that is not paused."""
    if seconds <= WAIT_WARN_SECONDS:
        return None
    level: Level = "bad" if seconds > WAIT_BAD_SECONDS else "warn"
    saw = f"the oldest event waits for {for_long(seconds)}"
    do = "does LINE answer, are handlers slow? `linedesk status` lists what waits and why"
    return HealthProblem(level, "queue", saw, do)


def progress(
    *, quiet_seconds: float, oldest_seconds: float, started_by: str | None = SYSTEMD
) -> HealthProblem | None:
    """Since progress was saved, and for how long the oldest event waits."""
    reason = reason_at(processes.DISPATCHER, started_by)
    is_quiet = quiet_seconds > QUIET_WARN_SECONDS
    saw = f"saved {for_long(quiet_seconds)} ago"
    if is_quiet and oldest_seconds > WAIT_WARN_SECONDS:
        do = f"the dispatcher makes no progress: {reason}"
        return HealthProblem("bad", "queue", saw, do)
    if is_quiet and oldest_seconds <= WAIT_WARN_SECONDS:
        do = f"a dispatcher saves at least every minute: {reason}"
        return HealthProblem("warn", "queue", saw, do)
    return oldest_event(oldest_seconds)


def unread(share: float, *, is_closed: bool = False) -> HealthProblem | None:
    """How much of recvq is unread, 0 to 1, and whether its guard has closed it."""
    do = "find out why the dispatcher is behind: does it run, does LINE answer?"
    if is_closed:
        saw = "closed: it is full of unread events or damaged; the front desk stores in its spool"
        return HealthProblem("bad", "recvq", saw, do)
    saw = f"{share:.0%} of recvq is unread"
    if share >= UNREAD_BAD_SHARE:
        return HealthProblem("bad", "recvq", f"{saw}: it is closed, and the spool fills", do)
    if share >= UNREAD_WARN_SHARE:
        return HealthProblem("warn", "recvq", f"{saw}, it closes at {UNREAD_BAD_SHARE:.0%}", do)
    return None


def window_level(seconds: float) -> Level | None:
    """How bad it is that recvq or the oplog lasts for so long."""
    if seconds >= WINDOW_WARN_SECONDS:
        return None
    return "warn" if seconds >= WINDOW_BAD_SECONDS else "bad"


def window(about: str, seconds: float, *, behind_seconds: float) -> HealthProblem | None:
    """For how long recvq or the oplog still keeps what the dispatcher has not finished.

    A backlog that is handled quickly raises the rate for a while: only a dispatcher that is behind
    is in danger.
    """
    level = window_level(seconds)
    if level is None:
        return None
    if behind_seconds <= WAIT_WARN_SECONDS:
        level = "warn"
    saw = f"retention left: {for_long(seconds)} at the present rate"
    return HealthProblem(level, about, saw, "`linedesk doctor` shows how to enlarge it")


def no_spool(saw: str = "no spool: webhooks are refused while MongoDB is down") -> HealthProblem:
    """The front desk has no store besides MongoDB."""
    return HealthProblem(
        "warn", "spool", saw, "the front desk's log shows the reason; see SPOOL_PATH"
    )


def spooled(
    documents: float, *, used_bytes: float, most_bytes: float, oldest_seconds: float | None = None
) -> HealthProblem | None:
    """What waits outside of MongoDB; `most_bytes` is SPOOL_MAX_MB, 0 where it is not known."""
    if documents <= SPOOL_WARN_DOCUMENTS:
        return None
    since = f", the oldest waits for {for_long(oldest_seconds)}" if oldest_seconds else ""
    is_full = bool(most_bytes) and used_bytes > SPOOL_BAD_SHARE * most_bytes
    do = "it empties once MongoDB confirms writes and recvq has room; check both and the front desk"
    saw = f"{_events(documents)} in the spool{since}"
    return HealthProblem("bad" if is_full else "warn", "spool", saw, do)


def token_refused(waiting: str = "") -> HealthProblem:
    """LINE answers 401; `waiting` is what waits for it, in words."""
    do = (
        "issue another one in LINE's console (developers.line.biz), Messaging API, put it into the "
        "credentials, restart the dispatcher"
    )
    saw = "LINE refuses LINE_CHANNEL_ACCESS_TOKEN"
    return HealthProblem("bad", "LINE", f"{saw}; {waiting}" if waiting else saw, do)


def quota(
    used: float, most: float, *, closed_since: datetime | None = None
) -> HealthProblem | None:
    """Counted messages of this month, beside those that the plan allows.

    `closed_since`: when the dispatcher learnt that LINE takes no push any more.
    """
    saw = f"{used:,.0f} of {most:,.0f} messages are used this month"
    if closed_since is not None:
        do = (
            "pushes become dead letters until the month ends in Japan; replies are free; raise the "
            "plan in LINE's console, then run `linedesk dead replay --cause quota`"
        )
        return HealthProblem(
            "bad", "quota", f"LINE takes no push since {local(closed_since)}: {saw}", do
        )
    if used < QUOTA_WARN_SHARE * most:
        return None
    do = (
        "pushes beyond it become dead letters until the month's end; replies are free; raise the "
        "plan in LINE's console"
    )
    return HealthProblem("bad" if used >= QUOTA_BAD_SHARE * most else "warn", "quota", saw, do)


def gate(one: GateView) -> HealthProblem | None:
    """What the gate's settings cost while it is busy and sends wait for a turn."""
    if (one.use or 0.0) < GATE_WARN_SHARE or not one.waiting or not one.turns_per_second:
        return None
    # Both are of the last ten seconds.
    most = one.turns_per_second / (one.use or 1.0)
    line = RATE.calls / RATE.seconds
    saw = f"{one.host}: {one.use:.0%} of the gate's turns are used, {one.waiting:,.0f} calls wait; "
    saw += f"the gate lets at most {most:,.3g} calls a second pass"
    if line < 2 * most:
        do = "LINE allows hardly more: make fewer calls; see Capacity in docs/operate.md"
        return HealthProblem("warn", "gate", saw, do)
    do = (
        "raise LINE_CONCURRENCY for more calls at the same time, or lower "
        "LINE_ACCESS_INTERVAL_MS for earlier starts; see Capacity in docs/operate.md"
    )
    return HealthProblem("warn", "gate", f"{saw}, LINE allows {line / most:,.0f} times as many", do)


def unsent(count: float, oldest_seconds: float) -> HealthProblem | None:
    """Answers that are decided and that LINE has not taken."""
    if not count or oldest_seconds <= WAIT_WARN_SECONDS:
        return None
    do = "does LINE answer, is the gate busy? the waiting conversations show the reasons"
    return HealthProblem("warn", "answers", unsent_words(count, oldest_seconds), do)


def unsent_words(count: float, oldest_seconds: float | None) -> str:
    """How many answers wait for LINE, and for how long."""
    waits = "1 answer waits" if count == 1 else f"{count:,.0f} answers wait"
    oldest = f", the oldest for {for_long(oldest_seconds)}" if oldest_seconds else ""
    return f"{waits} to be sent{oldest}"


def line_fails(host: str, *, next_try_seconds: float | None, waiting: str = "") -> HealthProblem:
    """The breaker of a host is open; `waiting` is what waits for it, in words."""
    saw = f"LINE fails ({host} host), {next_try_words(next_try_seconds)}"
    do = "sends wait and are not lost; `linedesk calls --failed` lists the failures"
    return HealthProblem("bad", "LINE", f"{saw}; {waiting}" if waiting else saw, do)


def next_try_words(seconds: float | None) -> str:
    """When LINE is called again while it fails."""
    if seconds is None:
        return "linedesk tries a single call now and then"
    return f"next try in {for_long(seconds)}" if seconds >= 1 else "next try now"


def paused(row: Mapping[str, Any]) -> HealthProblem:
    """`row` is one of `Overview.pauses`."""
    at, by, why = row.get("at"), row.get("by"), row.get("why")
    since = f" since {local(at)}" if isinstance(at, datetime) else ""
    saw = f"{scope_words(row.get('channel'), row.get('key'))}{since}"
    saw += (f" by {by}" if by else "") + (f": {why}" if why else "")
    level: Level = "bad" if row.get("everything") else "warn"
    do = f"new events are held until you resume: `linedesk resume {row['scope']}`"
    return HealthProblem(level, "paused", saw, do)


def stuck_conversations(
    waiting: Sequence[Mapping[str, Any]], now: datetime
) -> HealthProblem | None:
    """One problem for all conversations that wait too long, with the reason of the longest.

    `waiting` are rows with channel, key, since and why, of a conversation one or several; those
    that an operator has paused do not count.
    """
    oldest: dict[tuple[Any, Any], Mapping[str, Any]] = {}
    for row in sorted(waiting, key=lambda row: _waited(row, now)):
        if row.get("why") != "paused" and _waited(row, now) > WAIT_BAD_SECONDS:
            oldest[row.get("channel"), row.get("key")] = row
    if not oldest:
        return None
    first = max(oldest.values(), key=lambda row: _waited(row, now))
    scope = f"{first.get('channel')}/{first.get('key')}"
    others = f" (and {len(oldest) - 1} more)" if len(oldest) > 1 else ""
    saw = f"{scope} waits for {for_long(_waited(first, now))}"
    saw += f": {first.get('why') or 'no reason known'}{others}"
    do = f"`linedesk conversation show {scope}` shows details; `linedesk release {scope}` gives up "
    return HealthProblem("warn", "waiting", saw, f"{do}what is stuck")


def _waited(row: Mapping[str, Any], now: datetime) -> float:
    since = row.get("since")
    return (now - since).total_seconds() if isinstance(since, datetime) else 0.0


def dead_letters(count: int) -> HealthProblem | None:
    """Those of LETTERS_WITHIN that were not replayed."""
    if count <= LETTERS_WARN_COUNT:
        return None
    do = "`linedesk dead list --since 1d` lists them with their causes; replay or drop them"
    return HealthProblem("warn", "dead letters", f"{count:,} in the last 24 h, not replayed", do)


def late_timer(
    seconds: float, *, own_process: bool, started_by: str | None = SYSTEMD
) -> HealthProblem | None:
    """How late the next one is; `own_process`: whether a scheduler of its own is to run."""
    if seconds <= TIMER_BAD_SECONDS:
        return None
    role = processes.SCHEDULER if own_process else processes.DISPATCHER
    saw = f"the next timer is late by {for_long(seconds)}"
    return HealthProblem("bad", "timers", saw, reason_at(role, started_by))


def certificate(left: timedelta) -> HealthProblem | None:
    """What is left of the front desk's certificate."""
    seconds = left.total_seconds()
    if seconds >= CERTIFICATE_WARN_SECONDS:
        return None
    if seconds <= 0:
        saw = "the certificate has expired"
        return HealthProblem("bad", "certificate", saw, f"LINE sends no webhooks: {RENEW}")
    saw = f"the certificate expires in {for_long(seconds)}"
    level: Level = "bad" if seconds < CERTIFICATE_BAD_SECONDS else "warn"
    return HealthProblem(level, "certificate", saw, RENEW)


def broker_away(words: str) -> HealthProblem:
    """`words`: what stands between the dispatcher and RabbitMQ."""
    do = (
        "events wait and are not lost; check RabbitMQ (`systemctl status rabbitmq-server`, "
        "`rabbitmq-diagnostics alarms`) and AMQP_URL; `linedesk doctor` shows more"
    )
    return HealthProblem("bad", "workers", words, do)


def no_worker(found: Sequence[WorkerView]) -> HealthProblem:
    """Of the workers that are connected none gets jobs, or none is connected."""
    if not found:
        saw = "no worker is connected: events wait"
        do = "start one: `systemctl start linedesk-worker` on its machine; its log shows the reason"
        return HealthProblem("bad", "workers", saw, do)
    first = _lasting_first(found)
    saw = f"no worker gets jobs: events wait; {first.name}: {first.state}"
    return HealthProblem("bad", "workers", saw, WORKER_ADVICE.get(first.state, SAME_WORKERS))


def idle_worker(found: Sequence[WorkerView]) -> HealthProblem | None:
    """One problem for all workers that get no jobs although they do not stop."""
    idle = [one for one in found if not one.is_working and one.state != STOPPING]
    if not idle:
        return None
    others = f" (and {len(idle) - 1} more)" if len(idle) > 1 else ""
    first = _lasting_first(idle)
    saw = f"{first.name} gets no jobs: {first.state}{others}"
    return HealthProblem("warn", "workers", saw, WORKER_ADVICE.get(first.state, SAME_WORKERS))


def _lasting_first(found: Sequence[WorkerView]) -> WorkerView:
    """The first worker whose state does not end by itself, else the first."""
    return min(found, key=lambda one: one.state in WORKER_ADVICE)


def _events(count: float) -> str:
    return "1 event" if count == 1 else f"{count:,.0f} events"


def unit_of(role: str) -> str:
    """The name of its service of systemd."""
    return f"linedesk-{role}"


# What an overview has of each.


def _database(seen: Overview) -> Iterator[HealthProblem]:
    if not seen.is_initialised:
        saw = "it has no linedesk collections"
        do = "check MONGODB_URI and MONGODB_DATABASE; `linedesk init` makes the collections"
        yield HealthProblem("bad", "database", saw, do)


def started_by(found: Sequence[processes.Process], role: str) -> str | None:
    """What started the processes of a role; where none is known, what started any.

    None where only processes of older releases ran, which do not report it.
    """
    known = sorted(found, key=lambda one: (one.role != role, one.silent_seconds))
    if not known:
        return UNKNOWN
    return next((one.started_by for one in known if one.started_by is not None), None)


def _processes(seen: Overview) -> Iterator[HealthProblem]:
    here = {one.role for one in seen.processes if one.is_fresh}
    wanted = [processes.FRONTDESK, processes.DISPATCHER]
    if seen.scheduler_asked:
        wanted.append(processes.SCHEDULER)
    for role in wanted:
        if role not in here:
            saw, how = _last_seen(seen, role), started_by(seen.processes, role)
            yield absent(role, saw, started_by=how, has_ended=_have_ended(seen.processes))
    # Of a dispatcher without the field, an older version, a scheduler is looked for by its row.
    named = here if seen.scheduler_asked else here | {processes.SCHEDULER}
    for one in seen.processes:
        if not one.is_fresh and one.state != processes.ENDED and one.role in named:
            saw = f"process {one.pid} on {one.host}: last seen {for_long(one.silent_seconds)} ago"
            why = reason_at(one.role, one.started_by)
            yield HealthProblem(
                "bad", one.role, saw, f"it hangs, has ended or cannot reach MongoDB; {why}"
            )
    if processes.DISPATCHER in here and seen.obeyed is None:
        saw = "no dispatcher holds the lease"
        do = "a standby takes over within 5 s; if not, the dispatcher's log shows the reason"
        yield HealthProblem("bad", processes.DISPATCHER, saw, do)


def _have_ended(found: Sequence[processes.Process]) -> bool:
    return all(one.state == processes.ENDED for one in found)


def _last_seen(seen: Overview, role: str) -> str:
    silent = next((one for one in seen.processes if one.role == role), None)
    if silent is None:
        return f"no {role} is running"
    how = "ended" if silent.state == processes.ENDED else "was last seen"
    return f"no {role} is running; {silent.pid} on {silent.host} {how} {local(silent.at)}"


def _workers(seen: Overview) -> Iterator[HealthProblem | None]:
    workers = seen.workers
    if workers is None:
        return
    if workers.broker:
        yield broker_away(workers.broker)
    elif not workers.working:
        yield no_worker(workers.processes)
    else:
        yield idle_worker(workers.processes)


def _stores(seen: Overview) -> Iterator[HealthProblem | None]:
    queue, spool = seen.queue, seen.spool
    yield unread(queue.unread_share or 0.0, is_closed=queue.is_closed)
    if spool is not None and not spool.is_available:
        yield no_spool()
    if spool is not None:
        most, oldest = spool.max_bytes or 0.0, spool.oldest_seconds
        used = spool.bytes
        yield spooled(spool.documents, used_bytes=used, most_bytes=most, oldest_seconds=oldest)


def _queue(seen: Overview) -> Iterator[HealthProblem | None]:
    queue, threads = seen.queue, seen.threads
    yield lag(queue.lag_documents or 0.0, queue.lag_seconds or 0.0)
    # What is paused waits in `held` because an operator wants it to.
    oldest = (queue.behind_seconds if seen.pauses else queue.oldest_seconds) or 0.0
    yield oldest_event(oldest)
    if not is_line_away(seen):
        yield unsent(queue.outbox_effects or 0.0, queue.oldest_send_seconds or 0.0)
    if threads.all and threads.busy == threads.all and queue.in_hand:
        do = "handlers are slow, or DISPATCHER_THREADS is too small"
        yield HealthProblem("warn", "threads", f"all {threads.all:,.0f} threads are busy", do)
    for about, seconds in (
        ("recvq", queue.recvq_left_seconds),
        ("oplog", queue.oplog_left_seconds),
    ):
        if seconds is not None:
            yield window(about, seconds, behind_seconds=queue.behind_seconds or 0.0)


def is_line_away(seen: Overview) -> bool:
    """Whether sends wait since LINE fails or refuses the token."""
    return seen.token_refused or any(one.breaker_open for one in seen.gates)


def _unsent(seen: Overview) -> str:
    count = seen.queue.outbox_effects
    return unsent_words(count, seen.queue.oldest_send_seconds) if count else ""


def _line(seen: Overview) -> Iterator[HealthProblem | None]:
    if seen.token_refused:
        yield token_refused(waiting=_unsent(seen))
    for one in seen.gates:
        if one.breaker_open and not seen.token_refused:
            waiting = _unsent(seen) if one.host == seen.gates[0].host else ""
            yield line_fails(one.host, next_try_seconds=one.next_try_seconds, waiting=waiting)
        elif not seen.token_refused:
            yield gate(one)
    if seen.quota is not None and seen.quota.used is not None:
        yield quota(seen.quota.used, seen.quota.messages, closed_since=seen.quota.closed_since)


def _left_over(seen: Overview) -> Iterator[HealthProblem | None]:
    yield dead_letters(seen.letters_lately)
    if seen.threads.abandoned:
        saw = f"{seen.threads.abandoned:,.0f} handlers have not returned since the start"
        do = "the log names them; the dispatcher restarts when all its threads are lost this way"
        yield HealthProblem("warn", "threads", saw, do)
    late = -(seen.figures[processes.SCHEDULER].number("nextTimerSeconds") or 0.0)
    own = bool(seen.scheduler_asked)
    role = processes.SCHEDULER if own else processes.DISPATCHER
    yield late_timer(late, own_process=own, started_by=started_by(seen.processes, role))


def _front_desk(seen: Overview) -> Iterator[HealthProblem | None]:
    desk = seen.figures[processes.FRONTDESK]
    refused = sum(desk.rate("refusedRequests", reason) or 0.0 for reason in REFUSED_REASONS)
    slow = desk.rate("refusedRequests", "slow") or 0.0
    if refused > REFUSED_BAD_PER_SECOND or slow > SLOW_BAD_PER_SECOND:
        saw = f"{refused + slow:.1f} webhooks a second are refused and may be lost"
        do = "its log shows the reasons; store: check both disks; overload: add a front desk"
        yield HealthProblem("bad", processes.FRONTDESK, saw, do)
    if desk.rate("refusedRequests", "signature"):
        saw = "requests with a wrong signature are refused"
        do = "check that LINE_CHANNEL_SECRET is that of this channel"
        yield HealthProblem("warn", processes.FRONTDESK, saw, do)
    ends = desk.number("certificateEndsSeconds")
    if ends is not None:
        yield certificate(timedelta(seconds=ends - seen.at.timestamp()))
