"""The overview: rates, waiting conversations with their reasons, and running processes.

An overview costs a handful of small or indexed reads, however much recvq holds: the processes write
their figures to `status` once a second. `linedesk.operate.health` finds the problems in it. An
overview is data: its texts are English.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeVar

import pymongo
from pymongo.database import Database

from linedesk.operate import processes
from linedesk.operate.calls import LISTED
from linedesk.operate.conversation import known_channels, names_of
from linedesk.operate.format import as_json
from linedesk.operate.processes import Process, ProcessRow, Row, WorkersView, workers_of
from linedesk.operate.reading import newest_rows, reported
from linedesk.operate.text import known
from linedesk.runtime.metrics import LATELY_SECONDS
from linedesk.store.control import DONE_AT, PAUSE, Pause
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
from linedesk.store.limits import TOKYO, midnight, sent_id
from linedesk.store.records.calls import is_taken
from linedesk.store.records.letters import LAST_AT, MOST_COUNTED, REPLAYED_AT, Cause

View = TypeVar("View")


def _figure(name: str) -> Any:
    """A field of a view: a figure of the processes; None where none reports it."""
    return field(default=None, metadata={"figure": name})


def _rate(name: str) -> Any:
    """A field of a view: a rate a second of the processes; None where none reports it."""
    return field(default=None, metadata={"rate": name})


def _view(kind: Callable[..., View], row: ProcessRow, **others: Any) -> View:
    """Return the view with the figures that its fields name."""
    found = {one.name: one.metadata for one in fields(kind)}  # type: ignore[arg-type]
    figures = {name: row.number(of["figure"]) for name, of in found.items() if "figure" in of}
    rates = {name: row.rate(of["rate"]) for name, of in found.items() if "rate" in of}
    return kind(**figures, **rates, **others)


@dataclass(frozen=True)
class Rates:
    """The rates of the events on their way, a second."""

    accepted: float | None = _rate("acceptedEvents")
    refused: float | None = _rate("refusedRequests")
    spooled: float | None = _rate("spooledEvents")
    read: float | None = _rate("readDocuments")
    decided: float | None = _rate("decidedEvents")
    failed: float | None = _rate("failedHandlers")
    calls: float | None = _rate("calls")
    fired: float | None = _rate("rungTimers")


@dataclass(frozen=True)
class Queue:
    """The unfinished events; None where no dispatcher is the leader."""

    documents: float | None = _figure("queueDocuments")
    """Unread, in progress and held."""
    oldest_seconds: float | None = _figure("oldestUnfinishedSeconds")
    behind_seconds: float | None = _figure("behindSeconds")
    """Age of the oldest event that is not in `held`."""
    unpaused_seconds: float | None = _figure("unpausedOldestSeconds")
    """Age of the oldest event that is not paused."""
    lag_documents: float | None = _figure("lagDocuments")
    lag_seconds: float | None = _figure("lagSeconds")
    in_hand: float | None = _figure("inHandDocuments")
    held: float | None = _figure("heldDocuments")
    held_keys: float | None = _figure("heldKeys")
    outbox_effects: float | None = _figure("outboxEffects")
    oldest_send_seconds: float | None = _figure("oldestSendSeconds")
    """Age of the event whose decided send has waited longest; 0 where none waits."""
    unread_share: float | None = _figure("recvqUnreadShare")
    """Without a dispatcher the front desk's guard still measures it."""
    is_closed: bool = False
    """recvq takes no inserts."""
    recvq_left_seconds: float | None = _figure("recvqLeftSeconds")
    oplog_left_seconds: float | None = _figure("oplogLeftSeconds")
    retention_measured_seconds: float | None = _figure("retentionMeasuredSeconds")
    """The part of the last hour in which the rate of both was measured."""


@dataclass(frozen=True)
class Latency:
    """The durations of one kind of step in the last minute, in seconds."""

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

    all: float | None = _figure("threads")
    busy: float | None = _figure("busyThreads")
    abandoned: float | None = _figure("abandonedThreads")
    doing: Sequence[Document] = ()
    """The busy threads: name, doing, eventId, channel, key, since, try, arrivedAt; the longest
    first.
    """
    handler_tries: float | None = None
    """HANDLER_TRIES of the leader."""


@dataclass(frozen=True)
class CallsView:
    """The calls of the last minute among the newest calls of LINE."""

    count: int
    failed: int
    """LINE refused them, or did not answer."""

    @property
    def all_failed(self) -> bool:
        """Return whether there were calls and LINE took none of them."""
        return 0 < self.count == self.failed


@dataclass(frozen=True)
class Sent:
    """Sends of a month that LINE accepted. LINE's own count may differ."""

    replies: int = 0
    """Calls, which are free."""
    pushes: int = 0
    """Messages counted for pushes to users and multicasts: one for each user."""
    groups: int = 0
    """Messages counted for pushes to groups and rooms: one for each member, as far as known."""


