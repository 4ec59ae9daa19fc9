"""The contract of a feed: where documents come from, in order, without polling.

A feed knows its own kind of position (a token) and hands it on with each document; what is
saved and when is not its business.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from bson.timestamp import Timestamp

from recvq.documents import Document

# How long one step of a feed may wait for something new, so that a stop is seen within a second.
STEP_SECONDS = 0.5
# A feed's own client finds a new primary within this, or its caller opens it again; with the
# driver's 30 s default an open change stream was seen to sit as long after a failover.
SERVER_SELECTION_SECONDS = 1.5


class HistoryLost(Exception):
    """The feed cannot go on from its token: what came since has to be found by a scan (G9)."""


class Reading(NamedTuple):
    """One document, the token with which the feed goes on after it, and its place in time."""

    document: Document
    token: Any
    time: Timestamp


class Feed(Protocol):
    """Documents as they are inserted into recvq, on one thread.

    Every method raises StoreUnavailable when MongoDB cannot be reached, whereupon the feed may
    be opened again with the same token, and HistoryLost when it cannot go on from there.
    """

    name: str

    def open(self, token: Any) -> None:
        """Go on after `token`."""
        ...

    def open_at(self, time: Timestamp) -> None:
        """Begin with what was inserted at or after a time of the server."""
        ...

    def read(self) -> Reading | None:
        """The next document, after at most STEP_SECONDS; None if there was none."""
        ...

    @property
    def token(self) -> Any:
        """Where the feed stands; after a `read` of None it may have moved past other writes."""
        ...

    def close(self) -> None:
        """Give up the cursor; may be called twice."""
        ...
