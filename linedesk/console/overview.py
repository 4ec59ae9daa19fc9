"""The overview: what comes and goes, what waits and why, and which processes run.

It costs a handful of small or indexed reads, however much recvq holds: the figures are those that
the processes write to `status` once a second. What of it is a problem `linedesk.console.health`
says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from jobworker.line.gate_order import TurnClass
from jobworker.line.today import midnight
from jobworker.record.dead_letters import MOST_COUNTED
from jobworker.sending.late_replies import LATE
from linedesk.console import dead_letters, processes
from linedesk.console.calls import LISTED
from linedesk.console.conversation import known_channels, names_of
from linedesk.console.format import as_json
from linedesk.console.processes import Process, ProcessRow, Row, WorkersView, workers_of
from linedesk.console.reading import reported
from linedesk.runtime.metrics import LATELY_SECONDS
from linedesk.store.control import Pause
from linedesk.store.documents import (
    CALLS,
    CONTROL,
    CONVERSATIONS,
    DEADLETTERS,
    LEASES,
    STATUS,
    Document,
)
from linedesk.store.errors import translated
from linedesk.store.records.calls import is_taken
from linedesk.store.records.control import DONE_AT
from linedesk.store.records.letters import LAST_AT, REPLAYED_AT


@dataclass(frozen=True)
class Rates:
    """The way of the events, in events a second; None where no process reports it."""

    accepted: float | None
    duplicates: float | None
    refused: float | None
    spooled: float | None
    read: float | None
    finished: float | None
    decided: float | None
    failed: float | None
    calls: float | None
    fired: float | None
    replayed: float


@dataclass(frozen=True)
class Queue:
    """What is stored and not finished; None where no dispatcher leads."""

    documents: float | None
    """Unread, in hand and held."""
    oldest_seconds: float | None
    behind_seconds: float | None
    """Age of the oldest one that is not in `held`."""
    lag_documents: float | None
    lag_seconds: float | None
    in_hand: float | None
    held: float | None
    held_keys: float | None
    outbox_effects: float | None
    oldest_send_seconds: float | None
    """Since the event of the decided send that has waited longest; 0 where none waits."""
    unread_share: float | None
    is_closed: bool
    """recvq takes no inserts."""
    recvq_left_seconds: float | None
    oplog_left_seconds: float | None
    retention_measured_seconds: float | None
    """Both are by the rate of so much of the last hour."""


@dataclass(frozen=True)
class Latency:
    """How long something took in the last minute, in seconds."""

    name: str
    """store, wait, handler, call, gate, ring or save."""
    label: str
    """The endpoint of a call, the host of a gate; else empty."""
    count: int
    p50: float | None
    p90: float | None
    p99: float | None
    largest: float | None = None
    """The largest value of that minute; None where an older release wrote the row."""


@dataclass(frozen=True)
class ThreadsView:
    """The dispatcher's pool."""

    all: float | None
    busy: float | None
    abandoned: float | None
    doing: list[Document]
    """Of the busy ones: name, doing, eventId, channel, key, since, try, arrivedAt; the longest
    first.
    """
    handler_tries: float | None = None
    """HANDLER_TRIES of the dispatcher that leads."""


@dataclass(frozen=True)
class ClassView:
    """What waits at a gate in one class of urgency."""

    name: str
    """live, chat, other or idle."""
    waiting: float
    longest_seconds: float | None
    """How long the one has waited that came first."""


@dataclass(frozen=True)
class CallsView:
    """Of the newest calls of LINE those of the last minute."""

    count: int
    failed: int
    """LINE refused them, or did not answer."""

    @property
    def all_failed(self) -> bool:
        """Whether there were any, and LINE took none of them."""
        return 0 < self.count == self.failed


@dataclass(frozen=True)
class SentView:
    """Calls of the last minute that LINE took and that brought messages, and what they carried."""

    calls: float
    sends: float


@dataclass(frozen=True)
class GateView:
    """One host of LINE."""

    host: str
    use: float | None
    """The share of the last ten seconds in which it was busy or kept its interval."""
    waiting: float | None
    turns_per_second: float | None
    breaker_open: bool
    """LINE fails: nothing is called but a single call now and then."""
    classes: list[ClassView]
    next_try_seconds: float | None = None
    """While LINE fails: until that call may begin; None where that is not known."""


@dataclass(frozen=True)
class QuotaView:
    """Counted messages of this month."""

    messages: float
    used: float | None
    closed_since: datetime | None = None
    """Since when LINE takes no push any more; None while it does."""

    @property
    def share(self) -> float | None:
        """How much of it is used, 0 to 1."""
        return None if self.used is None or not self.messages else self.used / self.messages