def sent_in(document: Mapping[str, Any]) -> Sent:
    """Return the sum of a month's document."""
    parts = [part for part in document.values() if isinstance(part, Mapping)]
    return Sent(*(sum(part.get(one.name, 0) for part in parts) for one in fields(Sent)))


@dataclass(frozen=True)
class GateView:
    """One host of LINE."""

    host: str
    use: float | None
    """The share of the last ten seconds in which it was busy or kept its interval."""
    waiting: float | None
    turns_per_second: float | None
    breaker_open: bool
    """LINE fails: linedesk makes only a single call now and then."""
    next_try_seconds: float | None = None
    """While LINE fails: the time until that call may begin; None where it is not known."""


@dataclass(frozen=True)
class QuotaView:
    """Counted messages of this month."""

    messages: float | None = _figure("quotaMessages")
    """The plan's limit; None for a plan without a limit."""
    used: float | None = _figure("quotaUsedMessages")
    """LINE's count and what was sent since."""
    closed_since: datetime | None = None
    """When LINE began to refuse pushes; None while it takes them."""
    ends_on: str | None = None
    """Japan's day on which the plan ends at the rate of this month; None if it lasts."""


@dataclass(frozen=True)
class SpoolView:
    """The events in the spool, on the host with the most of them."""

    documents: float | None = _figure("spoolDocuments")
    bytes: float | None = _figure("spoolBytes")
    oldest_seconds: float | None = _figure("spoolOldestSeconds")
    max_bytes: float | None = _figure("spoolMaxBytes")
    is_available: bool = True
    """Whether the spool of every host can take documents."""


TIMED = {
    "store": "storeSeconds",
    "wait": "waitSeconds",
    "handler": "handlerSeconds",
    "gate": "gateWaitSeconds",
    "call": "callSeconds",
    "save": "saveSeconds",
    "ring": "ringLateSeconds",
}


def _latencies(row: ProcessRow) -> Iterator[Latency]:
    for name, figure in TIMED.items():
        lately = row.lately.get(figure)
        if isinstance(lately, Mapping):
            labelled = {"": lately} if "count" in lately else lately
            yield from (_latency(name, label, one) for label, one in sorted(labelled.items()))


def _latency(name: str, label: str, lately: Row) -> Latency:
    count = processes.number_at(lately, ("count",)) or 0
    parts = ("p50", "p90", "p99", "max")
    return Latency(name, label, int(count), *(processes.number_at(lately, (one,)) for one in parts))


def _latest_calls(rows: Sequence[Row], now: datetime) -> CallsView:
    """Return the calls of the last minute among `rows`, the newest calls."""
    lately = [row for row in rows if _age(row, now, unknown=float("inf")) <= LATELY_SECONDS]
    failed = sum(not is_taken(row.get("status")) for row in lately)
    return CallsView(len(lately), failed)


def _age(row: Row, now: datetime, *, unknown: float = 0.0) -> float:
    at = row.get("at")
    return max(0.0, (now - at).total_seconds()) if isinstance(at, datetime) else unknown


def _gates(row: ProcessRow, *, age_seconds: float) -> list[GateView]:
    """Return the hosts of LINE; `age_seconds` is the age of the row."""
    hosts: dict[str, None] = {}
    for name in ("gateUse", "gateWaiting", "breakerOpen"):
        found = row.figures.get(name)
        hosts |= dict.fromkeys(found) if isinstance(found, Mapping) else {}
    return [
        GateView(
            host=host,
            use=row.number("gateUse", host),
            waiting=row.number("gateWaiting", host),
            turns_per_second=row.rate("gateTurns", host),
            breaker_open=bool(row.number("breakerOpen", host)),
            next_try_seconds=_next_try(row, host, age_seconds),
        )
        for host in hosts
    ]


def _next_try(row: ProcessRow, host: str, age_seconds: float) -> float | None:
    pause = row.number("breakerPauseSeconds", host)
    is_held = row.number("breakerOpen", host) or row.number("tokenRefused")
    return max(0.0, pause - age_seconds) if pause is not None and is_held else None


def ends_on(used: float, limit: float, now: datetime) -> date | None:
    """Return Japan's day on which the plan ends at the rate of this month so far.

    None if it lasts or has ended, and in the month's first day.
    """
    today = now.astimezone(TOKYO)
    begun = midnight(now).replace(day=1)
    if not 0 < used < limit or today - begun < timedelta(days=1):
        return None
    # No month has more days: a low rate could reach beyond the calendar.
    ends = begun + (today - begun) * min(limit / used, 31)
    return ends.date() if (ends.year, ends.month) == (today.year, today.month) else None


