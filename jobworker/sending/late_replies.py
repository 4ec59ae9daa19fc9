"""The cost of answers whose reply token is too old: each is a push, which LINE counts. Pure.

A conversation may cost a limited number of calls a day, which its document counts. All together may
use a tenth of the rest of the month. A day is Japan's, like LINE's month. Further answers are given
up: otherwise a user who writes 1,500 messages at once could use up a small plan's month.
"""

from __future__ import annotations

from collections import Counter

from linedesk.store.limits import allowed


class LateReplies:
    """The cost of late answers by day. Not locked: the outbox's lock guards it.

    The count of all together begins again with each process; those of the conversations, which are
    in their documents, do not.
    """

    def __init__(self) -> None:
        self._paid: Counter[str] = Counter()

    def may_cost(self, day: str, left: int | None, people: int = 1) -> bool:
        """Whether one more may be called, which reaches so many people. `left` is the rest of the
        month, None if unknown.
        """
        more = allowed(left, self.paid_on(day))
        return more is None or people <= more

    def paid_on(self, day: str) -> int:
        """Return how many people all conversations have reached on that day."""
        return self._paid[day]

    def paid(self, day: str, people: int = 1) -> None:
        """Count one more call."""
        self._paid[day] += people
