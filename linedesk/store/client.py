"""Opens MongoDB clients with the same time-outs for every process."""

from __future__ import annotations

import atexit
from typing import Any

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.collection import Collection
from pymongo.monitoring import ConnectionClosedReason
from pymongo.read_concern import ReadConcern
from pymongo.synchronous.monitor import _shutdown_resources
from pymongo.synchronous.pool import Connection, Pool
from pymongo.write_concern import WriteConcern

from linedesk.store.documents import Document

Client = MongoClient[Document]

# It waits up to 0.5 s for the end of the driver's threads, which hold nothing any more.
atexit.unregister(_shutdown_resources)

WTIMEOUT_SECONDS = 5.0

# A `w: 1` record was lost in a failover after its message had been sent.
# guard: journalled-majority -> DURABLE = WriteConcern(w=1, wtimeout=int(WTIMEOUT_SECONDS * 1000))
DURABLE = WriteConcern(w="majority", j=True, wtimeout=int(WTIMEOUT_SECONDS * 1000))
MAJORITY = ReadConcern("majority")
LOCAL = ReadConcern("local")

# One unreadable value must not hide the other rows: a date beyond Python's range, a text that is
# not UTF-8.
ANY_DATE: CodecOptions[Document] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
AS_STORED: CodecOptions[RawBSONDocument] = ANY_DATE.with_options(
    document_class=RawBSONDocument, unicode_decode_error_handler="replace"
)


def durable(collection: Collection[Any]) -> Collection[Any]:
    """The collection with journalled writes and reads on a majority."""
    return collection.with_options(write_concern=DURABLE, read_concern=MAJORITY)


class SessionPool(Pool):
    """Keeps no connection without sessions.

    The driver asks once, when a connection is made. One made during a step-down, to a node that is
    neither primary nor secondary, would have no sessions when the node is primary again.
    """

    def checkin(self, conn: Connection) -> None:
        """Return a connection to the pool, or close it."""
        if not (conn.supports_sessions or self.is_sdam):
            conn.close_conn(ConnectionClosedReason.STALE)
        super().checkin(conn)


def connect(
    uri: str,
    *,
    app_name: str,
    server_selection_seconds: float = 5.0,
    socket_seconds: float = 20.0,
    **options: Any,
) -> Client:
    """A client with a time-out for each wait: server selection, connecting, and each answer.

    It connects lazily: opening it does not fail while MongoDB is down. Reads and writes use a
    majority unless a collection sets otherwise.
    """
    return MongoClient(
        uri,
        appname=app_name,
        tz_aware=True,
        serverSelectionTimeoutMS=int(server_selection_seconds * 1000),
        connectTimeoutMS=int(min(server_selection_seconds, 5.0) * 1000),
        socketTimeoutMS=int(socket_seconds * 1000),
        w="majority",
        journal=True,
        wTimeoutMS=int(WTIMEOUT_SECONDS * 1000),
        readConcernLevel="majority",
        _pool_class=SessionPool,
        **options,
    )


def aware_options() -> CodecOptions[Document]:
    """The codec options of `connect`, for decoding a document outside a collection."""
    return CodecOptions(tz_aware=True)
