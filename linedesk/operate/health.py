"""Judges health: an overview becomes a list of problems, each with the next step. Pure.

This module has all thresholds for operators. `linedesk status`, the console and `linedesk doctor`
use them, and a test compares them with the alerts in deploy/prometheus. A process judges by itself
what it reports to systemd and in /readyz.

A problem's texts are in the language of the context in which the problem is made. JSON is English:
`overview_as_json` sees to it, and other callers make the problems inside `speaking("en")`.
`about` is an English key in each language; `topic` is its translation.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from linedesk.operate import processes
from linedesk.operate.format import as_json, for_long, local, scope_words
from linedesk.operate.overview import LATELY, GateView, Overview, Sent
from linedesk.operate.processes import WorkerView
from linedesk.operate.text import known
from linedesk.runtime.language import DEFAULT, mark, ngettext, speaking
from linedesk.runtime.language import gettext as _
from linedesk.runtime.status_row import NEW, SILENT, STOPPING, UNACCEPTED
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.limits import RATE
from linedesk.store.queue.usage import CLOSE_SHARE, WARN_SHARE
from linedesk.store.records.waits import Why, code_of

Level = Literal["bad", "warn"]
LEVELS: tuple[Level, ...] = ("bad", "warn")
HOUR_SECONDS, DAY_SECONDS = 3_600.0, 86_400.0
GIGABYTE = 1024 * MEGABYTE

# The thresholds. A problem begins at WARN and is bad at BAD.

# Age of the newest document that the feed has not read. A healthy feed needs milliseconds.
LAG_WARN_SECONDS, LAG_BAD_SECONDS = 10.0, 60.0
# Age of the oldest event that is not handled. After a minute an event moves to `held`, and its
# reply token has expired. An event that waits for ten minutes is with no thread.
WAIT_WARN_SECONDS, WAIT_BAD_SECONDS = 60.0, 600.0
# Delay of the next timer. The dispatcher retries within seconds and fails over within ten.
TIMER_BAD_SECONDS = 60.0
# Unread share of recvq, 0 to 1, at which the guard warns, and at which it closes recvq.
UNREAD_WARN_SHARE, UNREAD_BAD_SHARE = WARN_SHARE, CLOSE_SHARE
# Retention of recvq or the oplog. Above WARN a dispatcher may be down from one evening to the next.
# Below BAD a failed upgrade may take too long.
WINDOW_WARN_SECONDS, WINDOW_BAD_SECONDS = 24 * HOUR_SECONDS, 2 * HOUR_SECONDS
# Events in the spool. Any event there shows that MongoDB takes none.
SPOOL_WARN_DOCUMENTS = 0
# Used share of SPOOL_MAX_MB, 0 to 1. Webhooks are refused when all of it is used.
SPOOL_BAD_SHARE = 0.8
# Webhooks refused a second. Without a store for them: any. Of slow clients: one in ten seconds,
# because strangers begin requests that they never end.
REFUSED_BAD_PER_SECOND, SLOW_BAD_PER_SECOND = 0.0, 0.1
REFUSED_REASONS = ("store", "overload")
# Used share of the month's messages, 0 to 1. Pushes beyond it become dead letters.
QUOTA_WARN_SHARE, QUOTA_BAD_SHARE = 0.9, 1.0
# Used share of the gate's turns, 0 to 1, while sends wait for a turn.
GATE_WARN_SHARE = 0.9
# Dead letters of the last day that were not replayed. Each is an answer that did not arrive.
LETTERS_WARN_COUNT, LETTERS_WITHIN = 0, LATELY
# Remaining life of a certificate. Those of Let's Encrypt are renewed 30 days before their end. At
# three weeks the renewal has failed for a while.
CERTIFICATE_WARN_SECONDS, CERTIFICATE_BAD_SECONDS = 21 * DAY_SECONDS, 7 * DAY_SECONDS
# Difference between two clocks. A timer may fire a second late unnoticed. At half of a reply
# token's minute every reply becomes a push.
CLOCK_WARN_SECONDS, CLOCK_BAD_SECONDS = 1.0, 30.0
# Free space on MongoDB's disk beyond the room that recvq and the oplog may still take.
DISK_WARN_BYTES, DISK_BAD_BYTES = 5 * GIGABYTE, GIGABYTE
# Free space on the spool's disk beyond SPOOL_MAX_MB (warn), or in all (bad). The spool keeps a log
# beside the documents, and SQLite a copy while the spool drains.
SPOOL_SPARE_BYTES = 64 * MEGABYTE

RESTART = mark("`systemctl restart {unit}`, or restart `linedesk up`; {reason}")
REASON = mark("`journalctl -u {unit}`, or the output of `linedesk up`, shows the reason")
SAME_WORKERS = mark(
    "install the same release and the same bot on every worker and restart it; the version with "
    "most threads gets the jobs"
)
ACCEPT = mark(
    "if you deployed it: `linedesk accept {version}`; if not, another program has the worker's "
    "AMQP_URL: replace it by `linedesk init --amqp FOLDER --new-passwords`"
)
# States that end by themselves, or with their worker.
WORKER_ADVICE = {
    STOPPING: mark("start another one: `systemctl start linedesk-worker` on a machine without one"),
    SILENT: mark(
        "its process hangs, or its connection to RabbitMQ is cut: `systemctl status "
        "linedesk-worker` on its machine; after 10 s without a message its jobs go to other workers"
    ),
    NEW: mark("normal for a moment after its start; otherwise its log shows the reason"),
}
RENEW = mark("`certbot renew --dry-run` shows why it is not renewed; see deploy/tls for the hook")
# The names of the levels in the command line and on the page, and the sign beside the colour.
NAMES: dict[Level | None, str] = {
    "bad": mark("Critical"),
    "warn": mark("Warning"),
    None: mark("OK"),
}
SIGNS: dict[Level | None, str] = {"bad": "✕", "warn": "▲", None: "●"}
# The keys in `about`.
TOPICS = (
    *(mark("frontdesk"), mark("dispatcher"), mark("workers"), mark("threads")),
    *(mark("database"), mark("recvq"), mark("oplog"), mark("spool"), mark("lag"), mark("queue")),
    *(mark("waiting"), mark("paused"), mark("answers"), mark("dead letters"), mark("timers")),
    *(mark("LINE"), mark("gate"), mark("quota"), mark("certificate")),
)


@dataclass(frozen=True)
class HealthProblem:
    """One thing that is not as it should be."""

    level: Level
    """bad: something has stopped or will stop soon; warn: look at it when there is time."""
    about: str
    """One of TOPICS."""
    saw: str
    do: str

    @property
    def name(self) -> str:
        """Warning or Critical, translated."""
        return _(NAMES[self.level])

    @property
    def topic(self) -> str:
        """The part of the system that has the problem, translated."""
        return _(self.about)

    @property
    def sign(self) -> str:
        """The level without a colour."""
        return SIGNS[self.level]


def worst_of(problems: Sequence[HealthProblem]) -> Level | None:
    """Return the worst level; None without problems."""
    levels = {one.level for one in problems}
    return next((level for level in LEVELS if level in levels), None)


def name_of_health(problems: Sequence[HealthProblem]) -> str:
    """Return the name of the worst level: Critical, Warning or OK, translated."""
    return _(NAMES[worst_of(problems)])


def problems_of(seen: Overview) -> list[HealthProblem]:
    """Return all problems, the worst first."""
    facts = (
        *(_database, _processes, _workers, _unread, _spool, _queue, _threads, _windows),
        *(_line, _quota, _pauses, _waiting, _dead_letters, _abandoned, _timers, _front_desk),
    )
    found = [one for fact in facts for one in fact(seen)]
    return sorted(found, key=lambda one: LEVELS.index(one.level))


def overview_as_json(seen: Overview) -> Document:
    """Return an overview for programs, in English, its problems under the name `wrong`."""
    with speaking(DEFAULT):
        return {**seen.as_json(), "wrong": as_json(problems_of(seen))}


# One function for each fact: its problems.


def _database(seen: Overview) -> Iterator[HealthProblem]:
    if not seen.is_initialised:
        saw = _("the database has no linedesk collections")
        do = _("check MONGODB_URI and MONGODB_DATABASE; `linedesk init` makes the collections")
        yield HealthProblem("bad", "database", saw, do)


def _reason(role: str) -> str:
    """Return where the reason is found why a process ended or hangs."""
    return _(REASON).format(unit=f"linedesk-{role}")


def _processes(seen: Overview) -> Iterator[HealthProblem]:
    here = {one.role for one in seen.processes if one.is_fresh}
    for role in processes.ROLES:
        if role not in here:
            # A restart also ends a process that hangs.
            do = _(RESTART).format(unit=f"linedesk-{role}", reason=_reason(role))
            yield HealthProblem("bad", role, _last_seen(seen, role), do)
    for one in seen.processes:
        if not one.is_fresh and one.state != processes.ENDED and one.role in here:
            saw = _("process {pid} on {host}: last seen {time} ago").format(
                pid=one.pid, host=one.host, time=for_long(one.silent_seconds)
            )
            do = _("it hangs, has ended or cannot reach MongoDB; {reason}").format(
                reason=_reason(one.role)
            )
            yield HealthProblem("bad", one.role, saw, do)
    for one in seen.killed[:1]:
        # Its counters began anew, so what they told is forgotten.
        saw = _("process {pid} on {host} was killed or crashed {time} ago; another one runs")
        saw = saw.format(pid=one.pid, host=one.host, time=for_long(one.silent_seconds))
        saw = _and_more(saw, len(seen.killed))
        yield HealthProblem("warn", one.role, saw, _reason(one.role))
    if processes.DISPATCHER in here and seen.obeyed is None:
        saw = _("no dispatcher holds the lease")
        do = _("a standby takes over within 5 s; if not, the dispatcher's log shows the reason")
        yield HealthProblem("bad", processes.DISPATCHER, saw, do)


def _last_seen(seen: Overview, role: str) -> str:
    silent = next((one for one in seen.processes if one.role == role), None)
    if silent is None:
        return _("no {role} is running").format(role=_(role))
    if silent.state == processes.ENDED:
        saw = _("no {role} is running; {pid} on {host} ended {at}")
    else:
        saw = _("no {role} is running; {pid} on {host} was last seen {at}")
    return saw.format(role=_(role), pid=silent.pid, host=silent.host, at=local(silent.at))


def _workers(seen: Overview) -> Iterator[HealthProblem]:
    workers = seen.workers
    if workers is None:
        return
    idle = [one for one in workers.processes if not one.is_working and one.state != STOPPING]
    if workers.broker:
        do = _(
            "events wait and are not lost; check RabbitMQ (`systemctl status rabbitmq-server`, "
            "`rabbitmq-diagnostics alarms`) and AMQP_URL; `linedesk doctor` shows more"
        )
        yield HealthProblem("bad", "workers", known(workers.broker), do)
    elif not workers.processes:
        saw = _("no worker is connected: events wait")
        do = _(
            "start one: `systemctl start linedesk-worker` on its machine; its log shows the reason"
        )
        yield HealthProblem("bad", "workers", saw, do)
    elif idle or not workers.working:
        # A worker that waits for an operator, else one whose state does not end by itself.
        first = min(
            idle or workers.processes,
            key=lambda one: (one.state != UNACCEPTED, one.state in WORKER_ADVICE),
        )
        saw = _("no worker gets jobs: events wait; {name}: {state}")
        if workers.working:
            saw = _("{name} gets no jobs: {state}")
        saw = saw.format(name=first.name, state=first.words())
        is_bad = first.state == UNACCEPTED or not workers.working
        count = len(idle) if workers.working else 1
        yield HealthProblem(
            "bad" if is_bad else "warn", "workers", _and_more(saw, count), _advice(first)
        )


def _advice(worker: WorkerView) -> str:
    if worker.state == UNACCEPTED:
        return _(ACCEPT).format(version=shlex.quote(worker.bot))
    return _(WORKER_ADVICE.get(worker.state, SAME_WORKERS))


def _unread(seen: Overview) -> Iterator[HealthProblem]:
    share = seen.queue.unread_share or 0.0
    do = _("find out why the dispatcher is behind: check that it runs and that LINE answers")
    if seen.queue.is_closed or share >= UNREAD_BAD_SHARE:
        saw = _(
            "closed: it is full of unread events or damaged; the front desk stores in its spool"
        )
        yield HealthProblem("bad", "recvq", saw, do)
    elif share >= UNREAD_WARN_SHARE:
        saw = _("{share} of recvq is unread, it closes at {limit}")
        saw = saw.format(share=f"{share:.0%}", limit=f"{UNREAD_BAD_SHARE:.0%}")
        yield HealthProblem("warn", "recvq", saw, do)


def _spool(seen: Overview) -> Iterator[HealthProblem]:
    spool = seen.spool
    if spool is None:
        return
    if not spool.is_available:
        saw = _("no spool: webhooks are refused while MongoDB is down")
        do = _("the front desk's log shows the reason; see SPOOL_PATH")
        yield HealthProblem("warn", "spool", saw, do)
    if (spool.documents or 0.0) <= SPOOL_WARN_DOCUMENTS:
        return
    # SPOOL_MAX_MB, 0 where it is not known.
    most = spool.max_bytes or 0.0
    is_full = bool(most) and (spool.bytes or 0.0) > SPOOL_BAD_SHARE * most
    do = _(
        "the spool empties once MongoDB confirms writes and recvq has room; check both and the "
        "front desk"
    )
    saw = _("{events} in the spool").format(events=_events(spool.documents))
    if spool.oldest_seconds:
        saw = _("{events} in the spool, the oldest waits for {time}").format(
            events=_events(spool.documents), time=for_long(spool.oldest_seconds)
        )
    yield HealthProblem("bad" if is_full else "warn", "spool", saw, do)


def _events(count: float | None) -> str:
    count = count or 0.0
    return ngettext("{count} event", "{count} events", round(count)).format(count=f"{count:,.0f}")


def _queue(seen: Overview) -> Iterator[HealthProblem]:
    queue = seen.queue
    if (lag := queue.lag_seconds or 0.0) > LAG_WARN_SECONDS:
        saw = _("{events} not read yet, the oldest waits for {time}").format(
            events=_events(queue.lag_documents), time=for_long(lag)
        )
        level: Level = "bad" if lag > LAG_BAD_SECONDS else "warn"
        do = _("the dispatcher's log shows what delays the feed")
        yield HealthProblem(level, "lag", saw, do)
    # A dispatcher of an older release does not report the first one.
    oldest = queue.oldest_seconds if queue.unpaused_seconds is None else queue.unpaused_seconds
    if oldest and oldest > WAIT_WARN_SECONDS:
        level = "bad" if oldest > WAIT_BAD_SECONDS else "warn"
        saw = _("the oldest event waits for {time}").format(time=for_long(oldest))
        do = _(
            "check that LINE answers and that handlers are fast; `linedesk status` lists the "
            "waiting conversations with the reasons"
        )
        yield HealthProblem(level, "queue", saw, do)
    count, oldest_send = queue.outbox_effects, queue.oldest_send_seconds or 0.0
    if count and oldest_send > WAIT_WARN_SECONDS and not is_line_away(seen):
        do = _(
            "check that LINE answers and that the gate is not busy; the waiting conversations show "
            "the reasons"
        )
        yield HealthProblem("warn", "answers", unsent_words(count, oldest_send), do)


def _threads(seen: Overview) -> Iterator[HealthProblem]:
    if seen.threads.all and seen.threads.busy == seen.threads.all and seen.queue.in_hand:
        do = _("handlers are slow, or DISPATCHER_THREADS is too small")
        saw = _("all {count} threads are busy").format(count=f"{seen.threads.all:,.0f}")
        yield HealthProblem("warn", "threads", saw, do)


def window_level(seconds: float) -> Level | None:
    """Return the level of a retention of recvq or the oplog; None where it is long enough."""
    if seconds >= WINDOW_WARN_SECONDS:
        return None
    return "warn" if seconds >= WINDOW_BAD_SECONDS else "bad"


def _windows(seen: Overview) -> Iterator[HealthProblem]:
    """The time for which recvq or the oplog still keeps unfinished events.

    A backlog that is handled quickly raises the rate for a while. A short retention is therefore
    critical only while the dispatcher is behind.
    """
    queue = seen.queue
    left = {"recvq": queue.recvq_left_seconds, "oplog": queue.oplog_left_seconds}
    for about, seconds in left.items():
        if seconds is not None and (level := window_level(seconds)) is not None:
            is_behind = (queue.behind_seconds or 0.0) > WAIT_WARN_SECONDS
            saw = _("retention left: {time} at the present rate").format(time=for_long(seconds))
            do = _("`linedesk doctor` shows how to enlarge it")
            yield HealthProblem(level if is_behind else "warn", about, saw, do)


def is_line_away(seen: Overview) -> bool:
    """Return whether sends wait because LINE fails or refuses the token."""
    return seen.token_refused or any(one.breaker_open for one in seen.gates)


def _line(seen: Overview) -> Iterator[HealthProblem]:
    count = seen.queue.outbox_effects
    waiting = unsent_words(count, seen.queue.oldest_send_seconds) if count else ""
    if seen.token_refused:
        yield token_refused(waiting)
        return
    for one in seen.gates:
        if one.breaker_open:
            saw = _("LINE fails ({host} host), {next_try}").format(
                host=one.host, next_try=next_try_words(one.next_try_seconds)
            )
            do = _("sends wait and are not lost; `linedesk calls --failed` lists the failures")
            is_first = one is seen.gates[0]
            yield HealthProblem("bad", "LINE", _also(saw, waiting if is_first else ""), do)
        else:
            yield from _gate(one)


def _also(saw: str, waiting: str) -> str:
    """Return a problem together with the sends that wait for its end, if there are any."""
    return _("{problem}; {waiting}").format(problem=saw, waiting=waiting) if waiting else saw


def token_refused(waiting: str = "") -> HealthProblem:
    """LINE answers 401; `waiting` describes the sends that wait for a new token."""
    do = _(
        "issue a new token in LINE's console (developers.line.biz, Messaging API), put it into "
        "the credentials and restart the dispatcher"
    )
    saw = _("LINE refuses LINE_CHANNEL_ACCESS_TOKEN")
    return HealthProblem("bad", "LINE", _also(saw, waiting), do)


def unsent_words(count: float, oldest_seconds: float | None) -> str:
    """Return how many answers wait for LINE, and for how long."""
    number = f"{count:,.0f}"
    if not oldest_seconds:
        return ngettext(
            "{count} answer waits to be sent", "{count} answers wait to be sent", round(count)
        ).format(count=number)
    return ngettext(
        "{count} answer waits to be sent, the oldest for {time}",
        "{count} answers wait to be sent, the oldest for {time}",
        round(count),
    ).format(count=number, time=for_long(oldest_seconds))


def next_try_words(seconds: float | None) -> str:
    """Return when LINE is called again while it fails."""
    if seconds is None:
        return _("linedesk tries a single call now and then")
    if seconds >= 1:
        return _("next try in {time}").format(time=for_long(seconds))
    return _("next try now")


def _gate(one: GateView) -> Iterator[HealthProblem]:
    """The cost of the gate's settings while the gate is busy and sends wait for a turn."""
    if (one.use or 0.0) < GATE_WARN_SHARE or not one.waiting or not one.turns_per_second:
        return
    # Both are of the last ten seconds.
    most = one.turns_per_second / (one.use or 1.0)
    saw = _(
        "{host}: {share} of the gate's turns are used, {calls} calls wait; the gate lets at "
        "most {most} calls a second pass, LINE allows {rate}"
    ).format(
        host=one.host,
        share=f"{one.use:.0%}",
        calls=f"{one.waiting:,.0f}",
        most=f"{most:,.3g}",
        rate=f"{RATE:,.0f}",
    )
    do = _(
        "raise LINE_CONCURRENCY for more calls at the same time, lower LINE_ACCESS_INTERVAL_MS "
        "for earlier starts, or make fewer calls; see docs/how-to/capacity.md"
    )
    yield HealthProblem("warn", "gate", saw, do)


