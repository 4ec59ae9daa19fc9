"""Storing with two stores: recvq first, the spool for what recvq does not confirm in time.

The order of each key is kept across both: while anything of a key is in the spool, or on its way
there, what comes later of that key goes behind it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from bson.raw_bson import RawBSONDocument

from frontdesk.errors import KeysSpooled, NotStored
from frontdesk.group_commit import GroupCommit, Insert, Probe
from frontdesk.pending import Documents, PendingRequest, refuse
from linedesk.store.errors import SpoolUnavailable
from linedesk.store.redaction import redacted, unsent_id_of
from linedesk.store.spool.drain import Drain, oldest_seconds
from linedesk.store.spool.spool import Spool, SpoolContents
from linedesk.store.spool.spool_file import Key, keys_of

log = logging.getLogger(__name__)

# On top of what recvq was given: both together have to end before LINE gives up after 2 s.
SPOOL_SECONDS = 0.8
# How long a spool that cannot be read is not asked again by each insert.
UNREADABLE_SECONDS = 1.0
# How long a start waits for MongoDB: callers wait with it, and the spool could take theirs.
MONGODB_SECONDS = 0.5
# What a stop waits for the drain's batch, which MongoDB may never answer; whoever drains next
# begins with the same documents.
DRAIN_SECONDS = 0.5


@dataclass(frozen=True)
class Spools:
    """The connections of one process to its host's spool: each belongs to a thread of its own."""

    writer: Spool
    reader: Spool

    def append(self, documents: Documents, timeout_seconds: float) -> Collection[int]:
        """Store all documents in the spool; no duplicates are told there.

        An unsend empties its message's copies, which are in front of it as they share its key.
        """
        with _not_stored():
            self.writer.append(documents)
            for message_id in filter(None, map(unsent_id_of, documents)):
                self.writer.redact(message_id, redacted)
        return ()

    def probe(self) -> None:
        """Make sure that the spool would store; raises NotStored."""
        with _not_stored():
            self.writer.probe()

    def close(self) -> None:
        """Close both connections; nobody may use them any longer."""
        self.writer.close()
        self.reader.close()


