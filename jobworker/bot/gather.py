"""Which messages a handler gets together, and how long the first one waits for the others. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile

from linedesk.contract import Following
from linedesk.store.documents import Document, text_of
from linedesk.store.records.events import ACCEPT_TIME

# The first message waits no longer: its reply token lives for a minute.
MOST_SECONDS = 30.0
# A key decides so many events between two saves of progress at most.
MOST_TOGETHER = 99


@dataclass(frozen=True)
class Gather:
    """What a rule says: messages are gathered until for `seconds` none has come, `most` at most."""

    seconds: float
    most: int


@dataclass(frozen=True)
class Gathered:
    """How far a gathering has come: `count` messages behind the first one belong to it."""

    count: int
    wait_seconds: float
    """How long to wait for more; 0 where the handler is to run now."""


class Gathering:
    """One first message, from its first run in this process.

    `look` judges by what stands behind it, the first line that is true:

    | behind the first message | the handler runs |
    | --- | --- |
    | `most` messages are there, or as many as may be decided together | now |
    | behind those that belong to it stands anything else, or what is not in hand | now |
    | messages that were stored before this process began are still read | in `seconds` at most |
    | a predecessor may have had the first one in hand | now: it has waited |
    | the first message is 30 s old | now |
    | the newest one is `seconds` old | now |
    | none of these | when one of them is true |

    Ages go by the time of acceptance. A front desk's clock may be ahead of this one: so a message
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
        """Which of the documents belong to it, and for how long it waits for more."""
        most = min(self._gather.most - 1, following.room)
        # guard: nothing-is-passed-over ->
        #     found = list(islice(filter(belongs, following.documents), most))
        found = list(islice(takewhile(belongs, following.documents), most))
        self._note_newest(found, clock)
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

    def _note_newest(self, found: Sequence[Document], clock: float) -> None:
        newest = found[-1] if found else self._first
        if newest["_id"] != self._newest["_id"]:
            self._newest, self._newest_seen = newest, clock


def answered(documents: Sequence[Document]) -> Document:
    """The message whose reply token lives longest; the last one accepted where none has a token."""
    return max(documents, key=lambda one: (_has_token(one), one[ACCEPT_TIME]))


def _has_token(document: Document) -> bool:
    return text_of(document, "event", "replyToken") is not None


def _age(document: Document, now: datetime, known_seconds: float) -> float:
    """Seconds since it was accepted; no less than for how long this process knows it."""
    age: float = (now - document[ACCEPT_TIME]).total_seconds()
    return max(age, known_seconds)