def _quota(row: ProcessRow, now: datetime) -> QuotaView | None:
    """Return the month's messages; None if a dispatcher reports none."""
    found = _view(QuotaView, row, closed_since=_closed_since(row))
    if found.used is None:
        return None if found.messages is None else found
    ends = None if found.messages is None else ends_on(found.used, found.messages, now)
    return replace(found, ends_on=str(ends) if ends else None)


def _closed_since(row: ProcessRow) -> datetime | None:
    """Return when the dispatcher stopped pushes because the month's messages are used up."""
    seconds = row.number("quotaClosedSinceSeconds")
    try:
        return None if seconds is None else datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        # A row that was typed by hand.
        return None


def _spool(row: ProcessRow) -> SpoolView | None:
    found = _view(SpoolView, row, is_available=row.number("spoolAvailable") != 0)
    return None if found.documents is None else found


READ_SECONDS = 5.0
NEWEST_CALLS = 20
# At most so many letters are counted by cause: the newest.
MOST_LETTERS = MOST_COUNTED
BY_LAST_AT = "lastAt_cause"
LATELY = timedelta(days=1)
MOST_ROWS = 200
MOST_PAUSES = 1_000
# The conversations of so many jobs get their names.
MOST_JOBS = 100


@dataclass(frozen=True)
class Overview:
    """One reading of everything."""

    at: datetime
    processes: list[Process]
    rates: Rates
    queue: Queue
    latencies: list[Latency]
    threads: ThreadsView
    waiting: list[Document]
    """The conversations that wait longest: channel, key, documents, held, why, since, eventId, try
    and trySince. `since` is when the event arrived.
    """
    gates: list[GateView]
    token_refused: bool
    quota: QuotaView | None
    month: Sent
    """The sends that LINE accepted in this month of Japan."""
    spool: SpoolView | None
    pauses: list[Document]
    """The ordered pauses: channel, key, scope (`main/U…`, `main` or `all`), by, why, at."""
    obeyed: list[Document] | None
    """The pauses in effect; None where no dispatcher is the leader."""
    latest_calls: CallsView
    letters_lately: int
    """The dead letters of the last day that were not replayed."""
    letters_open: int
    """All dead letters that were not replayed; at most MOST_LETTERS are counted."""
    causes: list[Document]
    """The same by cause, the most frequent first: cause, about, explained, line, count, lately (of
    the last day) and lastAt.
    """
    killed: list[Process] = field(default_factory=list)
    """As `processes.killed`."""
    workers: WorkersView | None = None
    """None where handlers run on the dispatcher's threads, or no dispatcher is the leader."""
    is_initialised: bool = True
    """Whether the database has the collections that `linedesk init` makes."""
    figures: dict[str, ProcessRow] = field(default_factory=dict)
    """All figures of the rows, by role."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Known names in LINE of its conversations, by `<channel>/<key>`."""

    def name_of(self, row: Mapping[str, Any]) -> str | None:
        """Return the name that belongs to a row."""
        return self.names.get(f"{row.get('channel')}/{row.get('key')}")

    def as_json(self) -> Document:
        """Return the same for programs; seconds and bytes, times with their zone.

        Each conversation has its `name`; null where it is not known.
        """
        told: Document = as_json(replace(self, names={}))
        del told["names"]
        for rows in (told["waiting"], told["threads"]["doing"]):
            rows[:] = [{**row, "name": self.name_of(row)} for row in rows]
        return told


@dataclass(frozen=True)
class Read:
    """The rows of the database for one overview."""

    rows: list[Document]
    pauses: list[Document]
    calls: list[Document]
    channels: Sequence[str] = ()
    """The channels of all conversations, where a whole channel is paused."""
    causes: Sequence[Document] = ()
    """The letters that were not replayed, by cause: _id, count, lately, lastAt."""
    is_initialised: bool = True
    sent: Document = field(default_factory=dict)
    """The month's document with its sends, a part for each dispatcher."""


def read_overview(
    database: Database[Any], *, now: datetime | None = None, seconds: float = READ_SECONDS
) -> Overview:
    """Read everything once, within so many seconds. Raises StoreUnavailable."""
    now = now or datetime.now(UTC)
    with translated(), pymongo.timeout(seconds):
        seen = put_together(_read(database, now), now=now)
        shown = [*seen.waiting, *seen.threads.doing, *seen.pauses]
        shown += seen.workers.jobs[:MOST_JOBS] if seen.workers is not None else []
        ids = {f"{row.get('channel')}/{row.get('key')}" for row in shown}
        return replace(seen, names=names_of(database, ids))