@dataclass(frozen=True)
class SpoolView:
    """What waits outside of MongoDB, on the host where most does."""

    documents: float
    bytes: float
    oldest_seconds: float | None
    max_bytes: float | None
    is_available: bool = True
    """Whether it would take documents, on every host."""


@dataclass(frozen=True)
class LetterCause:
    """Dead letters that were not replayed, of one cause."""

    cause: str
    explained: str
    count: int
    lately: int
    """Those of the last day."""
    last_at: datetime | None


def rates(figures: Mapping[str, ProcessRow], *, replayed: float) -> Rates:
    desk, dispatcher = figures[processes.FRONTDESK], figures[processes.DISPATCHER]
    return Rates(
        accepted=desk.rate("acceptedEvents"),
        duplicates=desk.rate("duplicateEvents"),
        refused=desk.rate("refusedRequests"),
        spooled=desk.rate("spooledEvents"),
        read=dispatcher.rate("readDocuments"),
        finished=dispatcher.rate("finishedDocuments"),
        decided=dispatcher.rate("decidedEvents"),
        failed=dispatcher.rate("failedHandlers"),
        calls=dispatcher.rate("calls"),
        fired=figures[processes.SCHEDULER].rate("rungTimers"),
        replayed=replayed,
    )


def queue(dispatcher: ProcessRow, desk: ProcessRow) -> Queue:
    share = dispatcher.number("recvqUnreadShare")
    return Queue(
        documents=dispatcher.number("queueDocuments"),
        oldest_seconds=dispatcher.number("oldestUnfinishedSeconds"),
        behind_seconds=dispatcher.number("behindSeconds"),
        lag_documents=dispatcher.number("lagDocuments"),
        lag_seconds=dispatcher.number("lagSeconds"),
        in_hand=dispatcher.number("inHandDocuments"),
        held=dispatcher.number("heldDocuments"),
        held_keys=dispatcher.number("heldKeys"),
        outbox_effects=dispatcher.number("outboxEffects"),
        oldest_send_seconds=dispatcher.number("oldestSendSeconds"),
        # Without a dispatcher the front desk's guard still looks.
        unread_share=share if share is not None else desk.number("recvqUnreadShare"),
        is_closed=bool(desk.number("recvqClosed")),
        recvq_left_seconds=dispatcher.number("recvqLeftSeconds"),
        oplog_left_seconds=dispatcher.number("oplogLeftSeconds"),
        retention_measured_seconds=dispatcher.number("retentionMeasuredSeconds"),
    )


TIMED = (
    (processes.FRONTDESK, "store", "storeSeconds"),
    (processes.DISPATCHER, "wait", "waitSeconds"),
    (processes.DISPATCHER, "handler", "handlerSeconds"),
    (processes.DISPATCHER, "gate", "gateWaitSeconds"),
    (processes.DISPATCHER, "call", "callSeconds"),
    (processes.DISPATCHER, "save", "saveSeconds"),
    (processes.SCHEDULER, "ring", "ringLateSeconds"),
)


def latencies(figures: Mapping[str, ProcessRow]) -> list[Latency]:
    found = []
    for role, name, figure in TIMED:
        lately = figures[role].lately.get(figure)
        if isinstance(lately, Mapping):
            labelled = {"": lately} if "count" in lately else lately
            found += [_latency(name, label, one) for label, one in sorted(labelled.items())]
    return found


def _latency(name: str, label: str, lately: Row) -> Latency:
    count = processes.number_at(lately, ("count",)) or 0
    parts = ("p50", "p90", "p99", "max")
    return Latency(name, label, int(count), *(processes.number_at(lately, (one,)) for one in parts))


def threads(dispatcher: ProcessRow, row: Row) -> ThreadsView:
    return ThreadsView(
        all=dispatcher.number("threads"),
        busy=dispatcher.number("busyThreads"),
        abandoned=dispatcher.number("abandonedThreads"),
        doing=processes.listed(row, "threads"),
        handler_tries=processes.number_at(row, ("handlerTries",)),
    )


def latest_calls(rows: Sequence[Row], now: datetime) -> CallsView:
    """Those of the last minute among `rows`, the newest calls."""
    lately = [row for row in rows if _is_lately(row.get("at"), now)]
    failed = sum(not is_taken(row.get("status")) for row in lately)
    return CallsView(len(lately), failed)


