"""Everything at a glance: whether linedesk is well, what comes and goes, what waits and why.

A handful of small or indexed reads, whatever recvq holds: the figures are those that the processes
write to `status` once a second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo
from pymongo.database import Database

from console import letters, parts, rows
from console.asjson import as_json
from console.rows import Process, Row, Told
from console.telling import told_in
from console.wrong import Wrong, what_is_wrong
from recvq.documents import CALLS, CONTROL, DEADLETTERS, STATUS, Document
from recvq.errors import translated
from recvq.orders import Pause

READ_SECONDS = 5.0
NEWEST_CALLS = 20
NEWEST_LETTERS = 10
# Of so many letters the age is read, so that "lately" is a number and no count of a collection.
MOST_LETTERS = 200
LATELY = timedelta(days=1)
REPLAYS_WITHIN = timedelta(minutes=1)
MOST_REPLAYS = 1_000
MOST_ROWS = 200
MOST_PAUSES = 1_000


@dataclass(frozen=True)
class Overview:
    """One look at everything."""

    at: datetime
    wrong: list[Wrong]
    """What a person should look at, the worst first."""
    processes: list[Process]
    scheduler_asked: bool | None
    """Whether the dispatcher's setting asks for a scheduler of its own; None: it does not tell."""
    rates: parts.Rates
    queue: parts.Queue
    latencies: list[parts.Latency]
    threads: parts.Threads
    waiting: list[Document]
    """The keys that wait longest: channel, key, documents, held, why, since, eventId."""
    waiting_keys: Document
    """How many keys rest although they have documents, by why: held, paused, again, save."""
    gates: list[parts.Gate]
    token_refused: bool
    quota: parts.Quota | None
    spool: parts.Spool | None
    pauses: list[Document]
    """What is ordered: channel, key, scope (`main/U…`, `main` or `all`), by, why, at."""
    obeyed: list[Document] | None
    """The pauses that the dispatcher obeys just now; None where no dispatcher leads."""
    calls: list[Document]
    """The newest rows of `calls`, the newest first."""
    letters: list[Document]
    """The newest dead letters that were not replayed, as `console.letters.summary` tells them."""
    letters_lately: int
    """Those of the last day; MOST_LETTERS or more are told as MOST_LETTERS."""
    figures: dict[str, Told] = field(default_factory=dict)
    """All that the rows tell, by role."""

    def as_json(self) -> Document:
        """The same for programs; seconds and bytes, times with their zone."""
        told: Document = as_json(self)
        return told


@dataclass(frozen=True)
class Read:
    """What was read of the database for one overview."""

    rows: list[Document]
    pauses: list[Document]
    calls: list[Document]
    letters: list[Document]
    replays: int


def read_overview(database: Database[Any], *, now: datetime | None = None) -> Overview:
    """Look at everything once, within READ_SECONDS. Raises StoreUnavailable."""
    now = now or datetime.now(UTC)
    with translated(), pymongo.timeout(READ_SECONDS):
        read = _read(database, now)
    return put_together(read, now=now)


def _read(database: Database[Any], now: datetime) -> Read:
    found = database[DEADLETTERS]
    replayed = {"replayedAt": {"$gte": now - REPLAYS_WITHIN}}
    return Read(
        rows=list(told_in(database, STATUS).find({}).limit(MOST_ROWS)),
        pauses=list(database[CONTROL].find({"doneAt": None}).limit(MOST_PAUSES)),
        calls=list(
            told_in(database, CALLS).find({}, {"_id": 0}).sort("$natural", -1).limit(NEWEST_CALLS)
        ),
        letters=list(found.find({}, list(letters.LISTED)).sort("lastAt", -1).limit(MOST_LETTERS)),
        replays=found.count_documents(replayed, limit=MOST_REPLAYS),
    )


def put_together(read: Read, *, now: datetime) -> Overview:
    """An overview of what was read. Pure."""
    processes = [rows.process_of(row, now=now) for row in read.rows]
    asked = rows.asks_for_scheduler(read.rows)
    fresh = [row for row, one in zip(read.rows, processes, strict=True) if one.is_fresh]
    leader = rows.leading(fresh)
    figures = _figures(fresh, leader)
    dispatcher, desk = figures[rows.DISPATCHER], figures[rows.FRONTDESK]
    left = [row for row in read.letters if not row.get("replayedAt")]
    row = leader or {}
    seen = Overview(
        at=now,
        wrong=[],
        processes=[
            one
            for one in rows.that_count(processes)
            if one.is_fresh or one.role != rows.SCHEDULER or asked is not False
        ],
        scheduler_asked=asked,
        rates=parts.rates(figures, replayed=read.replays / REPLAYS_WITHIN.total_seconds()),
        queue=parts.queue(dispatcher, desk),
        latencies=parts.latencies(figures),
        threads=parts.threads(dispatcher, row),
        waiting=rows.listed(row, "waiting"),
        waiting_keys=dict(dispatcher.figures.get("waitingKeys") or {}),
        gates=parts.gates(dispatcher),
        token_refused=bool(dispatcher.number("tokenRefused")),
        quota=parts.quota(dispatcher),
        spool=parts.spool(desk),
        pauses=[_told(one) for row in read.pauses if (one := Pause.from_row(row))],
        obeyed=rows.listed(row, "paused") if leader is not None else None,
        calls=read.calls,
        letters=[letters.summary(one) for one in left[:NEWEST_LETTERS]],
        letters_lately=sum(_is_lately(one, now) for one in left),
        figures=figures,
    )
    return _judged(seen)


def _judged(seen: Overview) -> Overview:
    return Overview(**{**vars(seen), "wrong": what_is_wrong(seen)})


def _is_lately(letter: Row, now: datetime) -> bool:
    at = letter.get("lastAt")
    return isinstance(at, datetime) and at >= now - LATELY


def _told(pause: Pause) -> Document:
    scope = pause.scope
    told = {"by": pause.by, "why": pause.why, "at": pause.at}
    return {"channel": scope.channel, "key": scope.key, "scope": str(scope), **told}


def _figures(fresh: Sequence[Row], leader: Row | None) -> dict[str, Told]:
    """By role. Where the scheduler runs within the dispatcher, that one's row tells its figures."""
    by_role = {role: [row for row in fresh if row.get("role") == role] for role in rows.ROLES}
    led = [leader] if leader is not None else []
    return {
        rows.FRONTDESK: rows.told(by_role[rows.FRONTDESK]),
        rows.DISPATCHER: rows.told(led),
        rows.SCHEDULER: rows.told(by_role[rows.SCHEDULER][:1] or [rows.of_scheduler(leader or {})]),
    }
