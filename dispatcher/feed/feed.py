"""The contract of a feed: it delivers documents in order, without polling.

A feed has its own kind of position (a token) and delivers it with each document. It does not save
positions.
"""

from __future__ import annotations

import time
from collections.abc import Container, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import pymongo
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure, PyMongoError

from linedesk.store.client import Client, connect
from linedesk.store.documents import Document
from linedesk.store.errors import translate

# The longest wait of one step for a new document, so that a stop takes effect within a second.
STEP_SECONDS = 0.5
# A feed's own client finds a new primary within this time, or its caller opens the feed again. With
# the driver's default of 30 s an open change stream was observed to hang that long after a
# failover.
SERVER_SELECTION_SECONDS = 1.5
# A read without an answer ends after this long; a getMore waits only STEP_SECONDS.
SOCKET_SECONDS = 5.0
# Opening may have to read all other writes in the oplog since the position.
OPEN_SECONDS = 60.0


class PositionLost(Exception):
    """The feed cannot continue from its token: a scan has to find later documents (G9)."""


class RecvqGone(PositionLost):
    """The collection was replaced or removed; all documents before that were read."""

    def __init__(self, how: str) -> None:
        super().__init__(f"recvq was {how}")


def gone_by_rename(before: str, after: str, recvq: str) -> RecvqGone:
    """Return the effect of a rename that removes or replaces recvq. All names are full names."""
    # convertToCapped copies into another collection and renames that.
    return RecvqGone(f"renamed to {after}" if before == recvq else "replaced")


def sorted_out(error: PyMongoError, lost: Container[int | None]) -> Exception:
    """Return PositionLost if the code is one of `lost`; else the error of `translate`."""
    if isinstance(error, OperationFailure) and error.code in lost:
        return PositionLost(f"MongoDB error {error.code}")
    return translate(error)


@contextmanager
def patiently(client: Client, *, seconds: float) -> Iterator[None]:
    """Allow one opening of a feed this many seconds, provided that a server answers at once.

    The driver's own time-out for a block also covers finding a server, so it would not give up.
    Raises PositionLost if the time was not enough: another try would not get further.
    """
    client.admin.command("ping")
    began = time.monotonic()
    try:
        with pymongo.timeout(seconds):
            yield
    except PyMongoError as error:
        if not error.timeout or time.monotonic() - began < seconds / 2:
            raise
        raise PositionLost("the way through the oplog takes too long") from error


def feed_client(uri: str, **options: Any) -> Client:
    """Return a client for a feed only: it notices a silent or lost server quickly.

    The driver repeats no operation by itself: the feed's reader opens again, with growing pauses.
    """
    seconds = {
        "server_selection_seconds": SERVER_SELECTION_SECONDS,
        "socket_seconds": SOCKET_SECONDS,
    }
    return connect(uri, retryReads=False, **{**seconds, **options})


class FeedItem(NamedTuple):
    """One document, the token to continue after it, and its time."""

    document: Document
    token: Any
    time: Timestamp


class Feed(Protocol):
    """Documents in the order of their insertion into recvq, on one thread.

    Every method raises StoreUnavailable when MongoDB cannot be reached; the feed may then be opened
    again with the same token. It raises PositionLost when it cannot continue from the token, and
    RecvqGone only after all earlier inserts were read.
    """

    name: str

    def open(self, token: Any) -> None:
        """Continue after `token`."""

    def open_at(self, time: Timestamp) -> None:
        """Begin with inserts at or after a time of the server."""

    def read(self) -> FeedItem | None:
        """Return the next document, after at most STEP_SECONDS; None if there was none."""

    @property
    def token(self) -> Any:
        """The present position; after a `read` of None it may have moved past other writes."""

    def close(self) -> None:
        """Close the cursor; may be called twice."""