def _quota(seen: Overview) -> Iterator[HealthProblem]:
    month = seen.quota
    if month is None or month.used is None or month.messages is None:
        return
    used, most = month.used, month.messages
    saw = _("{used} of {most} messages are used this month").format(
        used=f"{used:,.0f}", most=f"{most:,.0f}"
    )
    if month.closed_since is not None:
        do = _(
            "pushes become dead letters until the month ends in Japan; replies are free; raise the "
            "plan in LINE's console, then run `linedesk dead replay --cause quota`"
        )
        since = _("LINE takes no push since {at}: {used}").format(
            at=local(month.closed_since), used=saw
        )
        yield HealthProblem("bad", "quota", since, do)
    elif used >= QUOTA_WARN_SHARE * most:
        do = _(
            "pushes beyond it become dead letters until the month's end; replies are free; raise "
            "the plan in LINE's console"
        )
        yield HealthProblem("bad" if used >= QUOTA_BAD_SHARE * most else "warn", "quota", saw, do)


def sent_words(sent: Sent) -> str:
    """Return what LINE accepted, by kind."""
    words = _("replies {replies} (free), pushes {pushes}, groups {groups}")
    return words.format(**{kind: f"{count:,}" for kind, count in vars(sent).items()})


def _pauses(seen: Overview) -> Iterator[HealthProblem]:
    for row in seen.pauses:
        saw = " ".join(filter(None, [seen.name_of(row), scope_words(row["channel"], row["key"])]))
        if isinstance(row["at"], datetime):
            saw = _("{scope} since {at}").format(scope=saw, at=local(row["at"]))
        if row["by"]:
            saw = _("{pause} by {name}").format(pause=saw, name=row["by"])
        if row["why"]:
            saw = _("{pause}: {reason}").format(pause=saw, reason=row["why"])
        do = _("new events are held until you resume: `linedesk resume {scope}`")
        level: Level = "bad" if row["everything"] else "warn"
        yield HealthProblem(level, "paused", saw, do.format(scope=row["scope"]))


