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

from collections.abc import Iterable
from typing import Any

MOST_AT_A_TIME = 6


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
