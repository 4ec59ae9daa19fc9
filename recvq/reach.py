"""How far the newest document of a capped collection has come round to the oldest unread one.

Arithmetic over record ids and bytes only; `recvq/guard.py` reads the numbers. A capped
collection overwrites by bytes, so bytes are what is counted.
"""

from __future__ import annotations

from dataclasses import dataclass

WARN_SHARE = 0.80
WARN_AGAIN_SHARE = 0.75
CLOSE_SHARE = 0.95
OPEN_SHARE = 0.90

# The feed's order and that of recvq were seen to differ by up to 33 places with several writers:
# so many documents before the last finished one may be unread, too.
DISORDER = 40
# Up to so many unread documents are added up anew at each look: it takes MongoDB 10 ms.
FEW = 10_000
# A longer sum is made again only after so many times the time that it took.
REST = 10.0


@dataclass(frozen=True)
class Marks:
    """Record ids of the last finished document and of the newest one.

    `after` is None where nothing is finished yet, or where it is in recvq no more.
    """

    after: int | None
    newest: int

    @property
    def behind(self) -> int | None:
        """The record id behind which a document may be unread; None: any may be."""
        return None if self.after is None else max(self.after - DISORDER, 0)


@dataclass(frozen=True)
class Sum:
    """The bytes of all documents behind one record id, up to and with another."""

    behind: int
    upto: int
    bytes: int
    due_at: float = 0.0
    """When the whole sum may be made again, for what was finished since."""

    def serves(self, marks: Marks, behind: int) -> bool:
        """Whether it is enough to add what came since, instead of summing anew.

        That tells too much by what was finished since, and never too little.
        """
        return self.behind <= behind <= self.upto <= marks.newest and marks.newest - behind > FEW


@dataclass(frozen=True)
class Reach:
    """How much of the collection is unread, in bytes, and when that closes it."""

    unread_bytes: int
    capped_bytes: int

    @property
    def share(self) -> float:
        """0 to 1; the collection overwrites unread documents beyond 1."""
        return min(1.0, self.unread_bytes / self.capped_bytes)

    def closes(self, *, closed: bool) -> bool:
        """Whether inserts must stop; once closed, not before there is room again.

        A collection that opened at the same share that closed it would do so with each document
        that is finished, and its writers would turn to and fro between two stores.
        """
        return self.share >= (OPEN_SHARE if closed else CLOSE_SHARE)

    def warns(self, *, warned: bool) -> bool:
        """Whether it is time to tell the operator, who then has been told until it falls again."""
        return self.share >= (WARN_AGAIN_SHARE if warned else WARN_SHARE)

    def plus(self, more_bytes: int) -> Reach:
        """The same with so many bytes more."""
        return Reach(self.unread_bytes + more_bytes, self.capped_bytes)