def _is_lately(at: Any, now: datetime) -> bool:
    return isinstance(at, datetime) and (now - at).total_seconds() <= LATELY_SECONDS


def gates(dispatcher: ProcessRow, *, age_seconds: float = 0.0) -> list[GateView]:
    """The hosts of LINE; `age_seconds` is how long ago the row was written."""
    hosts: list[str] = []
    for name in ("gateUse", "gateWaiting", "breakerOpen"):
        found = dispatcher.figures.get(name)
        hosts += [one for one in found if one not in hosts] if isinstance(found, Mapping) else []
    return [
        GateView(
            host=host,
            use=dispatcher.number("gateUse", host),
            waiting=dispatcher.number("gateWaiting", host),
            turns_per_second=dispatcher.rate("gateTurns", host),
            breaker_open=bool(dispatcher.number("breakerOpen", host)),
            classes=[
                ClassView(
                    name=one.word,
                    waiting=dispatcher.number("gateClassWaiting", host, one.word) or 0,
                    longest_seconds=dispatcher.number("gateClassLongestSeconds", host, one.word),
                )
                for one in TurnClass
            ],
            next_try_seconds=_next_try(dispatcher, host, age_seconds),
        )
        for host in hosts
    ]


def _next_try(dispatcher: ProcessRow, host: str, age_seconds: float) -> float | None:
    pause = dispatcher.number("breakerPauseSeconds", host)
    is_held = dispatcher.number("breakerOpen", host) or dispatcher.number("tokenRefused")
    return max(0.0, pause - age_seconds) if pause is not None and is_held else None


def sent(dispatcher: ProcessRow) -> SentView:
    by_endpoint = dispatcher.lately.get("callSends")
    found = list(by_endpoint.values()) if isinstance(by_endpoint, Mapping) else []

    def all_of(part: str) -> float:
        return sum(processes.number_at(one, (part,)) or 0 for one in found)

    return SentView(calls=all_of("count"), sends=all_of("sum"))


def quota(dispatcher: ProcessRow) -> QuotaView | None:
    messages = dispatcher.number("quotaMessages")
    if messages is None:
        return None
    since = closed_since(dispatcher)
    return QuotaView(messages, dispatcher.number("quotaUsedMessages"), since)


def closed_since(dispatcher: ProcessRow) -> datetime | None:
    """Since when the dispatcher makes no pushes, as all messages of the month are used."""
    seconds = dispatcher.number("quotaClosedSinceSeconds")
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        # A row that was typed by hand.
        return None


def spool(desk: ProcessRow) -> SpoolView | None:
    documents = desk.number("spoolDocuments")
    if documents is None:
        return None
    return SpoolView(
        documents=documents,
        bytes=desk.number("spoolBytes") or 0,
        oldest_seconds=desk.number("spoolOldestSeconds"),
        max_bytes=desk.number("spoolMaxBytes"),
        is_available=desk.number("spoolAvailable") != 0,
    )


READ_SECONDS = 5.0
NEWEST_CALLS = 20
NEWEST_LETTERS = 10
# So many letters are counted by their cause; of more, the numbers are those of the newest.
MOST_LETTERS = MOST_COUNTED
BY_LAST_AT = "lastAt_cause"
LATELY = timedelta(days=1)
REPLAYS_WITHIN = timedelta(minutes=1)
MOST_REPLAYS = 1_000
MOST_LATE = 1_000
MOST_ROWS = 200
MOST_PAUSES = 1_000
# Of jobs that workers have, the conversations of so many are named.
MOST_JOBS = 100


