"""Moves the clock ahead with a stop at each timer of the bot's server.

A bot's server reports when its next timer is due, and whether all that was due before is done. So
each timer fires at its own time, in order. Without reports the clock moves at once.
"""

import time
from threading import Lock

from linesim.model.platform import Platform
from linesim.model.views import Strict

# At each stop; from the first one on that is not done in time, the stops wait for the timers only.
DONE_SECONDS = 10.0
REPORT_SECONDS = 5.0
# A clock in binary fractions may stop a little before the timer.
MARGIN_SECONDS = 0.001


class Due(Strict):
    """A report: `ahead` is how far ahead the clock was, `at` the Unix time of the next timer."""

    ahead: float
    at: float | None = None
    done: bool


class Stops:
    """Safe to use from any number of threads; one move of the clock at a time."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
        self._moving = Lock()
        self.goal: float | None = None
        """During a move: how far ahead the clock is at its end."""
        self.is_followed = False
        """Whether a bot's server reports."""
        self._due: Due | None = None
        self._is_stopped = False

    def report(self, due: Due) -> None:
        with self._platform.watch.changing():
            self._due, self.is_followed = due, True

    def stop(self) -> None:
        """A move under way ends at once, at its goal."""
        with self._platform.watch.changing():
            self._is_stopped, self.is_followed = True, False

    def advance(self, seconds: float) -> None:
        """Returns at the end; raises ValueError like linesim.model.clock."""
        clock = self._platform.clock
        with self._moving:
            clock.check(seconds)
            # Reports from before may not know a timer that was set since.
            self._due, patience = None, DONE_SECONDS
            self.goal = end = clock.ahead + seconds
            try:
                while self.is_followed and (due := self._when_fired(patience)):
                    patience = patience if due.done else 0.0
                    left = end - clock.ahead
                    if due.at is None or (until := due.at - clock.time()) >= left:
                        break
                    self.move(min(until + MARGIN_SECONDS, left))
            finally:
                self.goal = None
            if end > clock.ahead:
                self.move(end - clock.ahead)

    def move(self, seconds: float) -> None:
        """At once, without a stop."""
        with self._platform.watch.changing():
            self._platform.clock.advance(seconds)
            self._platform.show_clock()

    def _when_fired(self, patience: float) -> Due | None:
        """The report of this time, once every timer until now has fired and the rest is done.

        None, also for later moves, if the bot's server does not report any more.
        """
        clock, until = self._platform.clock, time.monotonic() + patience

        def look() -> Due | bool | None:
            due = self._due
            if self._is_stopped:
                return True
            if due is None or due.ahead != clock.ahead:
                return None
            has_fired = due.at is None or due.at > clock.time()
            return due if has_fired and (due.done or time.monotonic() >= until) else None

        try:
            found = self._platform.watch.wait_for(look, patience + REPORT_SECONDS)
            return found if isinstance(found, Due) else None
        except TimeoutError:
            self.is_followed = False
            return None
