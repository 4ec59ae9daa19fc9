"""What answers may cost whose reply token is too old: each is a push, which LINE counts. Pure.

A conversation may cost so many calls a day, which its document counts. All together may use a tenth
of what the month has left. A day is Japan's, as LINE's month is. Any more are given up: a user who
writes 1,500 messages at once would else use up a small plan's month by herself.
"""

from __future__ import annotations

from collections import OrderedDict

# So many calls a day, and this share of what the month has left.
A_DAY = 20
SHARE_A_DAY = 10
# Conversations known to have used up their day; one that was forgotten costs a write more.
MOST_KNOWN = 10_000
LATE = "late"
"""The cause of what is given up."""


class LateReplies:
    """What late answers have cost today. Not locked: the outbox's lock guards it.

    The count of all together begins anew with each process, those of the conversations do not.
    """

    def __init__(self, *, a_day: int = A_DAY) -> None:
        self.a_day = a_day
        self._day = ""
        self._paid = 0
        self._used_up: OrderedDict[str, None] = OrderedDict()

    def may_cost(self, conversation: str, day: str, left: int | None) -> bool:
        """Whether one more may be called. `left` is what the month has left, None if unknown."""
        self._turn(day)
        if conversation in self._used_up:
            return False
        # What was paid today was there this morning.
        return left is None or (self._paid + 1) * SHARE_A_DAY <= left + self._paid

    def paid(self, day: str) -> None:
        """One more is called."""
        self._turn(day)
        self._paid += 1

    def used_up(self, conversation: str, day: str) -> None:
        """The conversation's document says that it has had its calls of the day."""
        self._turn(day)
        self._used_up[conversation] = None
        if len(self._used_up) > MOST_KNOWN:
            self._used_up.popitem(last=False)

    def _turn(self, day: str) -> None:
        if day != self._day:
            self._day, self._paid = day, 0
            self._used_up.clear()
