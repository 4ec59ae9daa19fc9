"""The spool: one SQLite file for each host, for documents that MongoDB did not confirm.

Once `append` has returned, documents survive kill -9 and power loss: they are synced, and so is the
file's name. A damaged file is renamed and never deleted. This module does not use MongoDB.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import bson
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

from linedesk.store.errors import SpoolDamaged, SpoolUnavailable
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.redaction import redacted, unsent_id_of
from linedesk.store.spool import spool_file
from linedesk.store.spool.spool_file import Identity, Key, SpoolLimits, as_row, keys_of

# Documents are written in transactions of about this size to keep the write-ahead log small.
PART_BYTES = 4 * 1024 * 1024
REPLACED_TIMES = 3
# After a failed `keys_held`, a connection does not read the spool for it again for this long.
UNREADABLE_SECONDS = 1.0
# The pause between two writes of one connection; waiting connections poll twice as often.
TURN_SECONDS = 0.002

INSERT = "INSERT INTO spool (channel, key, event_id, message_id, bson) VALUES (?, ?, ?, ?, ?)"
GROW = "UPDATE totals SET documents = documents + ?, bytes = bytes + ?"
SET_APART = "INSERT INTO refused SELECT n, datetime('now'), ?, bson FROM spool WHERE n <= ?"
SIZES = "SELECT count(*), ifnull(sum(length(bson)), 0) FROM spool WHERE n <= ?"


@dataclass(frozen=True)
class SpoolContents:
    """The contents of the spool: number of documents, bytes, and the oldest document."""

    documents: int = 0
    bytes: int = 0
    oldest: RawBSONDocument | None = None

    @property
    def oldest_seconds(self) -> float:
        """The age of the oldest document since it was accepted; 0 if there is none."""
        accepted = None
        with suppress(BSONError):
            accepted = self.oldest.get(ACCEPT_TIME) if self.oldest is not None else None
        if not isinstance(accepted, datetime):
            return 0.0
        return max(0.0, (datetime.now(UTC) - accepted.replace(tzinfo=UTC)).total_seconds())


@dataclass(frozen=True)
class Batch:
    """The oldest documents, in order. `last` is valid only for this file."""

    bsons: tuple[bytes, ...]
    last: int
    file: Identity | None


class Spool:
    """One connection to the file; belongs to one thread. Several connections share the file.

    It opens at its first use, and again if the file was replaced. Every method raises
    SpoolUnavailable with the reason of a failure. Each call is limited by SQLite's time-out for
    locks, unless the disk hangs.
    """

    def __init__(self, path: Path, *, max_bytes: int) -> None:
        self.path = path
        self._limits = SpoolLimits(max_bytes)
        self._connection: sqlite3.Connection | None = None
        self._file: Identity | None = None
        self._version: int | None = None
        # Whether the spool was empty at the last `keys_held`, or could never be read.
        self._seen_empty = True
        self._unreadable_until = 0.0
        self._wrote_at = 0.0

    def probe(self) -> None:
        """Check that the spool would accept documents, by a synced write.

        It requires room for several documents: a full spool thus counts as full until it was partly
        drained.
        """
        self._check_room(self._limits.spare_bytes)
        with self._writing() as connection:
            connection.execute(GROW, (0, 0))

    def append(self, documents: Sequence[RawBSONDocument]) -> None:
        """Append all documents in their order, synced to the disk.

        An unsend empties the copies of its message. They are ahead of it because they share its
        key.
        """
        for _ in range(REPLACED_TIMES):
            for part in _parts(documents):
                self._append(part)
            # Documents in a file that was set aside in the meantime would be lost.
            # guard: spool-still-there -> body
            if self._file == spool_file.identity(self.path):
                break
            self.close()
        else:
            raise SpoolUnavailable("the spool's file is replaced repeatedly")
        for message_id in filter(None, map(unsent_id_of, documents)):
            self._redact(message_id)

    def keys_held(self, documents: Iterable[RawBSONDocument]) -> frozenset[Key]:
        """The keys of these documents that have documents in the spool.

        It is cheap while the spool is empty and unchanged: SQLite's `data_version` shows writes of
        other connections, so this connection must not write itself. If the spool cannot be read, it
        counts as empty only if it was empty at the last read. Otherwise new documents might
        overtake the spooled ones.
        """
        if time.monotonic() >= self._unreadable_until:
            try:
                with self._translated() as connection:
                    self._look_whether_empty(connection)
                    if self._seen_empty:
                        return frozenset()
                    return frozenset(key for key in keys_of(documents) if _holds(connection, key))
            except SpoolUnavailable:
                self._unreadable_until = time.monotonic() + UNREADABLE_SECONDS
        return frozenset() if self._seen_empty else keys_of(documents)

    def held(self) -> SpoolContents:
        with self._translated() as connection:
            documents, size = connection.execute("SELECT documents, bytes FROM totals").fetchone()
            oldest = connection.execute("SELECT bson FROM spool ORDER BY n LIMIT 1").fetchone()
        if oldest is None:
            return SpoolContents()
        with suppress(bson.errors.InvalidBSON):
            return SpoolContents(documents, size, RawBSONDocument(oldest[0]))
        return SpoolContents(documents, size)

    def oldest(self, *, documents: int, max_bytes: int) -> Batch:
        """The oldest documents, up to these limits, but at least one if there is any."""
        rows: list[tuple[int, bytes]] = []
        size = 0
        with self._translated() as connection:
            file = self._file
            query = "SELECT n, bson FROM spool ORDER BY n LIMIT ?"
            for n, data in connection.execute(query, (documents,)):
                size += len(data)
                if rows and size > max_bytes:
                    break
                rows.append((n, data))
        return Batch(tuple(data for _, data in rows), rows[-1][0] if rows else 0, file)

    def remove(self, batch: Batch, *, refused: str | None = None) -> None:
        """Delete the documents of `oldest`, once they are stored elsewhere.

        With a reason why MongoDB will never take them, they are kept in the table `refused`.
        Numbers follow the order of commits and are never reused, so newer documents are kept.
        """
        with self._writing() as connection:
            # guard: batch-of-this-file -> body
            if self._file == batch.file:
                if refused is not None:
                    connection.execute(SET_APART, (refused, batch.last))
                documents, size = connection.execute(SIZES, (batch.last,)).fetchone()
                connection.execute("DELETE FROM spool WHERE n <= ?", (batch.last,))
                connection.execute(GROW, (-documents, -size))

    def _redact(self, message_id: str) -> None:
        with self._writing() as connection:
            query = "SELECT n, bson FROM spool WHERE message_id = ?"
            found = connection.execute(query, (message_id,)).fetchall()
            for n, data in found:
                emptied = bson.encode(redacted(bson.decode(data)))
                connection.execute("UPDATE spool SET bson = ? WHERE n = ?", (emptied, n))
                connection.execute(GROW, (0, len(emptied) - len(data)))

    def tidy(self) -> None:
        """Return unused disk space of an empty spool, outside any request."""
        with self._translated() as connection:
            # As a script: it takes one step for each page and returns no rows.
            connection.executescript("PRAGMA incremental_vacuum")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def close(self) -> None:
        """Close the connection; no effect without one, and the next use opens another."""
        connection, self._connection, self._file = self._connection, None, None
        if connection is not None:
            with suppress(sqlite3.Error):
                connection.close()

    def _append(self, documents: Sequence[RawBSONDocument]) -> None:
        size = sum(len(document.raw) for document in documents)
        self._check_room(size)
        rows = [as_row(document) for document in documents]
        with self._writing() as connection:
            connection.executemany(INSERT, rows)
            connection.execute(GROW, (len(rows), size))

    def _check_room(self, size: int) -> None:
        with self._translated() as connection:
            spool_file.check_room(connection, self.path, self._limits, size)

    def _look_whether_empty(self, connection: sqlite3.Connection) -> None:
        # In this order: a commit between the two is read again the next time.
        [version] = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:
            found = connection.execute("SELECT 1 FROM spool LIMIT 1").fetchone()
            self._seen_empty, self._version = found is None, version

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._translated() as connection:
            self._let_others_write()
            spool_file.begin(connection)
            yield connection
            connection.execute("COMMIT")
            self._wrote_at = time.monotonic()

    def _let_others_write(self) -> None:
        # A connection that writes again at once can lock the others out until they time out.
        left = self._wrote_at + TURN_SECONDS - time.monotonic()
        if left > 0:
            threading.Event().wait(left)

    @contextmanager
    def _translated(self) -> Iterator[sqlite3.Connection]:
        """The connection, opened if necessary; any error rolls back and closes it."""
        try:
            yield self._connected()
        except sqlite3.Error as error:
            damaged, reason = self._file, spool_file.reason(error, self.path)
            self.close()
            if isinstance(reason, SpoolDamaged) and damaged is not None:
                spool_file.set_aside(self.path, damaged, str(reason))
            raise reason from error
        except SpoolUnavailable:
            # Raised before any change.
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


def _parts(documents: Sequence[RawBSONDocument]) -> Iterator[Sequence[RawBSONDocument]]:
    begin = size = 0
    for place, document in enumerate(documents):
        if size and size + len(document.raw) > PART_BYTES:
            yield documents[begin:place]
            begin, size = place, 0
        size += len(document.raw)
    yield documents[begin:]


def _holds(connection: sqlite3.Connection, key: Key) -> bool:
    query = "SELECT 1 FROM spool WHERE key = ? AND channel = ? LIMIT 1"
    return connection.execute(query, (key[1], key[0])).fetchone() is not None
