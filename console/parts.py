"""The parts of an overview, each made of what the rows of `status` tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from console import rows
from console.rows import Row, Told
from recvq.documents import Document


@dataclass(frozen=True)
class Rates:
    """The way of the events, in events a second; None where nobody tells."""

    accepted: float | None
    duplicates: float | None
    refused: float | None
    spooled: float | None
    read: float | None
    finished: float | None
    decided: float | None
    failed: float | None
    calls: float | None
    rung: float | None
    replayed: float


@dataclass(frozen=True)
class Queue:
    """What is stored and not done with; None where nobody tells, since no dispatcher leads."""

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
    unread_share: float | None
    is_closed: bool
    """recvq takes no inserts."""
    recvq_left_seconds: float | None
    oplog_left_seconds: float | None


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


@dataclass(frozen=True)
class Threads:
    """The dispatcher's pool."""

    all: float | None
    busy: float | None
    abandoned: float | None
    doing: list[Document]
    """Of busy ones: name, doing, eventId, channel, key, since; the longest first."""


@dataclass(frozen=True)
class Gate:
    """One host of LINE."""

    host: str
    use: float | None
    """The share of the last ten seconds in which it was busy or kept its interval."""
    waiting: float | None
    turns_per_second: float | None
    breaker_open: bool


@dataclass(frozen=True)
class Quota:
    """Counted messages of this month."""

    messages: float
    used: float | None

    @property
    def share(self) -> float | None:
        """How much of it is used, 0 to 1."""
        return None if self.used is None or not self.messages else self.used / self.messages


@dataclass(frozen=True)
class Spool:
    """What waits outside of MongoDB, on the host where most does."""

    documents: float
    bytes: float
    oldest_seconds: float | None
    max_bytes: float | None
    is_available: bool = True
    """Whether it would take documents, on every host."""


def rates(figures: Mapping[str, Told], *, replayed: float) -> Rates:
    desk, dispatcher = figures[rows.FRONTDESK], figures[rows.DISPATCHER]
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
        rung=figures[rows.SCHEDULER].rate("rungTimers"),
        replayed=replayed,
    )


def queue(dispatcher: Told, desk: Told) -> Queue:
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
        # Without a dispatcher the front desk's guard still looks.
        unread_share=share if share is not None else desk.number("recvqUnreadShare"),
        is_closed=bool(desk.number("recvqClosed")),
        recvq_left_seconds=dispatcher.number("recvqLeftSeconds"),
        oplog_left_seconds=dispatcher.number("oplogLeftSeconds"),
    )


TIMED = (
    (rows.FRONTDESK, "store", "storeSeconds"),
    (rows.DISPATCHER, "wait", "waitSeconds"),
    (rows.DISPATCHER, "handler", "handlerSeconds"),
    (rows.DISPATCHER, "gate", "gateWaitSeconds"),
    (rows.DISPATCHER, "call", "callSeconds"),
    (rows.DISPATCHER, "save", "saveSeconds"),
    (rows.SCHEDULER, "ring", "ringLateSeconds"),
)


def latencies(figures: Mapping[str, Told]) -> list[Latency]:
    found = []
    for role, name, figure in TIMED:
        lately = figures[role].lately.get(figure)
        if isinstance(lately, Mapping):
            labelled = {"": lately} if "count" in lately else lately
            found += [_latency(name, label, one) for label, one in sorted(labelled.items())]
    return found


def _latency(name: str, label: str, lately: Row) -> Latency:
    count = rows.number_at(lately, ("count",)) or 0
    p50, p90, p99 = (rows.number_at(lately, (part,)) for part in ("p50", "p90", "p99"))
    return Latency(name, label, int(count), p50, p90, p99)


def threads(dispatcher: Told, row: Row) -> Threads:
    return Threads(
        all=dispatcher.number("threads"),
        busy=dispatcher.number("busyThreads"),
        abandoned=dispatcher.number("abandonedThreads"),
        doing=rows.listed(row, "threads"),
    )


def gates(dispatcher: Told) -> list[Gate]:
    hosts: list[str] = []
    for name in ("gateUse", "gateWaiting", "breakerOpen"):
        found = dispatcher.figures.get(name)
        hosts += [one for one in found if one not in hosts] if isinstance(found, Mapping) else []
    return [
        Gate(
            host=host,
            use=dispatcher.number("gateUse", host),
            waiting=dispatcher.number("gateWaiting", host),
            turns_per_second=dispatcher.rate("gateTurns", host),
            breaker_open=bool(dispatcher.number("breakerOpen", host)),
        )
        for host in hosts
    ]


def quota(dispatcher: Told) -> Quota | None:
    messages = dispatcher.number("quotaMessages")
    return None if messages is None else Quota(messages, dispatcher.number("quotaUsedMessages"))


def spool(desk: Told) -> Spool | None:
    documents = desk.number("spoolDocuments")
    if documents is None:
        return None
    return Spool(
        documents=documents,
        bytes=desk.number("spoolBytes") or 0,
        oldest_seconds=desk.number("spoolOldestSeconds"),
        max_bytes=desk.number("spoolMaxBytes"),
        is_available=desk.number("spoolAvailable") != 0,
    )