class TwoStores:
    """Stores requests durably in recvq, else in the spool, and refuses what neither takes.

    Its methods belong to one event loop.
    """

    def __init__(self, insert: Insert, probe: Probe, spools: Spools, drain: Drain) -> None:
        self._recvq = GroupCommit(BehindSpool(insert, spools.reader), probe, detour=self)
        self._spool = GroupCommit(spools.append, spools.probe, who="the spool")
        self._spools = spools
        self._drain = drain
        self._on_their_way: Counter[Key] = Counter()
        self._began: float | None = None
        self._spooled = self._spooled_before = 0

    @property
    def unavailable(self) -> str | None:
        """Why nothing can be stored at the moment, neither here nor there; None when it can."""
        reasons = self._recvq.unavailable, self._spool.unavailable
        return "; ".join(map(str, reasons)) if all(reasons) else None

    @property
    def held(self) -> SpoolContents:
        """What the spool holds, as it was seen last."""
        return self._drain.held

    @property
    def spooled_events(self) -> int:
        """How many documents it has stored in the spool."""
        return self._spooled

    @property
    def spool(self) -> dict[str, Any] | None:
        """What the spool holds, for a person; None while it is empty and nothing goes there."""
        held = self._drain.held
        if self._recvq.unavailable is None and not held.documents:
            return None
        seconds = round(oldest_seconds(held), 1)
        return {"documents": held.documents, "bytes": held.bytes, "oldestSeconds": seconds}

    @property
    def no_spool(self) -> str | None:
        """Why the spool would take nothing; None while it would."""
        return self._spool.unavailable

    @property
    def trouble(self) -> str | None:
        """Which stores are away, and since when, for a person; None when all is well."""
        return "; ".join(filter(None, (self._recvq.trouble, self._spool.trouble))) or None

    @property
    def hanging(self) -> str | None:
        """Which of its threads is in a call beyond every bound, for a person; None: none is."""
        return self._recvq.hanging or self._spool.hanging or self._drain.hanging

    @property
    def dead(self) -> bool:
        """Whether a part of it has ended unasked, so that only a new process can store again."""
        return self._recvq.dead or self._spool.dead or self._drain.dead

    async def open(self) -> None:
        """Start all parts; each works as soon as its store answers."""
        self._drain.start()
        await asyncio.gather(self._spool.open(), self._recvq.open(MONGODB_SECONDS))

    async def store(self, documents: Documents, *, deadline: float) -> int:
        """Store all durably; returns how many were known to be there already.

        Until `deadline` recvq may confirm them, for SPOOL_SECONDS more the spool. Raises
        NotStored when neither does: then they are not known to be stored.
        """
        if self._recvq.unavailable is None:
            return await self._recvq.store(documents, deadline=deadline)
        entry = PendingRequest(documents, deadline, asyncio.get_running_loop().create_future())
        self._to_spool(entry)
        try:
            return await entry.outcome
        finally:
            entry.cancel_timer()

    async def close(self) -> None:
        """Finish what waits, in either store, and end all threads; bounded, may be repeated."""
        self._drain.stop()
        # MongoDB may be slow to answer the probe, and callers wait for the successor.
        await self._recvq.close(patient=False)
        await self._spool.close()
        await asyncio.to_thread(self._drain.join, DRAIN_SECONDS)
        if not self._drain.alive:
            self._spools.close()

    # --- what recvq's group commit passes on

    def divert(self, group: list[PendingRequest], held: Iterable[Key] = ()) -> list[PendingRequest]:
        """Spool those with a key that is held, or on its way to the spool; returns the others."""
        # guard: on-its-way-to-the-spool -> behind = {*held}
        behind = {*held, *self._on_their_way}
        if not behind:
            return group
        others = []
        for entry in group:
            keys = keys_of(entry.documents)
            if behind.isdisjoint(keys):
                others.append(entry)
            else:
                behind |= keys
                self._to_spool(entry)
        return others

    def take_over(self, entries: list[PendingRequest], error: NotStored) -> None:
        """Spool what recvq did not confirm."""
        for entry in entries:
            self._to_spool(entry, error)

    def resumed(self) -> None:
        """recvq takes new documents again; those of keys in the spool still queue up there."""
        if self._began is not None:
            seconds = time.monotonic() - self._began
            documents = self._spooled - self._spooled_before
            log.info("spooling ended documents=%d seconds=%.1f", documents, seconds)
            self._began = None

    def _to_spool(self, entry: PendingRequest, error: NotStored | None = None) -> None:
        entry.cancel_timer()
        reason = str(error or self._recvq.unavailable or "")
        if self._spool.unavailable is not None:
            both = "; ".join(filter(None, (reason, self._spool.unavailable)))
            refuse([entry], NotStored(both))
            return
        # What recvq had admitted is bounded already, and may not be overtaken by what is new.
        if error is None:
            try:
                self._spool.admit(entry)
            except NotStored as full:
                refuse([entry], full)
                return
        self._begin()
        keys = keys_of(entry.documents)
        self._on_their_way.update(keys)
        entry.outcome.add_done_callback(partial(self._settled, keys, len(entry.documents)))
        entry.deadline += SPOOL_SECONDS
        self._spool.put([entry])

    def _begin(self) -> None:
        # Not for those that only queue up behind others: no `resumed` would tell the end.
        if self._recvq.unavailable is not None and self._began is None:
            self._began, self._spooled_before = time.monotonic(), self._spooled
            log.warning('spooling began reason="%s"', self._recvq.unavailable)

    def _settled(self, keys: frozenset[Key], documents: int, outcome: asyncio.Future[int]) -> None:
        self._on_their_way.subtract(keys)
        for key in keys:
            if not self._on_their_way[key]:
                del self._on_their_way[key]
        if not outcome.cancelled() and outcome.exception() is None:
            self._spooled += documents
            self._drain.wake()


class BehindSpool:
    """An insert into recvq that first makes sure that the spool holds nothing of the same keys.

    A call belongs to the thread of recvq's group commit, as `reader` does.
    """

    def __init__(self, insert: Insert, reader: Spool) -> None:
        self._insert = insert
        self._reader = reader
        self._unreadable_until = 0.0

    def __call__(self, documents: Documents, timeout_seconds: float) -> Collection[int]:
        """Store all in recvq; raises NotStored, and KeysHeld before anything is stored."""
        held = self._held(documents)
        # guard: behind-the-spool
        if held:
            raise KeysSpooled(held)
        return self._insert(documents, timeout_seconds)

    def _held(self, documents: Documents) -> frozenset[Key]:
        """The keys that are held. A spool that cannot be read stops nothing if it was empty when
        last seen; if it was not, all might overtake what it holds.
        """
        if time.monotonic() < self._unreadable_until:
            return self._unknown(documents)
        try:
            return self._reader.keys_held(documents)
        except SpoolUnavailable:
            self._unreadable_until = time.monotonic() + UNREADABLE_SECONDS
            return self._unknown(documents)

    def _unknown(self, documents: Iterable[RawBSONDocument]) -> frozenset[Key]:
        return frozenset() if self._reader.seen_empty else keys_of(documents)


@contextmanager
def _not_stored() -> Iterator[None]:
    try:
        yield
    except SpoolUnavailable as error:
        raise NotStored(str(error), detail=error.detail) from error
