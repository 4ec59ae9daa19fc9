"""recvq as a store of the front desk: it stores documents or says why it cannot.

Every error of the driver becomes a NotStored here. Its text holds no secret and may be shown to any
client. All calls block.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

import pymongo
from pymongo.database import Database
from pymongo.errors import PyMongoError

from frontdesk.errors import NotStored
from frontdesk.store_choice import Documents
from linedesk.store.client import Client, connect
from linedesk.store.collections import check_recvq
from linedesk.store.documents import RECVQ, Document
from linedesk.store.errors import RecvqClosed, SetupError, StoreUnavailable
from linedesk.store.insert import insert_documents
from linedesk.store.queue.guard import Guard
from linedesk.store.replica_set import is_not_initiated

SELECTION_SECONDS = 1.0
SOCKET_SECONDS = 5.0
PROBE_SECONDS = 1.0


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
                    raise NotStored(words) from None
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
        except (RecvqClosed, SetupError) as error:
            raise NotStored(str(error)) from error
        except StoreUnavailable as error:
            reason = self._guard.refused or "MongoDB does not answer"
            raise NotStored(reason, detail=str(error)) from error
        except PyMongoError as error:
            # By name and code only: the server's own text can quote the document to insert.
            detail = f"{type(error).__name__} {getattr(error, 'code', None)}"
            raise NotStored("MongoDB refuses, and the log says why", detail=detail) from error
