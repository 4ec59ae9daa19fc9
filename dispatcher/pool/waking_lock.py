"""The lock of all conversations, for changes of the mailboxes: its release wakes threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Protocol

from dispatcher.pool.threads import Thread

# Work without a key, done before any new job, such as one call of the LINE API.
Step = Callable[[], None]


class Work(Protocol):
    """The work that waits; read under the lock."""

    @property
    def may_begin(self) -> bool:
        """Whether a thread may begin a job."""

    @property
    def save_wanted(self) -> int:
        """2 if someone waits for a save, 1 if there is progress to save, else 0."""

    @property
    def has_room(self) -> bool:
        """Whether one more document may be taken in hand."""


class WakingLock:
    """Its release wakes the threads that have work now: an idle one of the pool, the one that
    commits, and the reader of the feed that waits for room.

    An idle thread that has taken work wakes the next one, as it releases the lock.
    """

    def __init__(self, lock: threading.Lock, work: Work) -> None:
        self._lock = lock
        self._work = work
        self.wake_saver: Callable[[], None] = lambda: None
        """Wakes the thread that commits."""
        self.room = threading.Event()
        """Cleared by the reader before it waits for room."""
        # Under the lock.
        self.steps: deque[Step] = deque()
        self.idle: list[Thread] = []
        self.saver_woken = 0
        """The reason why the committing thread was woken since it began its last group."""

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        try:
            if self.idle and (self.steps or self._work.may_begin):
                self.idle.pop().wake.set()
            if (wanted := self._work.save_wanted) > self.saver_woken:
                self.saver_woken = wanted
                self.wake_saver()
            if not self.room.is_set() and self._work.has_room:
                self.room.set()
        finally:
            self._lock.release()
