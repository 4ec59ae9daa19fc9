"""The spool: one SQLite file a host, where documents wait that MongoDB did not confirm.

What `append` has returned for survives kill -9 and power loss: it is synced, and so is the file's
name. A damaged file is set aside under another name and never deleted. Nothing here knows MongoDB.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import bson
from bson.raw_bson import RawBSONDocument

from linedesk.store.documents import Document
from linedesk.store.errors import SpoolDamaged, SpoolUnavailable
from linedesk.store.spool import spool_file
from linedesk.store.spool.spool_file import Identity, Key, Row, SpoolLimits, as_row, keys_of

# A group is written in transactions of about this size, so that the write-ahead log stays small.
PART_BYTES = 4 * 1024 * 1024
REPLACED_TIMES = 3
# Between two writes of one connection; those who wait ask twice as often.
TURN_SECONDS = 0.002

INSERT = "INSERT INTO spool (channel, key, event_id, message_id, bson) VALUES (?, ?, ?, ?, ?)"
GROW = "UPDATE totals SET documents = documents + ?, bytes = bytes + ?"
SET_APART = "INSERT INTO refused SELECT n, datetime('now'), ?, bson FROM spool WHERE n <= ?"
SIZES = "SELECT count(*), ifnull(sum(length(bson)), 0) FROM spool WHERE n <= ?"


@dataclass(frozen=True)
class SpoolContents:
    """What the spool holds: how many documents, their bytes, and the oldest of them."""

    documents: int = 0
    bytes: int = 0
    oldest: RawBSONDocument | None = None


@dataclass(frozen=True)
class Batch:
    """The oldest documents, in order. `last` means something in this one file only."""

    bsons: tuple[bytes, ...]
    last: int
    file: Identity


class Spool:
    """One connection to the file; belongs to one thread, and several share the file.

    It opens when it is first used, and anew when the file was replaced. Every method raises
    SpoolUnavailable, with the reason, when the file cannot do what is asked; each call is bounded
    by the time that SQLite waits for a lock, apart from a disk that hangs.
    """

    def __init__(
        self,
        path: Path,
        *,
        max_bytes: int,
        part_bytes: int = PART_BYTES,
        turn_seconds: float = TURN_SECONDS,
    ) -> None:
        self.path = path
        self._part_bytes = part_bytes
        self._turn_seconds = turn_seconds
        self._limits = SpoolLimits(max_bytes)
        self._connection: sqlite3.Connection | None = None
        self._file: Identity | None = None
        self._version: int | None = None
        self._empty = True
        self._wrote_at = 0.0

    def probe(self) -> None:
        """Make sure that more would be stored: by a write, synced like any other, and with room
        for several documents, so that a full spool is full until some of it was drained.
        """
        self._check_room(self._limits.spare_bytes)
        with self._writing() as connection:
            connection.execute(GROW, (0, 0))

    def append(self, documents: Sequence[RawBSONDocument]) -> None:
        """Store all of them, in their order and behind what is there, synced to the disk."""
        rows = [as_row(document) for document in documents]
        for _ in range(REPLACED_TIMES):
            for part in _parts(rows, self._part_bytes):
                self._append(part)
            # What went into a file that was set aside meanwhile would not be found again.
            # guard: spool-still-there -> body
            if self._file == spool_file.identity(self.path):
                return
            self.close()
        raise SpoolUnavailable("the spool's file is replaced again and again")

    def keys_held(self, documents: Iterable[RawBSONDocument]) -> frozenset[Key]:
        """Those of the documents' keys that the spool holds anything of.

        It costs next to nothing while the spool is empty and nobody writes: SQLite tells by
        `data_version` that another connection wrote, so this one must not write itself.
        """
        with self._reading() as connection:
            self._look_whether_empty(connection)
            if self._empty:
                return frozenset()
            return frozenset(key for key in keys_of(documents) if _holds(connection, key))

    @property
    def seen_empty(self) -> bool:
        """Whether nothing was held when `keys_held` last looked, or it never could look."""
        return self._empty

    def held(self) -> SpoolContents:
        """What is held at this moment."""
        with self._reading() as connection:
            documents, size = connection.execute("SELECT documents, bytes FROM totals").fetchone()
            oldest = connection.execute("SELECT bson FROM spool ORDER BY n LIMIT 1").fetchone()
        if oldest is None:
            return SpoolContents()
        with suppress(bson.errors.InvalidBSON):
            return SpoolContents(documents, size, RawBSONDocument(oldest[0]))
        return SpoolContents(documents, size)

    def oldest(self, *, documents: int, max_bytes: int) -> Batch:
        """The oldest documents, as many and as large at most, but one where there is any."""
        rows: list[tuple[int, bytes]] = []
        size = 0
        with self._reading() as connection:
            file = self._identity()
            query = "SELECT n, bson FROM spool ORDER BY n LIMIT ?"
            for n, data in connection.execute(query, (documents,)):
                size += len(data)
                if rows and size > max_bytes:
                    break
                rows.append((n, data))
        return Batch(tuple(data for _, data in rows), rows[-1][0] if rows else 0, file)

    def remove(self, batch: Batch) -> None:
        """Forget what `oldest` returned, once it is stored elsewhere.

        Numbers are given in the order of commits and never again, so nothing newer goes along.
        """
        with self._writing() as connection:
            # guard: batch-of-this-file -> body
            if self._identity() == batch.file:
                _remove(connection, batch.last)

    def set_apart(self, batch: Batch, *, reason: str) -> None:
        """Keep a batch that MongoDB will never take in the table `refused` of the same file."""
        with self._writing() as connection:
            if self._identity() == batch.file:
                connection.execute(SET_APART, (reason, batch.last))
                _remove(connection, batch.last)

    def redact(self, message_id: str, redact: Callable[[Document], Document]) -> int:
        """Put `redact(document)` in place of each document of that message; returns how many."""
        with self._writing() as connection:
            query = "SELECT n, bson FROM spool WHERE message_id = ?"
            found = connection.execute(query, (message_id,)).fetchall()
            for n, data in found:
                emptied = bson.encode(redact(bson.decode(data)))
                connection.execute("UPDATE spool SET bson = ? WHERE n = ?", (emptied, n))
                connection.execute(GROW, (0, len(emptied) - len(data)))
        return len(found)

    def tidy(self) -> None:
        """Give the disk back what an empty spool no longer needs; nobody waits for it."""
        with self._translated() as connection:
            # As a script, since it takes one step a page and gives no rows.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the connection; harmless when there is none, and the next use opens another."""
        connection, self._connection, self._file = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _append(self, rows: Sequence[Row]) -> None:
        size = sum(len(row.bson) for row in rows)
        self._check_room(size)
        with self._writing() as connection:
            connection.executemany(INSERT, rows)
            connection.execute(GROW, (len(rows), size))

    def _check_room(self, size: int) -> None:
        with self._translated() as connection:
            spool_file.check_room(connection, self.path, self._limits, size)

    def _look_whether_empty(self, connection: sqlite3.Connection) -> None:
        # In this order: what is committed between the two is looked at again the next time.
        [version] = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            found = connection.execute("SELECT 1 FROM spool LIMIT 1").fetchone()
            self._empty, self._version = found is None, version

    def _identity(self) -> Identity:
        assert self._file is not None
        return self._file

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._translated() as connection:
            self._let_others_write()
            spool_file.begin(connection)
            yield connection
            connection.execute("COMMIT")
            self._wrote_at = time.monotonic()

    def _let_others_write(self) -> None:
        # Who wrote again at once was seen to keep all others out until they gave up.
        left = self._wrote_at + self._turn_seconds - time.monotonic()
        if left > 0:
            threading.Event().wait(left)

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._translated() as connection:
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[sqlite3.Connection]:
        """The connection, opened where necessary; whatever goes wrong closes it, undoing all."""
        try:
            yield self._connected()
        except sqlite3.Error as error:
            damaged, reason = self._file, spool_file.reason(error, self.path)
            self.close()
            if isinstance(reason, SpoolDamaged) and damaged is not None:
                spool_file.set_aside(self.path, damaged, str(reason))
            raise reason from error
        except SpoolUnavailable:
            # Found out before anything was begun.
            raise
        except BaseException:
            self.close()
            raise

    def _connected(self) -> sqlite3.Connection:
        if self._connection is not None and self._file != spool_file.identity(self.path):
            self.close()
        if self._connection is None:
            self._version = None
            self._connection, self._file = spool_file.open_file(self.path, self._limits)
        return self._connection


def _parts(rows: Sequence[Row], part_bytes: int) -> Iterator[Sequence[Row]]:
    begin = size = 0
    for place, row in enumerate(rows):
        if size and size + len(row.bson) > part_bytes:
            yield rows[begin:place]
            begin, size = place, 0
        size += len(row.bson)
    yield rows[begin:]


def _remove(connection: sqlite3.Connection, last: int) -> None:
    documents, size = connection.execute(SIZES, (last,)).fetchone()
    connection.execute("DELETE FROM spool WHERE n <= ?", (last,))
    connection.execute(GROW, (-documents, -size))


def _holds(connection: sqlite3.Connection, key: Key) -> bool:
    query = "SELECT 1 FROM spool WHERE key = ? AND channel = ? LIMIT 1"
    return connection.execute(query, (key[1], key[0])).fetchone() is not None
