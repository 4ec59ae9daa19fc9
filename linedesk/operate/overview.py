"""The overview: rates, waiting conversations with their reasons, and running processes.

An overview costs a handful of small or indexed reads, however much recvq holds: the processes write
their figures to `status` once a second. `linedesk.operate.health` finds the problems in it. An
overview is data: its texts are English.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.operate import dead_letters, processes
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
from linedesk.store.records.calls import TurnClass, is_taken
from linedesk.store.records.letters import LAST_AT, LATE, MOST_COUNTED, REPLAYED_AT, Cause


@dataclass(frozen=True)
class Rates:
    """The rates of the events on their way, a second; None where no process reports them."""

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
    """The unfinished events; None where no dispatcher is the leader."""

    documents: float | None
    """Unread, in progress and held."""
    oldest_seconds: float | None
    behind_seconds: float | None
    """Age of the oldest event that is not in `held`."""
    unpaused_seconds: float | None
    """Age of the oldest event that is not paused."""
    lag_documents: float | None
    lag_seconds: float | None
    in_hand: float | None
    held: float | None
    held_keys: float | None
    outbox_effects: float | None
    oldest_send_seconds: float | None
    """Age of the event whose decided send has waited longest; 0 where none waits."""
    unread_share: float | None
    is_closed: bool
    """recvq takes no inserts."""
    recvq_left_seconds: float | None
    oplog_left_seconds: float | None
    retention_measured_seconds: float | None
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

    all: float | None
    busy: float | None
    abandoned: float | None
    doing: list[Document]
    """The busy threads: name, doing, eventId, channel, key, since, try, arrivedAt; the longest
    first.
    """
    handler_tries: float | None = None
    """HANDLER_TRIES of the leader."""


@dataclass(frozen=True)
class ClassView:
    """The calls that wait at a gate in one class of urgency."""

    name: str
    """live, chat, other or idle."""
    waiting: float
    longest_seconds: float | None
    """The wait of the call that came first."""


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
class SentView:
    """Calls of the last minute in which LINE took messages, and the sends in them."""

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
    """LINE fails: linedesk makes only a single call now and then."""
    classes: list[ClassView]
    next_try_seconds: float | None = None
    """While LINE fails: the time until that call may begin; None where it is not known."""


@dataclass(frozen=True)
class QuotaView:
    """Counted messages of this month."""

    messages: float | None
    """The plan's limit; None for a plan without a limit."""
    used: float | None
    """LINE's count and what was sent since."""
    closed_since: datetime | None = None
    """When LINE began to refuse pushes; None while it takes them."""
    ends_on: str | None = None
    """Japan's day on which the plan ends at the rate of this month; None if it lasts."""

    @property
    def share(self) -> float | None:
        """The used share, 0 to 1."""
        return None if self.used is None or not self.messages else self.used / self.messages


@dataclass(frozen=True)
class SpoolView:
    """The events in the spool, on the host with the most of them."""

    documents: float
    bytes: float
    oldest_seconds: float | None
    max_bytes: float | None
    is_available: bool = True
    """Whether the spool of every host can take documents."""


@dataclass(frozen=True)
class LetterCause:
    """Dead letters that were not replayed, of one cause."""

    cause: str
    about: Mapping[str, Any]
    """The values of the cause."""
    explained: str
    count: int
    lately: int
    """The number of the last day."""
    last_at: datetime | None

    @property
    def line(self) -> str:
        """The cause as one line."""
        return str(Cause(self.cause, self.about))


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
        fired=figures[processes.DISPATCHER].rate("rungTimers"),
        replayed=replayed,
    )