def _waiting(seen: Overview) -> Iterator[HealthProblem]:
    """One problem for all conversations that wait too long, with the reason of the longest wait.

    Paused conversations do not count.
    """
    waited = [
        (_waited(row, seen.at), row)
        for row in seen.waiting
        if code_of(row.get("why")) != Why.PAUSED and _waited(row, seen.at) > WAIT_BAD_SECONDS
    ]
    if not waited:
        return
    seconds, first = max(waited, key=lambda one: one[0])
    scope, why = f"{first.get('channel')}/{first.get('key')}", first.get("why")
    saw = _("{scope} waits for {time}: {reason}").format(
        scope=scope, time=for_long(seconds), reason=known(why) if why else _("no reason known")
    )
    do = _(
        "`linedesk conversation show {scope}` shows details; `linedesk release {scope}` gives up "
        "the stuck event or send"
    )
    # A conversation may wait with an event and with a send.
    count = len({(row.get("channel"), row.get("key")) for _seconds, row in waited})
    yield HealthProblem("warn", "waiting", _and_more(saw, count), do.format(scope=scope))


def _and_more(first: str, count: int) -> str:
    """Return the first of so many, with the number of the others."""
    if count < 2:
        return first
    return _("{first} (and {count} more)").format(first=first, count=count - 1)


