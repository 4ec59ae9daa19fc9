"""Poison: a document whose job takes the whole process down, found by running jobs alone.

A job that was running when a process died was the first of its key, and stored before the next
start: such documents are suspects. From the third start on that meets suspects, with no clean
end and no start that saw all of its suspects through in between, each of them runs alone and is
named in `progress.trying` before it runs. The one that three starts found named there is given
up. A suspect that is decided clears its key; once all are cleared nothing runs alone any more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from dispatcher.job import Condemned, Step, Verdict
from dispatcher.line import Task
from dispatcher.progress import Progress, Start, Trying
from recvq.errors import AccessRefused, Replaced, StoreUnavailable

log = logging.getLogger(__name__)

ALONE_FROM_START = 3
MOST_FOUND = 3
NAME_AGAIN_SECONDS = 1.0

CAUSE = "poison: took the process down"


class Suspects:
    """The keys whose first document is a suspect. Pure; its caller holds the pool's lock.

    `alone` is whether suspects run alone. A predecessor had at most `most` documents in hand, so
    beyond as many keys nothing is suspect, but for the keys of `held`.
    """

    def __init__(self, *, alone: bool = False, most: int = 0) -> None:
        self.alone = alone
        self._left = most
        self._keys: set[Any] = set()
        self._running: Any = None

    def meet(self, key: Any) -> None:
        """The key's first document is one that was stored before this start."""
        if self._left > 0:
            self._left -= 1
            self._keys.add(key)

    def meet_held(self, key: Any) -> None:
        """The key has documents in `held`, and its first one may be what a predecessor died of."""
        self._keys.add(key)

    def close(self) -> None:
        """All that was stored before this start is in hand."""
        self._left = 0

    def may_begin(self, key: Any, jobs: int) -> bool:
        """Whether the key's job may begin next to `jobs` others."""
        if not self.alone:
            return True
        return self._running is None and (jobs == 0 or key not in self._keys)

    def begin(self, key: Any) -> bool:
        """The key's job begins; whether it is a suspect."""
        if not self._keys or key not in self._keys:
            return False
        if self.alone:
            self._running = key
        return True

    def end(self, key: Any, *, decided: bool) -> None:
        """The key's job has ended, or its thread was abandoned."""
        if self._running == key:
            self._running = None
        if decided:
            self._keys.discard(key)

    @property
    def all_met(self) -> bool:
        """Whether all that was stored before this start is in hand, as far as it can be known."""
        return self._left == 0

    @property
    def are_through(self) -> bool:
        """Whether every suspect of this start is known, and decided."""
        return self._left == 0 and not self._keys


class Poison:
    """Counts the starts and names the suspects, durably, for one process.

    `decide` is the worker's, `later` calls a function when some seconds are over.
    """

    def __init__(
        self,
        progress: Progress,
        start: Start,
        *,
        decide: Callable[[Task], Verdict],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        self._progress = progress
        self._decide = decide
        self._later = later
        self._starts = start.starts + 1
        self.alone = self._starts >= ALONE_FROM_START
        self._at_rest = start.starts == 0 and start.trying is None
        self._lock = threading.Lock()
        # All below under _lock.
        self._counted = False
        self._known: dict[str, Trying] = {}
        self._named: Trying | None = None
        if start.trying is not None:
            self._known[start.trying.name] = start.trying.found_again
        if self.alone:
            log.error(
                "the process keeps dying, unfinished events run one at a time starts=%d",
                self._starts,
            )

    def decide(self, task: Task) -> Verdict:
        """As the worker's; a suspect is counted or named first, and that is durable."""
        if not task.suspect:
            return self._decide(task)
        try:
            named = self._note(task)
        except StoreUnavailable as error:
            log.warning("suspect not named, trying again event_id=%s error=%s", task.name, error)
            task.because = "MongoDB does not take the name of what may have killed the process"
            self._later(NAME_AGAIN_SECONDS, task.resume)
            return "parked"
        verdict = self._decide(task)
        if named is not None:
            self._clear(named, decided=verdict != "parked")
        return verdict

    @property
    def is_at_rest(self) -> bool:
        """Whether `rest` has nothing left to do."""
        return self._at_rest

    def rest(self) -> None:
        """The end is clean, or all suspects are through: the next start counts as the first.

        Raises StoreUnavailable, Replaced.
        """
        with self._lock:
            if self._at_rest:
                return
            self._progress.note_starts(0, None)
            self._starts, self._counted, self._at_rest = 0, True, True

    def _note(self, task: Task) -> Trying | None:
        """Name the suspect where they run alone, else count this start if it is not counted."""
        if self.alone:
            return self._name(task)
        with self._lock:
            if not self._counted:
                self._at_rest = False
                self._progress.note_starts(self._starts, None)
                self._counted = True
        return None

    def _name(self, task: Task) -> Trying:
        known = self._known.get(task.name) or Trying(task.name, 0, datetime.now(UTC))
        # One of its own for each run, which tells a late end of an earlier one apart.
        trying = replace(known)
        if trying.starts >= MOST_FOUND:
            task.condemned = Condemned(CAUSE, trying.starts, trying.since)
        with self._lock:
            self._at_rest = False
            self._progress.note_starts(self._starts, trying)
            self._known[trying.name] = trying
            self._named = trying
        return trying

    def _clear(self, trying: Trying, *, decided: bool) -> None:
        """Its run has ended; unless another was named since, nobody dies of it now."""
        with self._lock:
            if decided:
                self._known.pop(trying.name, None)
            if self._named is not trying:
                return
            self._named = None
            try:
                self._progress.note_starts(self._starts, None)
            except StoreUnavailable as error:
                # The next name, or `rest`, takes its place.
                log.warning("suspect not cleared event_id=%s error=%s", trying.name, error)


class Resting:
    """Counts the starts anew: at a good end, or as a worker's step, one at a time.

    The thread that supervises waits for no answer of MongoDB. `replaced` hears of a higher epoch.
    """

    def __init__(
        self,
        poison: Poison,
        *,
        step: Callable[[Step], None],
        replaced: Callable[[Replaced], None],
    ) -> None:
        self._poison = poison
        self._step = step
        self._replaced = replaced
        self._is_under_way = False

    def begin(self) -> None:
        """Have a worker do it, unless one is at it or nothing is left to do."""
        if not self._is_under_way and not self._poison.is_at_rest:
            self._is_under_way = True
            self._step(self.rest)

    def rest(self) -> None:
        """Do it now; where MongoDB is away the next start counts as one more."""
        try:
            self._poison.rest()
        except (StoreUnavailable, AccessRefused) as error:
            log.warning("count of starts not reset error=%s", error)
        except Replaced as error:
            self._replaced(error)
        finally:
            self._is_under_way = False