def queue(dispatcher: ProcessRow, desk: ProcessRow) -> Queue:
    share = dispatcher.number("recvqUnreadShare")
    return Queue(
        documents=dispatcher.number("queueDocuments"),
        oldest_seconds=dispatcher.number("oldestUnfinishedSeconds"),
        behind_seconds=dispatcher.number("behindSeconds"),
        unpaused_seconds=dispatcher.number("unpausedOldestSeconds"),
        lag_documents=dispatcher.number("lagDocuments"),
        lag_seconds=dispatcher.number("lagSeconds"),
        in_hand=dispatcher.number("inHandDocuments"),
        held=dispatcher.number("heldDocuments"),
        held_keys=dispatcher.number("heldKeys"),
        outbox_effects=dispatcher.number("outboxEffects"),
        oldest_send_seconds=dispatcher.number("oldestSendSeconds"),
        # Without a dispatcher the front desk's guard still measures it.
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
    (processes.DISPATCHER, "ring", "ringLateSeconds"),
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
    """Return the calls of the last minute among `rows`, the newest calls."""
    lately = [row for row in rows if _is_lately(row.get("at"), now)]
    failed = sum(not is_taken(row.get("status")) for row in lately)
    return CallsView(len(lately), failed)


def _is_lately(at: Any, now: datetime) -> bool:
    return isinstance(at, datetime) and (now - at).total_seconds() <= LATELY_SECONDS


def gates(dispatcher: ProcessRow, *, age_seconds: float = 0.0) -> list[GateView]:
    """Return the hosts of LINE; `age_seconds` is the age of the row."""
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


def quota(dispatcher: ProcessRow, now: datetime) -> QuotaView | None:
    """Return the month's messages; None if a dispatcher reports none."""
    messages, used = (dispatcher.number(one) for one in ("quotaMessages", "quotaUsedMessages"))
    if messages is None and used is None:
        return None
    ends = None if messages is None or used is None else ends_on(used, messages, now)
    return QuotaView(messages, used, closed_since(dispatcher), str(ends) if ends else None)


def closed_since(dispatcher: ProcessRow) -> datetime | None:
    """Return when the dispatcher stopped pushes because the month's messages are used up."""
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
# At most so many letters are counted by cause: the newest.
MOST_LETTERS = MOST_COUNTED
BY_LAST_AT = "lastAt_cause"
LATELY = timedelta(days=1)
REPLAYS_WITHIN = timedelta(minutes=1)
MOST_REPLAYS = 1_000
MOST_LATE = 1_000
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
    waiting_keys: Document
    """How many conversations rest with events, by reason: held, paused, again, save."""
    gates: list[GateView]
    token_refused: bool
    sent: SentView
    counted_today: float | None
    """Messages that LINE has counted since midnight in Japan, as far as known."""
    late_today: int
    """Late replies given up since then, at most MOST_LATE."""
    quota: QuotaView | None
    month: Sent
    """The sends that LINE accepted in this month of Japan."""
    spool: SpoolView | None
    pauses: list[Document]
    """The ordered pauses: channel, key, scope (`main/U…`, `main` or `all`), by, why, at."""
    obeyed: list[Document] | None
    """The pauses in effect; None where no dispatcher is the leader."""
    calls: list[Document]
    """The newest rows of `calls`, the newest first."""
    latest_calls: CallsView
    letters: list[Document]
    """The newest dead letters that were not replayed (`linedesk.operate.dead_letters.summary`)."""
    letters_lately: int
    """The dead letters of the last day that were not replayed."""
    letters_open: int
    """All dead letters that were not replayed; at most MOST_LETTERS are counted."""
    causes: list[LetterCause]
    """The same by cause, the most frequent first."""
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

    def name_of(self, row: Mapping[str, Any], *, channel: str | None = None) -> str | None:
        """Return the name that belongs to a row; `channel` is the default of a row without one."""
        return self.names.get(f"{row.get('channel') or channel}/{row.get('key')}")

    def as_json(self) -> Document:
        """Return the same for programs; seconds and bytes, times with their zone.

        Each conversation has its `name`; null where it is not known.
        """
        told: Document = as_json(replace(self, names={}))
        del told["names"]
        for rows in (told["waiting"], told["threads"]["doing"], told["letters"]):
            rows[:] = [{**row, "name": self.name_of(row)} for row in rows]
        return told


@dataclass(frozen=True)
class Read:
    """The rows of the database for one overview."""

    rows: list[Document]
    pauses: list[Document]
    calls: list[Document]
    letters: list[Document]
    """The newest letters that were not replayed."""
    replays: int
    late: int = 0
    channels: Sequence[str] = ()
    """The channels of all conversations, where a whole channel is paused."""
    causes: Sequence[Document] = ()
    """The letters that were not replayed, by cause: _id, count, lately, lastAt."""
    is_initialised: bool = True
    sent: Document = field(default_factory=dict)
    """The month's document with its sends, a part for each dispatcher."""


def read_overview(
    database: Database[Any],
    *,
    channel: str | None = None,
    now: datetime | None = None,
    seconds: float = READ_SECONDS,
) -> Overview:
    """Read everything once, within so many seconds. Raises StoreUnavailable.

    `channel` is the channel of the calls, whose rows name none.
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
        # The index of `replayedAt` has the oldest first, but an alarm is about the newest.
        (letters,) = found.aggregate(_open_letters(now, {"$sort": {LAST_AT: -1}}), hint=BY_LAST_AT)
    pauses = list(database[CONTROL].find({"act": PAUSE, DONE_AT: None}).limit(MOST_PAUSES))
    is_wide = any(row.get("channel") and not row.get("key") for row in pauses)
    calls = [*newest_rows(NEWEST_CALLS), {"$project": LISTED}]
    return Read(
        rows=list(reported(database, STATUS).find({}).sort("at", -1).limit(MOST_ROWS)),
        pauses=pauses,
        channels=list(known_channels(database[CONVERSATIONS])) if is_wide else (),
        calls=list(reported(database, CALLS).aggregate(calls, hint={"$natural": -1})),
        letters=letters["newest"],
        causes=letters["causes"],
        replays=found.count_documents(replayed, limit=MOST_REPLAYS),
        late=found.count_documents(
            {LAST_AT: {"$gte": midnight(now)}, "cause": LATE.code}, limit=MOST_LATE
        ),
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
        {"$project": dict.fromkeys(dead_letters.LISTED, 1)},
        {
            "$facet": {
                "newest": [{"$sort": {LAST_AT: -1}}, {"$limit": NEWEST_LETTERS}],
                "causes": [{"$group": by_cause}, {"$sort": {"count": -1, "_id": 1}}],
            }
        },
    ]


def put_together(read: Read, *, now: datetime) -> Overview:
    """Return an overview of the rows. Pure."""
    found = [processes.process_of(row, now=now) for row in read.rows]
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
            # An earlier release had further roles.
            if one.is_fresh or one.role in processes.ROLES
        ],
        killed=processes.killed(found),
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
        quota=quota(dispatcher, now),
        month=sent_in(read.sent),
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
    cause, at = Cause.of(row["_id"]), row.get(LAST_AT)
    return LetterCause(
        cause=cause.code or "-",
        about=cause.about,
        explained=known(cause) or "-",
        count=row["count"],
        lately=row["lately"],
        last_at=at if isinstance(at, datetime) else None,
    )


def pause_row(pause: Pause, *, channels: Sequence[str] = ()) -> Document:
    """Return a pause as a row of `Overview.pauses`.

    A pause of the only channel is a pause of everything.
    """
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
    """Return the figures by role."""
    desks = [row for row in fresh if row.get("role") == processes.FRONTDESK]
    return {
        processes.FRONTDESK: processes.combined(desks),
        processes.DISPATCHER: processes.combined([leader] if leader is not None else []),
    }
