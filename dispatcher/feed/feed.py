"""The contract of a feed: where documents come from, in order, without polling.

A feed knows its own kind of position (a token) and hands it on with each document; what is
saved and when is not its business.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import pymongo
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from linedesk.store.client import Client, connect
from linedesk.store.documents import Document

# How long one step of a feed may wait for something new, so that a stop is seen within a second.
STEP_SECONDS = 0.5
# A feed's own client finds a new primary within this, or its caller opens it again; with the
# driver's 30 s default an open change stream was seen to sit as long after a failover.
SERVER_SELECTION_SECONDS = 1.5
# An answer that does not come ends a read after this long: a getMore waits STEP_SECONDS only.
SOCKET_SECONDS = 5.0
# Opening may have to walk through all that others wrote to the oplog since the position.
OPEN_SECONDS = 60.0


class PositionLost(Exception):
    """The feed cannot go on from its token: what came since has to be found by a scan (G9)."""


class RecvqGone(PositionLost):
    """The collection that was read is another one now, or none; all that came before was read."""

    def __init__(self, how: str, *, renamed_to: str | None = None, stays: bool = False) -> None:
        super().__init__(f"recvq was {how}")
        self.renamed_to = renamed_to
        """Where its documents are now, as `database.collection`; None if that is nowhere else."""
        self.stays = stays
        """Whether its documents are in the new recvq."""


def gone_by_rename(before: str, after: str, recvq: str) -> RecvqGone:
    """What a rename means for recvq, which it takes away or replaces; all are full names."""
    if before == recvq:
        return RecvqGone("renamed", renamed_to=after)
    # convertToCapped copies into a collection named like this and renames that.
    if ".convertToCapped." in before:
        return RecvqGone("converted", stays=True)
    return RecvqGone("replaced")


@contextmanager
def patiently(client: Client) -> Iterator[None]:
    """Give one opening of a feed OPEN_SECONDS, but only with a server that answers at once.

    The driver's own time-out for a block counts for finding a server, too: it would not give up.
    Raises HistoryLost where all that time was not enough: no other try would come any further.
    """
    client.admin.command("ping")
    began = time.monotonic()
    try:
        with pymongo.timeout(OPEN_SECONDS):
            yield
    except PyMongoError as error:
        if not error.timeout or time.monotonic() - began < OPEN_SECONDS / 2:
            raise
        raise PositionLost("the way through the oplog takes too long") from error


def feed_client(uri: str, *, app_name: str, **options: Any) -> Client:
    """A client for a feed and nothing else: quick to notice a silent or lost server.

    The driver repeats nothing by itself: the feed's reader opens again, with growing pauses.
    """
    return connect(
        uri,
        app_name=app_name,
        server_selection_seconds=SERVER_SELECTION_SECONDS,
        socket_seconds=SOCKET_SECONDS,
        retryReads=False,
        **options,
    )


class FeedItem(NamedTuple):
    """One document, the token with which the feed goes on after it, and its place in time."""

    document: Document
    token: Any
    time: Timestamp


class Feed(Protocol):
    """Documents as they are inserted into recvq, on one thread.

    Every method raises StoreUnavailable when MongoDB cannot be reached, whereupon the feed may
    be opened again with the same token, and HistoryLost when it cannot go on from there;
    RecvqGone only after all that was inserted before was read.
    """

    name: str

    def open(self, token: Any) -> None:
        """Go on after `token`."""
        ...

    def open_at(self, time: Timestamp) -> None:
        """Begin with what was inserted at or after a time of the server."""
        ...

    def read(self) -> FeedItem | None:
        """The next document, after at most STEP_SECONDS; None if there was none."""
        ...

    @property
    def token(self) -> Any:
        """Where the feed stands; after a `read` of None it may have moved past other writes."""
        ...

    def close(self) -> None:
        """Give up the cursor; may be called twice."""
        ...
