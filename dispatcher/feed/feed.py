"""The contract of a feed: where documents come from, in order, without polling.

A feed knows its own kind of position (a token) and hands it on with each document; what is
saved and when is not its business.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import pymongo
from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.liveness import RENEW_SECONDS
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


@dataclass(frozen=True)
class FeedLimits:
    """How long the reader of a feed waits for what."""

    healthy_seconds: float = 5.0
    """Only a feed that was open for longer begins to fail anew: pauses grow also where each opening
    succeeds and the next read fails."""
    look_seconds: float = 10.0
    """recvq is checked this often while it is quiet, since a lost index shows on no feed."""
    slow_read_seconds: float = 2.0
    """A read that takes longer was not answered in time, and the driver asked again by itself."""
    heartbeat_after_seconds: float = 30.0
    """A heartbeat is stored once the feed was quiet for so long."""
    heartbeat_back_seconds: float = 30.0
    """The feed has to bring the heartbeat within this."""
    heartbeat_insert_seconds: float = 5.0
    renew_seconds: float = RENEW_SECONDS
    """A reason to wait counts for so long, unless it is set again."""
    pause_seconds: Callable[[int], float] = pause_seconds
    """The pause after so many failures in a row."""


FEED_LIMITS = FeedLimits()


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
def patiently(client: Client, *, seconds: float) -> Iterator[None]:
    """Give one opening of a feed so many seconds, but only with a server that answers at once.

    The driver's own time-out for a block counts for finding a server, too: it would not give up.
    Raises HistoryLost where all that time was not enough: no other try would come any further.
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


def feed_client(
    uri: str,
    *,
    app_name: str,
    server_selection_seconds: float = SERVER_SELECTION_SECONDS,
    socket_seconds: float = SOCKET_SECONDS,
    **options: Any,
) -> Client:
    """A client for a feed and nothing else: quick to notice a silent or lost server.

    The driver repeats nothing by itself: the feed's reader opens again, with growing pauses.
    """
    return connect(
        uri,
        app_name=app_name,
        server_selection_seconds=server_selection_seconds,
        socket_seconds=socket_seconds,
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