@dataclass(frozen=True)
class Overview:
    """One look at everything."""

    at: datetime
    processes: list[Process]
    scheduler_asked: bool | None
    """Whether the dispatcher's setting asks for a scheduler of its own; None: it does not tell."""
    rates: Rates
    queue: Queue
    latencies: list[Latency]
    threads: ThreadsView
    waiting: list[Document]
    """The keys that wait longest: channel, key, documents, held, why, since, eventId, try and
    trySince. `since` is when the event arrived.
    """
    waiting_keys: Document
    """How many keys rest although they have documents, by why: held, paused, again, save."""
    gates: list[GateView]
    token_refused: bool
    sent: SentView
    counted_today: float | None
    """Messages that LINE has counted since midnight in Japan, as far as is known."""
    late_today: int
    """Late replies given up since then; MOST_LATE or more are told as MOST_LATE."""
    quota: QuotaView | None
    spool: SpoolView | None
    pauses: list[Document]
    """What is ordered: channel, key, scope (`main/U…`, `main` or `all`), by, why, at."""
    obeyed: list[Document] | None
    """The pauses that the dispatcher obeys just now; None where no dispatcher leads."""
    calls: list[Document]
    """The newest rows of `calls`, the newest first."""
    latest_calls: CallsView
    letters: list[Document]
    """The newest dead letters that were not replayed (`linedesk.console.dead_letters.summary`)."""
    letters_lately: int
    """Those of the last day."""
    letters_open: int
    """All that were not replayed; at most MOST_LETTERS are counted."""
    causes: list[LetterCause]
    """The same by cause, the most frequent first."""
    workers: WorkersView | None = None
    """None where handlers run on the dispatcher's threads, or no dispatcher leads."""
    is_initialised: bool = True
    """Whether the database has what `linedesk init` makes."""
    figures: dict[str, ProcessRow] = field(default_factory=dict)
    """All that the rows tell, by role."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Names in LINE of the conversations in it, by `<channel>/<key>`, as far as they are known."""

    def name_of(self, row: Mapping[str, Any], *, channel: str | None = None) -> str | None:
        """The name that belongs to a row; `channel` is that of a row that has none."""
        return self.names.get(f"{row.get('channel') or channel}/{row.get('key')}")

    def as_json(self) -> Document:
        """The same for programs; seconds and bytes, times with their zone.

        Each conversation has its `name`; null where that is not known.
        """
        told: Document = as_json(replace(self, names={}))
        del told["names"]
        for rows in (told["waiting"], told["threads"]["doing"], told["letters"]):
            rows[:] = [{**row, "name": self.name_of(row)} for row in rows]
        return told


@dataclass(frozen=True)
class Read:
    """What was read of the database for one overview."""

    rows: list[Document]
    pauses: list[Document]
    calls: list[Document]
    letters: list[Document]
    """The newest that were not replayed."""
    replays: int
    late: int = 0
    channels: Sequence[str] = ()
    """Those of all conversations, where a whole channel is paused."""
    causes: Sequence[Document] = ()
    """Those that were not replayed, by cause: _id, count, lately, lastAt."""
    is_initialised: bool = True


def read_overview(
    database: Database[Any],
    *,
    channel: str | None = None,
    now: datetime | None = None,
    seconds: float = READ_SECONDS,
) -> Overview:
    """Look at everything once, within so many seconds. Raises StoreUnavailable.

    `channel` is that of the calls, whose rows name none.
    """
    now = now or datetime.now(UTC)
    with translated(), pymongo.timeout(seconds):
        seen = put_together(_read(database, now), now=now)
        shown = [*seen.waiting, *seen.threads.doing, *seen.letters, *seen.pauses]
        shown += seen.workers.jobs[:MOST_JOBS] if seen.workers is not None else []
        ids = {f"{row.get('channel')}/{row.get('key')}" for row in shown}
        ids |= {f"{channel}/{row.get('key')}" for row in seen.calls}
        return replace(seen, names=names_of(database, ids))


def _read(database: Database[Any], now: datetime) -> Read:
    found = database[DEADLETTERS]
    replayed = {REPLAYED_AT: {"$gte": now - REPLAYS_WITHIN}}
    (letters,) = found.aggregate(_open_letters(now))
    if sum(one["count"] for one in letters["causes"]) >= MOST_LETTERS:
        # The index of `replayedAt` has the oldest first; the newest are what an alarm is about.
        (letters,) = found.aggregate(_open_letters(now, {"$sort": {LAST_AT: -1}}), hint=BY_LAST_AT)
    pauses = list(database[CONTROL].find({DONE_AT: None}).limit(MOST_PAUSES))
    is_wide = any(row.get("channel") and not row.get("key") for row in pauses)
    return Read(
        rows=list(reported(database, STATUS).find({}).limit(MOST_ROWS)),
        pauses=pauses,
        channels=list(known_channels(database[CONVERSATIONS])) if is_wide else (),
        calls=list(
            reported(database, CALLS).find({}, LISTED).sort("$natural", -1).limit(NEWEST_CALLS)
        ),
        letters=letters["newest"],
        causes=letters["causes"],
        replays=found.count_documents(replayed, limit=MOST_REPLAYS),
        late=found.count_documents(
            {LAST_AT: {"$gte": midnight(now)}, "cause": LATE}, limit=MOST_LATE
        ),
        is_initialised=database[LEASES].find_one({"_id": "dispatcher"}, {"_id": 1}) is not None,
    )


