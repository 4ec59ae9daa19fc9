"""Finds an event whose job kills the whole process, by running few suspects at a time.

A job that ran when a process died was the first of its key, and was stored before the next start:
such events are suspects. Starts that meet suspects are counted. A clean end, an end that a thread
without a job explains, or a start that decides all of its suspects, resets the count. The end of a
process whose lease was taken is subtracted. From the third counted start on, suspects are sought:

| a start finds named | suspects run | other events |
| --- | --- | --- |
| none | named, at most six at a time | run beside them |
| n | named; these first and at most n / 2 of them at a time, then the others as above | the same |
| one, for the second time | its proof: it runs first, with nothing beside it | wait for that |
| one, after its proof | it is given up; the others as above | run beside them |

A suspect is named durably before it runs, and until its run ends. So a death names few events, the
one that caused it among them, and half as many each time. An innocent one ends its run, which
clears its key. Events that kill only together soon run apart, and end, too. A proof lasts at most 5
s, and twice as long after each further death. Then others run beside it, and its next death counts
as no proof.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dispatcher.commit.progress import Progress, Start, Trying
from dispatcher.conversations.mailbox import Condemned, Job, JobResult, Wait
from linedesk.runtime.backoff import growing_seconds
from linedesk.store.errors import AccessRefused, Replaced, StoreUnavailable
from linedesk.store.records.letters import POISON
from linedesk.store.records.waits import Why

log = logging.getLogger(__name__)

MOST_AT_A_TIME = 6
SOUGHT_FROM_START = 3
MOST_FOUND = 3
PROOF_SECONDS = 5.0
MOST_PROOF_SECONDS = 600.0
NAME_AGAIN_SECONDS = 1.0
# From the tenth consecutive start without a dead letter on, a process waits before it begins.
BACK_OFF_AFTER_STARTS = 9
MOST_BACK_OFF_SECONDS = 15.0


class CrashSuspects:
    """The keys whose first document is a suspect. Pure; its caller holds the pool's lock.

    `sought` is whether they are sought, `found` are the names that this start has found. With
    `proof` one of these is to be proved. A predecessor had at most `most` unfinished documents, so
    only that many keys are suspect, in addition to the keys of `held`.
    """

    def __init__(
        self,
        *,
        sought: bool = False,
        found: Iterable[str] = (),
        proof: bool = False,
        most: int = 0,
    ) -> None:
        self.sought = sought
        self.found = set(found)
        """Those that are not decided yet."""
        self._half = max(1, len(self.found) // 2)
        self._proof = proof
        self._left = most
        self._keys: set[Any] = set()
        # The names of the running ones, by key.
        self._running: dict[Any, str] = {}

    @property
    def lines_up(self) -> bool:
        """Whether a key that is met now waits in the line of suspects."""
        return self.sought and not self.all_met

    def meet(self, key: Any) -> None:
        """The key's first document was stored before this start."""
        if self._left > 0:
            self._left -= 1
            self.meet_held(key)

    def meet_held(self, key: Any) -> None:
        """The key has documents in `held`, and its first one may have killed a predecessor."""
        self._keys.add(key)

    def close(self) -> None:
        """All documents stored before this start are in memory."""
        self._left = 0

    def may_begin(self, name: str | None, places: int) -> bool:
        """Whether the first in line may begin; one without a name is only read: that is safe."""
        if name is None:
            return True
        if self.is_proving:
            return name in self.found
        room = min(MOST_AT_A_TIME, max(1, places // 2))
        # guard: half-of-those-found
        if name in self.found or not self.found.isdisjoint(self._running.values()):
            room = min(room, self._half)
        return len(self._running) < room

    @property
    def is_proving(self) -> bool:
        """Whether nothing else may begin, because one of them is to be proved."""
        # guard: nothing-beside-a-proof -> return False
        return self._proof and not self.are_through

    def end_proof(self) -> None:
        """From now on others run beside it."""
        self._proof = False

    @property
    def count(self) -> tuple[int, int]:
        """How many are not decided yet, and how many of these run."""
        return len(self._keys), len(self._running)

    def begin(self, key: Any, name: str | None) -> bool:
        """The key's job begins; returns whether it is a suspect."""
        is_suspect = key in self._keys
        if self.sought and is_suspect and name is not None:
            self._running[key] = name
        return is_suspect

    def end(self, key: Any, *, decided: bool) -> None:
        """The key's job has ended, or its thread was abandoned."""
        name = self._running.pop(key, None)
        if decided:
            self._keys.discard(key)
            if name in self.found:
                self.found.remove(name)
                self.end_proof()

    @property
    def all_met(self) -> bool:
        """Whether all documents stored before this start are in memory, as far as can be known."""
        return self._left == 0

    @property
    def are_through(self) -> bool:
        """Whether every suspect of this start is known and decided."""
        return self._left == 0 and not self._keys


class StartCounter:
    """Counts the starts and names the suspects, durably; `decide` is the worker's function."""

    def __init__(
        self,
        progress: Progress,
        start: Start,
        *,
        decide: Callable[[Job], JobResult | Wait],
        later: Callable[[float, Callable[[], None]], None],
        step: Callable[[Callable[[], None]], None],
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
        self._explained = start.explained
        self.sought = self._starts - self._explained >= SOUGHT_FROM_START
        self._is_reset = start.starts == 0 and not start.trying
        self._lock = threading.Lock()
        # All below under _lock, except for looking up one key.
        self._counted = False
        self._known = {one.name: replace(one, starts=one.starts + 1) for one in start.trying}
        self._named: dict[str, Trying] = {}
        # The name of the one that is to be proved.
        self._proof: str | None = None
        if self.sought and [one.starts for one in self._known.values()] == [MOST_FOUND - 1]:
            self._proof = next(iter(self._known))
        if self.sought:
            log.error(
                "the process keeps dying, unfinished events run few at a time starts=%d named=%d",
                self._starts,
                len(self._known),
            )

    def suspects(self, *, most: int) -> CrashSuspects:
        """Return the suspects of a pool with at most `most` unfinished documents."""
        return CrashSuspects(
            sought=self.sought,
            found=self._known,
            proof=self._proof is not None,
            most=most,
        )

    def limit_proof(self, release: Callable[[], None]) -> None:
        """Call `release` once the proof has lasted long enough; others may then run beside it."""
        if self._proof is not None:
            deaths = max(1, self._starts - SOUGHT_FROM_START - 1)
            seconds = growing_seconds(deaths, first=PROOF_SECONDS, most=MOST_PROOF_SECONDS)
            self._later(seconds, lambda: self._step(lambda: self._end_proof(release)))

    def _end_proof(self, release: Callable[[], None]) -> None:
        try:
            with self._lock:
                self._proof = None
                # guard: no-proof-beside-others
                if self._named:
                    self._write(self._named)
        except StoreUnavailable as error:
            log.warning("proof not ended, trying again error=%s", error)
            again = partial(self._end_proof, release)
            self._later(NAME_AGAIN_SECONDS, lambda: self._step(again))
            return
        release()

    @property
    def back_off_seconds(self) -> float:
        """How long to wait before any work begins: 0 unless many starts in a row have died."""
        beyond = self._starts - self._explained - BACK_OFF_AFTER_STARTS
        if beyond <= 0:
            return 0.0
        return growing_seconds(beyond, first=1.0, most=MOST_BACK_OFF_SECONDS)

    def decide(self, job: Job) -> JobResult | Wait:
        """Run the worker's `decide`; a suspect is first counted or named durably."""
        if not job.suspect:
            return self._decide(job)
        try:
            ended = self._note(job)
        except StoreUnavailable as error:
            log.warning("suspect not named, trying again event_id=%s error=%s", job.name, error)
            return Wait.because(Why.SUSPECT_NOT_STORED, NAME_AGAIN_SECONDS)
        verdict = self._decide(job)
        try:
            ended(isinstance(verdict, JobResult))
        except StoreUnavailable as error:
            # The next name, or `reset`, replaces it.
            log.warning("suspect not cleared event_id=%s error=%s", job.name, error)
        return verdict

    def begin_anew(self) -> None:
        """All suspects are decided: a worker's thread counts the next start as the first."""
        if not self._is_resetting and not self._is_reset:
            self._is_resetting = True
            self._step(lambda: self._reporting(self.reset))

    def end(self) -> None:
        """The end is clean: the next start counts as the first, or as one more without MongoDB."""
        self._reporting(self.reset)

    def _reporting(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (StoreUnavailable, AccessRefused) as error:
            log.warning("count of starts not reset error=%s", error)
        except Replaced as error:
            self._replaced(error)
        finally:
            self._is_resetting = False

    def explain(self) -> None:
        """The lease was taken: this start does not count, whatever its successor has found."""
        if self._counted and not self._is_reset:
            self._reporting(self._progress.note_explained)

    def reset(self) -> None:
        """Count the next start as the first. Raises StoreUnavailable, Replaced."""
        with self._lock:
            if self._is_reset:
                return
            self._progress.note_starts(0)
            self._starts, self._counted, self._is_reset = 0, True, True
            self._named = {}

    def _note(self, job: Job) -> Callable[[bool], None]:
        """Name the suspect if required; otherwise count this start if it is not counted.

        Returns a function to call when its run has ended, with whether it is decided.
        """
        known = self._known.get(job.name)
        is_proved = known is not None and known.starts >= MOST_FOUND
        if self.sought or is_proved:
            return self._name(job, known or Trying(job.name, 0, datetime.now(UTC)))
        with self._lock:
            if not self._counted:
                self._write({})
        return lambda decided: None

    def _name(self, job: Job, known: Trying) -> Callable[[bool], None]:
        # A separate object for each run, which identifies a late end of an earlier one.
        trying = replace(known)
        if known.starts >= MOST_FOUND:
            job.given_up_for = Condemned(POISON, trying.starts, trying.since)
        with self._lock:
            self._known[trying.name] = trying
            self._write({**self._named, trying.name: trying})
        return partial(self._clear, trying)

    def _write(self, named: dict[str, Trying]) -> None:
        """Record the count of starts, and these as running."""
        self._is_reset = False
        self._progress.note_starts(self._starts, *map(self._to_store, named.values()))
        self._counted, self._named = True, named

    def _to_store(self, trying: Trying) -> Trying:
        """Only from a proof does a death lead to a dead letter: beside others it counts once."""
        is_proof = trying.name == self._proof or trying.starts >= MOST_FOUND
        return trying if is_proof else replace(trying, starts=min(trying.starts, 1))

    def _clear(self, trying: Trying, decided: bool) -> None:
        """The run finished: clear the recorded suspect unless a newer run has replaced it."""
        with self._lock:
            if decided:
                self._known.pop(trying.name, None)
                if trying.starts >= MOST_FOUND:
                    # It is given up, so the next start would die of another event.
                    self._starts = min(self._starts, SOUGHT_FROM_START)
            # guard: late-end-of-a-suspect
            if self._named.get(trying.name) is not trying:
                return
            self._write({name: one for name, one in self._named.items() if name != trying.name})
