"""The lines of the ready mailboxes, and which of them begins next. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from dispatcher.conversations.mailbox import Mailbox, ReadyLine, Run
from dispatcher.pool.suspects import CrashSuspects

# While others are ready, one in this many mailboxes that begin is one of them.
SHARE_OF_OTHERS = 5


class ReadyLines:
    """The ready mailboxes, in the order in which they became ready.

    At most `most_jobs` mailboxes are `running` at a time, and at most `most_slow` of their runs are
    slow; those whose handler has run outside the pool begin first, up to `most_threads`. Those that
    are met while `suspects` are sought wait in a line of their own.
    """

    most_threads = most_jobs = most_slow = 1_000

    def __init__(self, running: Collection[Mailbox], suspects: CrashSuspects) -> None:
        self._running = running
        self._suspects = suspects
        self.lines: dict[ReadyLine, OrderedDict[Mailbox, None]] = {
            line: OrderedDict() for line in ReadyLine
        }
        # How many of the line ANSWER began in a row while others were ready.
        self._passed = 0
        self.is_closed = False
        """Whether only those begin whose handler has run outside the pool."""

    @property
    def first(self) -> Mailbox | None:
        """The mailbox whose job may begin now, if any."""
        ended = next(iter(self.lines[ReadyLine.ENDED]), None)
        if ended is not None and len(self._running) < self.most_threads:
            # Also if there is no place for jobs, since no worker takes any.
            return ended
        if self.is_closed or len(self._running) >= self.most_jobs:
            return None
        suspects = self._suspects
        if suspects.sought:
            first = self._first_suspect
            if first is not None and suspects.may_begin(first.name, self.most_jobs):
                return first
            if suspects.is_proving:
                return None
        return self.first_ready

    @property
    def first_ready(self) -> Mailbox | None:
        """The one that begins next, apart from suspects; None if none may begin.

        A slow one begins as soon as another slow run has ended. Otherwise those of the line ANSWER
        come first, so that no user waits behind the events of a thousand timers. Every fifth start
        goes to another one.
        """
        answers, others, slow, *_ = self.lines.values()
        # guard: half-of-the-threads-for-slow -> if slow:
        if slow and self.has_slow_place:
            return next(iter(slow))
        is_their_turn = not answers or self._passed >= SHARE_OF_OTHERS - 1
        return next(iter(others if others and is_their_turn else answers), None)

    @property
    def _first_suspect(self) -> Mailbox | None:
        """The first in the line of suspects; None if it waits for a slow run to end."""
        first = next(iter(self.lines[ReadyLine.SUSPECT]), None)
        is_slow = first is not None and first.head is not None and first.head.is_slow
        return first if not is_slow or self.has_slow_place else None

    @property
    def has_slow_place(self) -> bool:
        """Whether one more slow run may begin."""
        runs = (mailbox.running for mailbox in self._running)
        slow = sum(isinstance(run, Run) and run.job.is_slow for run in runs)
        return slow < self.most_slow

    def enter(self, mailbox: Mailbox) -> None:
        """It is ready."""
        mailbox.line = mailbox.line_of_head
        line = self.lines[mailbox.line]
        line[mailbox] = None
        is_next = mailbox.name is None or mailbox.name in self._suspects.found
        if mailbox.line is ReadyLine.SUSPECT and is_next:
            line.move_to_end(mailbox, last=False)

    def leave(self, mailbox: Mailbox) -> None:
        del self.lines[mailbox.line][mailbox]

    def begin(self, mailbox: Mailbox) -> None:
        """It begins: note whose turn is next."""
        if mailbox.line in (ReadyLine.ANSWER, ReadyLine.OTHER):
            passes = mailbox.line is ReadyLine.ANSWER and self.lines[ReadyLine.OTHER]
            self._passed = self._passed + 1 if passes else 0