def _waited(row: Mapping[str, Any], now: datetime) -> float:
    since = row.get("since")
    return (now - since).total_seconds() if isinstance(since, datetime) else 0.0


def _dead_letters(seen: Overview) -> Iterator[HealthProblem]:
    """The dead letters of LETTERS_WITHIN that were not replayed."""
    if seen.letters_lately > LETTERS_WARN_COUNT:
        do = _("`linedesk dead list --since 1d` lists them with their causes; replay or drop them")
        saw = _("{count} in the last 24 h, not replayed").format(count=f"{seen.letters_lately:,}")
        yield HealthProblem("warn", "dead letters", saw, do)


def _abandoned(seen: Overview) -> Iterator[HealthProblem]:
    if seen.threads.abandoned:
        saw = ngettext(
            "{count} handler has not returned since the start",
            "{count} handlers have not returned since the start",
            round(seen.threads.abandoned),
        ).format(count=f"{seen.threads.abandoned:,.0f}")
        do = _("the log names them; the dispatcher restarts once all its threads are lost")
        yield HealthProblem("warn", "threads", saw, do)


def _timers(seen: Overview) -> Iterator[HealthProblem]:
    late = -(seen.figures[processes.DISPATCHER].number("nextTimerSeconds") or 0.0)
    if late > TIMER_BAD_SECONDS:
        saw = _("the next timer is late by {time}").format(time=for_long(late))
        yield HealthProblem("bad", "timers", saw, _reason(processes.DISPATCHER))