def _read(database: Database[Any], now: datetime) -> Read:
    found = database[DEADLETTERS]
    causes = list(found.aggregate(_open_letters(now)))
    if sum(one["count"] for one in causes) >= MOST_LETTERS:
        # The index of `replayedAt` has the oldest first, but an alarm is about the newest.
        newest = _open_letters(now, {"$sort": {LAST_AT: -1}})
        causes = list(found.aggregate(newest, hint=BY_LAST_AT))
    pauses = list(database[CONTROL].find({"act": PAUSE, DONE_AT: None}).limit(MOST_PAUSES))
    is_wide = any(row.get("channel") and not row.get("key") for row in pauses)
    calls = [*newest_rows(NEWEST_CALLS), {"$project": LISTED}]
    return Read(
        rows=list(reported(database, STATUS).find({}).sort("at", -1).limit(MOST_ROWS)),
        pauses=pauses,
        channels=list(known_channels(database[CONVERSATIONS])) if is_wide else (),
        calls=list(reported(database, CALLS).aggregate(calls, hint={"$natural": -1})),
        causes=causes,
        is_initialised=database[LEASES].find_one({"_id": "dispatcher"}, {"_id": 1}) is not None,
        sent=reported(database, LEASES).find_one({"_id": sent_id(now)}) or {},
    )


def _open_letters(now: datetime, *order: Document) -> list[Document]:
    """Return the stages for letters that were not replayed, in the order of an index."""
    is_lately = {"$gte": [f"${LAST_AT}", now - LATELY]}
    by_cause = {
        "_id": {name: {"$ifNull": [f"${name}", None]} for name in ("cause", "about")},
        "count": {"$sum": 1},
        "lately": {"$sum": {"$cond": [is_lately, 1, 0]}},
        LAST_AT: {"$max": f"${LAST_AT}"},
    }
    return [
        {"$match": {REPLAYED_AT: None}},
        *order,
        {"$limit": MOST_LETTERS},
        {"$project": {"cause": 1, "about": 1, LAST_AT: 1}},
        {"$group": by_cause},
        {"$sort": {"count": -1, "_id": 1}},
    ]


def put_together(read: Read, *, now: datetime) -> Overview:
    """Return an overview of the rows. Pure."""
    found = [processes.process_of(row, now=now) for row in read.rows]
    fresh = [row for row, one in zip(read.rows, found, strict=True) if one.is_fresh]
    leader = processes.leading(fresh)
    desks = [row for row in fresh if row.get("role") == processes.FRONTDESK]
    desk = processes.combined(desks)
    dispatcher = processes.combined([leader] if leader is not None else [])
    both = ProcessRow(
        *({**getattr(desk, name), **getattr(dispatcher, name)} for name in vars(desk))
    )
    causes = [_cause(row) for row in read.causes]
    row = leader or {}
    return Overview(
        at=now,
        processes=[
            one
            for one in processes.that_count(found)
            # An earlier release had further roles.
            if one.is_fresh or one.role in processes.ROLES
        ],
        killed=processes.killed(found),
        rates=_view(Rates, both),
        queue=_view(Queue, both, is_closed=bool(both.number("recvqClosed"))),
        latencies=list(_latencies(both)),
        threads=_view(
            ThreadsView,
            dispatcher,
            doing=processes.listed(row, "threads"),
            handler_tries=processes.number_at(row, ("handlerTries",)),
        ),
        workers=workers_of(row, dispatcher),
        waiting=processes.listed(row, "waiting"),
        gates=_gates(dispatcher, age_seconds=_age(row, now)),
        token_refused=bool(dispatcher.number("tokenRefused")),
        quota=_quota(dispatcher, now),
        month=sent_in(read.sent),
        spool=_spool(desk),
        pauses=[
            pause_row(one, channels=read.channels)
            for row in read.pauses
            if (one := Pause.from_row(row))
        ],
        obeyed=processes.listed(row, "paused") if leader is not None else None,
        latest_calls=_latest_calls(read.calls, now),
        letters_lately=sum(one["lately"] for one in causes),
        letters_open=sum(one["count"] for one in causes),
        causes=causes,
        is_initialised=read.is_initialised,
        figures={processes.FRONTDESK: desk, processes.DISPATCHER: dispatcher},
    )


def _cause(row: Row) -> Document:
    cause = Cause.of(row["_id"])
    return {
        "cause": cause.code or "-",
        "about": cause.about,
        "explained": known(cause) or "-",
        "line": str(cause),
        **{name: row[name] for name in ("count", "lately", LAST_AT)},
    }


def pause_row(pause: Pause, *, channels: Sequence[str] = ()) -> Document:
    """Return a pause as a row of `Overview.pauses`.

    A pause of the only channel is a pause of everything.
    """
    scope = pause.scope
    is_all = scope.key is None and (scope.channel is None or set(channels) == {scope.channel})
    return {
        "channel": scope.channel,
        "key": scope.key,
        "scope": str(scope),
        "everything": is_all,
        "by": pause.by,
        "why": pause.why,
        "at": pause.at,
    }
