"""The conversations used last, as BSON, so that a decision does not begin with a read.

The holder of the epoch is the only process that writes them, and it keeps this copy as it writes.
A change by hand is noticed at the next record if it increments `n`: the record asks for the `n` on
which its decision is based. Any other change is seen after KEPT_SECONDS.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import bson

from linedesk.store.client import aware_options
from linedesk.store.documents import Document

KEPT_SECONDS = 10.0
"""How long after it was read from MongoDB."""
MOST_BYTES = 64 * 1024 * 1024
# Of an entry besides its BSON.
OVERHEAD_BYTES = 400
OPTIONS = aware_options()


@dataclass(slots=True)
class _Entry:
    n: int
    raw: bytes
    read_at: float


class ConversationCache:
    """Copies of conversations by id, bounded in bytes; those used last remain."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # All under _lock.
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._bytes = 0
        self.changes = 0
        """How many changes were made; a copy that was read before the last one is not kept."""

    def n_of(self, id_: str) -> int | None:
        """The number of records of a conversation; None if it is not kept."""
        with self._lock:
            entry = self._entry(id_)
            return None if entry is None else entry.n

    def get(self, id_: str) -> Document | None:
        """Return a copy of a conversation's fields; None if it is not kept."""
        with self._lock:
            entry = self._entry(id_)
        return None if entry is None else {**bson.decode(entry.raw, OPTIONS), "n": entry.n}

    def put(self, id_: str, fields: Mapping[str, Any], n: int, *, changes: int) -> None:
        """Keep what was read after that number of changes."""
        raw = bson.encode(fields)
        with self._lock:
            # guard: read-before-a-change -> if True:
            if changes == self.changes:
                self._put(id_, _Entry(n, raw, time.monotonic()))

    def copy_of(self, id_: str) -> object:
        """Return the present copy, for `recorded`; None if there is none."""
        return self._entries.get(id_)

    def recorded(
        self, id_: str, copy: object, changes: Mapping[str, Any], gone: Iterable[str]
    ) -> None:
        """A record has changed these paths, and incremented `n`; `copy` was there before it."""
        with self._lock:
            self.changes += 1
            entry = self._entry(id_)
            # Read meanwhile, it may have the record already.
            # guard: copy-before-the-record -> if entry is None:
            if entry is None or entry is not copy:
                self._remove(id_)
                return
            raw = entry.raw
            if changes or gone:
                raw = bson.encode(_changed(bson.decode(raw, OPTIONS), changes, gone))
            self._put(id_, _Entry(entry.n + 1, raw, entry.read_at))

    def forget(self, id_: str) -> None:
        """It has changed otherwise, or may have."""
        with self._lock:
            self.changes += 1
            self._remove(id_)

    def _entry(self, id_: str) -> _Entry | None:
        entry = self._entries.get(id_)
        # guard: cached-again
        if entry is not None and time.monotonic() - entry.read_at > KEPT_SECONDS:
            self._remove(id_)
            return None
        if entry is not None:
            self._entries.move_to_end(id_)
        return entry

    def _put(self, id_: str, entry: _Entry) -> None:
        self._remove(id_)
        self._entries[id_] = entry
        self._bytes += len(entry.raw) + OVERHEAD_BYTES
        while self._bytes > MOST_BYTES:
            self._remove(next(iter(self._entries)))

    def _remove(self, id_: str) -> None:
        entry = self._entries.pop(id_, None)
        if entry is not None:
            self._bytes -= len(entry.raw) + OVERHEAD_BYTES


def _changed(fields: Document, changes: Mapping[str, Any], gone: Iterable[str]) -> Document:
    """Return the fields after an update; a path has one or two steps."""
    for path in gone:
        outer, _, name = path.rpartition(".")
        (fields.get(outer) or {} if outer else fields).pop(name, None)
    for path, value in changes.items():
        outer, _, name = path.rpartition(".")
        if outer:
            fields[outer] = {**(fields.get(outer) or {}), name: value}
        else:
            fields[name] = value
    return fields
