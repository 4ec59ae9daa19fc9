"""Finds a document whose job kills the whole process, by running suspects alone.

A job that ran when a process died was the first of its key, and was stored before the next start:
such documents are suspects. Starts that meet suspects are counted. A clean end, or a start that
decides all of its suspects, resets the count. From the third counted start on, each suspect runs
alone and is named in `progress.trying` before it runs. A suspect that three starts have found named
there is given up. A decided suspect clears its key; once all are cleared, jobs run in parallel
again.

A conversation with a proved poison event is watched for a day: each of its events is named in
`progress.watched` before it runs. A start that finds a named event there pauses the conversation.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from dispatcher.keyed.queues import QueuedJob
from dispatcher.progress.document import Progress, Start, Trying, Watched
from linedesk.contract import GiveUp, JobResult, Step
from linedesk.runtime.backoff import growing_seconds
from linedesk.store.control import Control, Scope
from linedesk.store.errors import AccessRefused, Replaced, StoreUnavailable

log = logging.getLogger(__name__)

ALONE_FROM_START = 3
MOST_FOUND = 3
NAME_AGAIN_SECONDS = 1.0
WATCHED_FOR = timedelta(days=1)
# `progress.watched` is written as a whole before each event of a watched conversation.
MOST_WATCHED = 50
# With poison in this many conversations at a time the bot is at fault. Further events are not given
# up; their conversations are paused instead.
MOST_CONDEMNED = 10
# From the tenth consecutive start without a dead letter on, a process waits before it begins.
BACK_OFF_AFTER_STARTS = 9
MOST_BACK_OFF_SECONDS = 15.0

CAUSE = "poison: took the process down"
PAUSED_BY = "dispatcher"


class CrashSuspects:
    """The keys whose first document is a suspect. Pure; its caller holds the pool's lock.

    `alone` is whether suspects run alone. A predecessor had at most `most` unfinished documents, so
    only that many keys are suspect, in addition to the keys of `held`. A key for which `watches`
    returns True is suspect with each document, and never waited for.
    """

    def __init__(
        self,
        *,
        alone: bool = False,
        most: int = 0,
        watches: Callable[[Any], bool] = lambda key: False,
    ) -> None:
        self.alone = alone
        self._watches = watches
        self._left = most
        self._keys: set[Any] = set()
        self._running: Any = None

    def meet(self, key: Any) -> None:
        """The key's first document was stored before this start."""
        if self._left > 0:
            self._left -= 1
            self.meet_held(key)

    def meet_held(self, key: Any) -> None:
        """The key has documents in `held`, and its first one may have killed a predecessor."""
        if not self._watches(key):
            self._keys.add(key)

    def close(self) -> None:
        """All documents stored before this start are in memory."""
        self._left = 0

    def may_begin(self, key: Any, jobs: int) -> bool:
        """Whether the key's job may begin beside `jobs` others."""
        if not self.alone or self.are_through:
            return True
        # guard: suspects-run-alone -> return True
        return self._running is None and (jobs == 0 or not self._is_suspect(key))

    def is_watched(self, key: Any) -> bool:
        """Whether each of the key's documents is named before it runs."""
        return self._watches(key)

    def _is_suspect(self, key: Any) -> bool:
        return key in self._keys or self._watches(key)

    def begin(self, key: Any) -> bool:
        """The key's job begins; returns whether it is a suspect."""
        if not self._is_suspect(key):
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
        """Whether all documents stored before this start are in memory, as far as can be known."""
        return self._left == 0

    @property
    def are_through(self) -> bool:
        """Whether every suspect of this start is known and decided."""
        return self._left == 0 and not self._keys


