"""MongoDB and the spool as stores of the front desk: each stores documents or says why it cannot.

Every error of the driver and of SQLite becomes a NotStored here. Its text holds no secret and may
be shown to any client. All calls block; each store's calls belong to a thread of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import pymongo
from pymongo.database import Database
from pymongo.errors import PyMongoError

from frontdesk.errors import KeysSpooled, NotStored
from frontdesk.store_choice import Documents
from linedesk.store.client import Client, connect
from linedesk.store.collections import check_recvq
from linedesk.store.documents import RECVQ, Document
from linedesk.store.errors import (
    NotReplicaSet,
    RecvqClosed,
    SetupError,
    SpoolUnavailable,
    StoreUnavailable,
)
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard
from linedesk.store.redaction import unsent_id_of
from linedesk.store.replica_set import is_not_initiated
from linedesk.store.spool.spool import Spool
from linedesk.store.spool.spool_file import Key, keys_of

InsertCall = Callable[[Documents, float], Collection[int]]

SELECTION_SECONDS = 1.0
SOCKET_SECONDS = 5.0
PROBE_SECONDS = 1.0
# After a failed read of the spool, inserts do not read it again for this long.
UNREADABLE_SECONDS = 1.0


def connect_storage(uri: str) -> Client:
    """Return a client whose time-outs suit a request that has one second."""
    return connect(
        uri,
        app_name="linedesk-frontdesk",
        server_selection_seconds=SELECTION_SECONDS,
        socket_seconds=SOCKET_SECONDS,
    )


class Recvq:
    """recvq as the group commit needs it."""

    def __init__(self, database: Database[Document], guard: Guard) -> None:
        self._database = database
        self._collection = database[RECVQ]
        self._guard = guard

    def insert(self, documents: Documents, timeout_seconds: float) -> Collection[int]:
        """Store all documents on a journalled majority; returns the places of duplicates."""
        size = sum(len(document.raw) for document in documents)
        with self._not_stored(), self._guard.inserting(size):
            return insert_documents(self._collection, documents, timeout_seconds=timeout_seconds)

    def probe(self) -> None:
        """Check that MongoDB answers, and that recvq is capped, has its index and has room.

        The check comes first because an insert into a missing recvq would create an uncapped one.
        """
        with self._not_stored():
            try:
                with pymongo.timeout(PROBE_SECONDS):
                    check_recvq(self._database)
            except StoreUnavailable:
                if is_not_initiated(self._database.client):
                    words = "the replica set is not initiated yet: run `linedesk init`"
                    raise NotReplicaSet(words) from None
                raise
            if self._guard.closed is not None:
                # The limit may be over already: the guard's own next check is up to a second away.
                self._guard.refresh()
        if (reason := self._guard.closed) is not None:
            raise NotStored(reason)

    @contextmanager
    def _not_stored(self) -> Iterator[None]:
        try:
            yield
        except RecvqClosed as error:
            raise NotStored(str(error)) from error
        except StoreUnavailable as error:
            reason = self._guard.refused or "MongoDB does not answer"
            raise NotStored(reason, detail=str(error)) from error
        except SetupError as error:
            raise NotStored(str(error)) from error
        except PyMongoError as error:
            # By name and code only: the server's own text can quote the document to insert.
            detail = f"{type(error).__name__} {getattr(error, 'code', None)}"
            raise NotStored("MongoDB refuses, and the log says why", detail=detail) from error


class SpoolStore:
    """The host's spool as a store; `reader` belongs to the thread that inserts into recvq."""

    def __init__(self, writer: Spool, reader: Spool) -> None:
        self._writer = writer
        self._reader = reader
        self._unreadable_until = 0.0

    def insert(self, documents: Documents, timeout_seconds: float) -> Collection[int]:
        """Store all documents in the spool; it reports no duplicates.

        An unsend empties the copies of its message. They are ahead of it because they share its
        key.
        """
        with _spool_errors():
            self._writer.append(documents)
            for message_id in filter(None, map(unsent_id_of, documents)):
                self._writer.redact(message_id)
        return ()

    def probe(self) -> None:
        """Check that the spool would store; raises NotStored."""
        with _spool_errors():
            self._writer.probe()

    def insert_behind(
        self, insert: InsertCall, documents: Documents, timeout_seconds: float
    ) -> Collection[int]:
        """Insert into recvq; raises KeysSpooled while the spool holds a document of these keys."""
        spooled = self._keys_spooled(documents)
        # guard: behind-the-spool
        if spooled:
            raise KeysSpooled(spooled)
        return insert(documents, timeout_seconds)

    def close(self) -> None:
        """Close both connections; they must not be used afterwards."""
        self._writer.close()
        self._reader.close()

    def _keys_spooled(self, documents: Documents) -> frozenset[Key]:
        """Return those keys that the spool holds. If the spool cannot be read, it counts as empty
        only if it was empty at the last read. Otherwise new documents might overtake the spooled
        ones.
        """
        if time.monotonic() < self._unreadable_until:
            return self._unknown(documents)
        try:
            return self._reader.keys_held(documents)
        except SpoolUnavailable:
            self._unreadable_until = time.monotonic() + UNREADABLE_SECONDS
            return self._unknown(documents)

    def _unknown(self, documents: Documents) -> frozenset[Key]:
        return frozenset() if self._reader.seen_empty else keys_of(documents)


@contextmanager
def _spool_errors() -> Iterator[None]:
    try:
        yield
    except SpoolUnavailable as error:
        raise NotStored(str(error), detail=error.detail) from error