def _open_letters(now: datetime, *order: Document) -> list[Document]:
    """The letters that were not replayed, by the index of `replayedAt` or in another order."""
    is_lately = {"$gte": [f"${LAST_AT}", now - LATELY]}
    by_cause = {
        "_id": "$cause",
        "count": {"$sum": 1},
        "lately": {"$sum": {"$cond": [is_lately, 1, 0]}},
        LAST_AT: {"$max": f"${LAST_AT}"},
    }
    return [
        {"$match": {REPLAYED_AT: None}},
        *order,
        {"$limit": MOST_LETTERS},
        {"$project": dict.fromkeys(dead_letters.LISTED, 1)},
        {
            "$facet": {
                "newest": [{"$sort": {LAST_AT: -1}}, {"$limit": NEWEST_LETTERS}],
                "causes": [{"$group": by_cause}, {"$sort": {"count": -1, "_id": 1}}],
            }
        },
    ]


def put_together(read: Read, *, now: datetime) -> Overview:
    """An overview of what was read. Pure."""
    found = [processes.process_of(row, now=now) for row in read.rows]
    asked = processes.asks_for_scheduler(read.rows)
    fresh = [row for row, one in zip(read.rows, found, strict=True) if one.is_fresh]
    leader = processes.leading(fresh)
    figures = _figures(fresh, leader)
    dispatcher, desk = figures[processes.DISPATCHER], figures[processes.FRONTDESK]
    causes = [_cause(row) for row in read.causes]
    row = leader or {}
    return Overview(
        at=now,
        processes=[
            one
            for one in processes.that_count(found)
            if one.is_fresh or one.role != processes.SCHEDULER or asked is not False
        ],
        scheduler_asked=asked,
        rates=rates(figures, replayed=read.replays / REPLAYS_WITHIN.total_seconds()),
        queue=queue(dispatcher, desk),
        latencies=latencies(figures),
        threads=threads(dispatcher, row),
        workers=workers_of(row, dispatcher),
        waiting=processes.listed(row, "waiting"),
        waiting_keys=dict(dispatcher.figures.get("waitingKeys") or {}),
        gates=gates(dispatcher, age_seconds=_age(row, now)),
        token_refused=bool(dispatcher.number("tokenRefused")),
        sent=sent(dispatcher),
        counted_today=dispatcher.number("countedTodayMessages"),
        late_today=read.late,
        quota=quota(dispatcher),
        spool=spool(desk),
        pauses=[
            pause_row(one, channels=read.channels)
            for row in read.pauses
            if (one := Pause.from_row(row))
        ],
        obeyed=processes.listed(row, "paused") if leader is not None else None,
        calls=read.calls,
        latest_calls=latest_calls(read.calls, now),
        letters=[dead_letters.summary(one) for one in read.letters[:NEWEST_LETTERS]],
        letters_lately=sum(one.lately for one in causes),
        letters_open=sum(one.count for one in causes),
        causes=causes,
        is_initialised=read.is_initialised,
        figures=figures,
    )


def _age(row: Row, now: datetime) -> float:
    at = row.get("at")
    return max(0.0, (now - at).total_seconds()) if isinstance(at, datetime) else 0.0


def _cause(row: Row) -> LetterCause:
    cause, at = row.get("_id"), row.get(LAST_AT)
    return LetterCause(
        cause="-" if cause is None else str(cause),
        explained="-" if cause is None else dead_letters.explained(cause),
        count=row["count"],
        lately=row["lately"],
        last_at=at if isinstance(at, datetime) else None,
    )


def pause_row(pause: Pause, *, channels: Sequence[str] = ()) -> Document:
    """A pause as a row of `Overview.pauses`; that of the only channel is one of everything."""
    scope = pause.scope
    is_all = scope.key is None and (scope.channel is None or set(channels) == {scope.channel})
    order = {"by": pause.by, "why": pause.why, "at": pause.at}
    return {
        "channel": scope.channel,
        "key": scope.key,
        "scope": str(scope),
        "everything": is_all,
        **order,
    }


def _figures(fresh: Sequence[Row], leader: Row | None) -> dict[str, ProcessRow]:
    """By role. Where the scheduler runs within the dispatcher, that one's row tells its figures."""
    by_role = {role: [row for row in fresh if row.get("role") == role] for role in processes.ROLES}
    led = [leader] if leader is not None else []
    return {
        processes.FRONTDESK: processes.combined(by_role[processes.FRONTDESK]),
        processes.DISPATCHER: processes.combined(led),
        processes.SCHEDULER: processes.combined(
            by_role[processes.SCHEDULER][:1] or [processes.of_scheduler(leader or {})]
        ),
    }
