"""Decides which messages a handler gets together, and how long the first one waits. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from dispatcher.conversations.mailbox import Following
from linedesk.store.documents import Document, text_of
from linedesk.store.records.events import ACCEPT_TIME

# The longest wait of the first message: its reply token lives for a minute.
MOST_SECONDS = 30.0
# A key decides at most this many events between two saves of progress.
MOST_TOGETHER = 99


@dataclass(frozen=True)
class Gather:
    """A rule to gather messages until none has arrived for `seconds`, up to `most` messages."""

    seconds: float
    most: int


@dataclass(frozen=True)
class Gathered:
    """The present result: `count` messages behind the first one belong to it."""

    count: int
    wait_seconds: float
    """How long to wait for more; 0 if the handler has to run now."""


class Gathering:
    """One first message, from its first run in this process.

    `look` decides by the documents behind it; the first true line applies:

    | behind the first message | the handler runs |
    | --- | --- |
    | `most` messages, or the most that may be decided together | now |
    | another event, or a document that is not in memory | now |
    | messages that were stored before this process began are still read | in `seconds` at most |
    | a predecessor may have begun to handle the first message | now: it has waited |
    | the first message is 30 s old | now |
    | the newest one is `seconds` old | now |
    | none of these | when one of them is true |

    Ages use the time of acceptance. A front desk's clock may be ahead of this one, so a message
    is at least as old as the time since this process saw it first (`clock`, monotonic seconds).
    """

    def __init__(self, gather: Gather, first: Document, *, is_old: bool, clock: float) -> None:
        self._gather = gather
        self._first = first
        self._is_old = is_old
        self._began = clock
        self._newest = first
        self._newest_seen = clock

    def look(
        self,
        following: Following,
        *,
        belongs: Callable[[Document], bool],
        now: datetime,
        clock: float,
    ) -> Gathered:
        """Return how many documents belong to it, and how long it waits for more."""
        most = min(self._gather.most - 1, following.room)
        # guard: nothing-is-passed-over ->
        #     found = list(islice(filter(belongs, following.documents), most))
        found = list(islice(takewhile(belongs, following.documents), most))
        newest = found[-1] if found else self._first
        if newest["_id"] != self._newest["_id"]:
            self._newest, self._newest_seen = newest, clock
        is_full = len(found) == most
        is_followed = len(found) < len(following.documents) or following.is_cut
        if is_full or is_followed:
            return Gathered(len(found), 0.0)
        if following.is_reading:
            return Gathered(len(found), max(0.0, self._began + self._gather.seconds - clock))
        if self._is_old:
            return Gathered(len(found), 0.0)
        left = min(
            self._gather.seconds - _age(self._newest, now, clock - self._newest_seen),
            MOST_SECONDS - _age(self._first, now, clock - self._began),
        )
        return Gathered(len(found), max(0.0, left))


def answered(documents: Sequence[Document]) -> Document:
    """Return the message whose reply token lives longest; the last one if none has a token."""
    return max(documents, key=lambda one: (_has_token(one), one[ACCEPT_TIME]))


def _has_token(document: Document) -> bool:
    return text_of(document, "event", "replyToken") is not None


def _age(document: Document, now: datetime, known_seconds: float) -> float:
    """Return the seconds since it was accepted, at least `known_seconds`."""
    age: float = (now - document[ACCEPT_TIME]).total_seconds()
    return max(age, known_seconds)