class StartCounter:
    """Counts the starts and names the suspects, durably, for one process.

    `decide` is the worker's function, `later` calls a function after some seconds.
    """

    def __init__(
        self,
        progress: Progress,
        start: Start,
        *,
        decide: Callable[[QueuedJob], JobResult],
        later: Callable[[float, Callable[[], None]], None],
        step: Callable[[Step], None],
        replaced: Callable[[Replaced], None],
    ) -> None:
        self._progress = progress
        self._decide = decide
        self._later = later
        self._step = step
        self._replaced = replaced
        # Of the supervising thread; a worker's step clears it.
        self._is_resetting = False
        self._starts = start.starts + 1
        self.alone = self._starts >= ALONE_FROM_START
        self._is_reset = start.starts == 0 and start.trying is None
        self._lock = threading.Lock()
        # All below under _lock, except for looking up one key.
        self._counted = False
        self._known: dict[str, Trying] = {}
        self._named: Trying | None = None
        self._watched = {one.of: one for one in start.watched if _is_fresh(one)}
        if start.trying is not None:
            self._known[start.trying.name] = start.trying.found_again
        if self.alone:
            log.error(
                "the process keeps dying, unfinished events run one at a time starts=%d",
                self._starts,
            )

    @property
    def back_off_seconds(self) -> float:
        """Return how long to wait before any work begins: 0 unless many starts in a row have
        died.
        """
        beyond = self._starts - BACK_OFF_AFTER_STARTS
        if beyond <= 0:
            return 0.0
        return growing_seconds(beyond, first=1.0, most=MOST_BACK_OFF_SECONDS)

    def set_aside(self, control: Control) -> None:
        """Pause the watched conversations that killed a predecessor; before any work begins.

        Raises StoreUnavailable, Replaced.
        """
        found = [one for one in self._watched.values() if one.running is not None]
        for one in found:
            # guard: paused-before-its-note
            self._pause(one, control)
        if found:
            self._note_watched(*(replace(one, running=None, since=_now()) for one in found))

    def _pause(self, watched: Watched, control: Control) -> None:
        scope, name = Scope(*watched.of), str(watched.running)
        why = f"poison: event {name} took the process down, as one before it did"
        try:
            if control.pause(scope, by=PAUSED_BY, why=why):
                log.error(
                    "conversation paused, its events keep killing the process scope=%s event_id=%s",
                    scope,
                    name,
                )
        except AccessRefused as error:
            # An old role; `linedesk init` updates it. Until then each event has to be given up.
            log.error(  # noqa: TRY400
                'conversation not paused, event given up event_id=%s reason="%s"', name, error
            )
            self._known[name] = Trying(name, MOST_FOUND, watched.since)

    def watches(self, key: Any) -> bool:
        """Whether each of the key's events is named before it runs."""
        found = self._watched.get(key)
        return found is not None and _is_fresh(found)

    def decide(self, job: QueuedJob) -> JobResult:
        """Run the worker's `decide`; a suspect is first counted or named durably."""
        if not job.suspect:
            return self._decide(job)
        try:
            ended = self._note(job)
        except StoreUnavailable as error:
            log.warning("suspect not named, trying again event_id=%s error=%s", job.name, error)
            job.because = "MongoDB does not store the name of the suspect event"
            self._later(NAME_AGAIN_SECONDS, job.resume)
            return JobResult.DEFERRED
        verdict = self._decide(job)
        try:
            ended(verdict is not JobResult.DEFERRED)
        except StoreUnavailable as error:
            # The next name, or `reset`, replaces it.
            log.warning("suspect not cleared event_id=%s error=%s", job.name, error)
        return verdict

    def begin_anew(self) -> None:
        """All suspects are decided: have a worker count the next start as the first.

        The supervising thread never waits for MongoDB.
        """
        if not self._is_resetting and not self._is_reset:
            self._is_resetting = True
            self._step(lambda: self._reporting(self.reset))

    def end(self) -> None:
        """The end is clean, even with jobs still running: the next start counts as the first.

        No conversation is paused for running jobs. While MongoDB is away the next start counts as
        one more.
        """
        self._reporting(self._end)

    def _reporting(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (StoreUnavailable, AccessRefused) as error:
            log.warning("count of starts not reset error=%s", error)
        except Replaced as error:
            self._replaced(error)
        finally:
            self._is_resetting = False

    def reset(self) -> None:
        """Count the next start as the first. Raises StoreUnavailable, Replaced."""
        with self._lock:
            if self._is_reset:
                return
            self._progress.note_starts(0, None)
            self._starts, self._counted, self._is_reset = 0, True, True

    def _end(self) -> None:
        self.reset()
        with self._lock:
            running = [one for one in self._watched.values() if one.running is not None]
            if running:
                self._note_watched(*(replace(one, running=None) for one in running))

    def _note(self, job: QueuedJob) -> Callable[[bool], None]:
        """Name the suspect if required; otherwise count this start if it is not counted.

        Returns a function to call when its run has ended, with whether it is decided.
        """
        known = self._known.get(job.name)
        is_proved = known is not None and known.starts >= MOST_FOUND
        if not is_proved and self.watches(job.queue.key):
            return self._watch(job)
        if self.alone or is_proved:
            return self._name(job, known or Trying(job.name, 0, _now()), is_proved=is_proved)
        with self._lock:
            if not self._counted:
                self._is_reset = False
                self._progress.note_starts(self._starts, None)
                self._counted = True
        return lambda decided: None

    def _name(self, job: QueuedJob, known: Trying, *, is_proved: bool) -> Callable[[bool], None]:
        # A separate object for each run, which identifies a late end of an earlier one.
        trying = replace(known)
        if is_proved:
            if self._is_the_bots(job.queue.key):
                return self._watch(job)
            job.given_up_for = GiveUp(CAUSE, trying.starts, trying.since)
            # guard: watched-before-the-letter
            with self._lock:
                self._begin_watching(job.queue.key)
        with self._lock:
            self._is_reset = False
            self._progress.note_starts(self._starts, trying)
            self._known[trying.name] = trying
            self._named = trying
        return partial(self._clear, trying)

    def _clear(self, trying: Trying, decided: bool) -> None:
        """The run finished: clear the recorded suspect unless a newer one has replaced it."""
        with self._lock:
            if decided:
                self._known.pop(trying.name, None)
                if trying.starts >= MOST_FOUND:
                    # It is given up, so the next start would die of another event.
                    self._starts = min(self._starts, ALONE_FROM_START)
            # guard: late-end-of-a-suspect
            if self._named is not trying:
                return
            self._named = None
            self._progress.note_starts(self._starts, None)

    def _is_the_bots(self, key: Any) -> bool:
        """Whether so many conversations have poison that the bot must be at fault."""
        return len(self._watched.keys() - {key}) >= MOST_CONDEMNED

    def _begin_watching(self, key: Any, running: str | None = None) -> None:
        channel, name = key
        # Otherwise it is no conversation, and no pause covers just this one.
        if isinstance(channel, str) and isinstance(name, str) and channel and name:
            self._note_watched(Watched(channel, name, _now(), running))

    def _watch(self, job: QueuedJob) -> Callable[[bool], None]:
        """Name the event of a watched conversation; it runs beside others."""
        key = job.queue.key
        with self._lock:
            if (found := self._watched.get(key)) is not None:
                self._note_watched(replace(found, running=job.name))
            else:
                self._begin_watching(key, job.name)
            # A separate object for each run, which identifies a late end of an earlier one.
            return partial(self._unwatch, self._watched.get(key))

    def _unwatch(self, named: Watched | None, decided: bool) -> None:
        with self._lock:
            if named is not None and self._watched.get(named.of) is named:
                self._note_watched(replace(named, running=None))

    def _note_watched(self, *changed: Watched) -> None:
        """Record these as they are now; above the limit the longest watched one is dropped."""
        watched = {**self._watched, **{one.of: one for one in changed}}
        by_age = sorted(watched.values(), key=lambda one: one.since)[-MOST_WATCHED:]
        self._progress.note_watched(by_age)
        self._watched = {one.of: one for one in by_age}


def _now() -> datetime:
    return datetime.now(UTC)


def _is_fresh(watched: Watched) -> bool:
    return _now() - watched.since < WATCHED_FOR