def _front_desk(seen: Overview) -> Iterator[HealthProblem]:
    desk = seen.figures[processes.FRONTDESK]
    refused = sum(desk.rate("refusedRequests", reason) or 0.0 for reason in REFUSED_REASONS)
    slow = desk.rate("refusedRequests", "slow") or 0.0
    if refused > REFUSED_BAD_PER_SECOND or slow > SLOW_BAD_PER_SECOND:
        saw = _("{rate} webhooks a second are refused and may be lost").format(
            rate=f"{refused + slow:.1f}"
        )
        do = _("its log shows the reasons; store: check both disks; overload: add a front desk")
        yield HealthProblem("bad", processes.FRONTDESK, saw, do)
    if desk.rate("refusedRequests", "signature"):
        saw = _("requests with a wrong signature are refused")
        do = _("check that LINE_CHANNEL_SECRET belongs to this channel")
        yield HealthProblem("warn", processes.FRONTDESK, saw, do)
    ends = desk.number("certificateEndsSeconds")
    left = None if ends is None else timedelta(seconds=ends - seen.at.timestamp())
    if left is not None and (problem := certificate(left)) is not None:
        yield problem


def certificate(left: timedelta) -> HealthProblem | None:
    """The remaining life of the front desk's certificate."""
    seconds = left.total_seconds()
    if seconds >= CERTIFICATE_WARN_SECONDS:
        return None
    if seconds <= 0:
        do = _("LINE sends no webhooks: {renew}").format(renew=_(RENEW))
        return HealthProblem("bad", "certificate", _("the certificate has expired"), do)
    saw = _("the certificate expires in {time}").format(time=for_long(seconds))
    level: Level = "bad" if seconds < CERTIFICATE_BAD_SECONDS else "warn"
    return HealthProblem(level, "certificate", saw, _(RENEW))
