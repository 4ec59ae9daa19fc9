"""Many users who write in parallel, each one message after the other.

A message that was not accepted is redelivered until it is, as in LINE with redelivery on.
"""

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from linesim.model.world import User
from linesim.people.sim import Sim

FIRST_PAUSE_SECONDS = 0.05
MOST_PAUSE_SECONDS = 1.0
# A delayed load catches up by at most this.
CATCH_UP_SECONDS = 1.0


@dataclass(frozen=True)
class Counts:
    """Messages sent and accepted (2xx), and redeliveries."""

    sent: int = 0
    accepted: int = 0
    retried: int = 0


class Load:
    """Sends texts `<user's name>-<number>`, all different where the names are.

    `rate`: messages a second, of all users together; None: as fast as they are accepted. `total`:
    the number in all; None: until `stop`. `concurrency`: the number of users that write at the same
    time, each thread for its own users, chosen by `seed`. A message that was not accepted is
    redelivered after `first_pause_seconds`, then after pauses that double up to a second. Raises
    ValueError for a load without users, or without an end and a rate.
    """

    def __init__(
        self,
        sim: Sim,
        users: Sequence[User],
        *,
        rate: float | None = None,
        total: int | None = None,
        seed: int = 0,
        concurrency: int = 8,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
    ) -> None:
        if not users or (rate is None and total is None) or (rate is not None and rate <= 0):
            raise ValueError("a load needs users, and a rate above 0 or a total")
        self._sim = sim
        self._first_pause_seconds = first_pause_seconds
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._counts = {"sent": 0, "accepted": 0, "retried": 0}  # under _lock
        self._left = total  # under _lock
        self._failure: BaseException | None = None  # under _lock
        count = min(concurrency, len(users))
        gap = count / rate if rate else 0.0
        self._threads = [
            threading.Thread(
                target=self._run,
                args=(users[place::count], gap, random.Random(f"{seed}/{place}")),
                name=f"linesim-load-{place:02}",
            )
            for place in range(count)
        ]

    @property
    def counts(self) -> Counts:
        with self._lock:
            return Counts(**self._counts)

    @property
    def ended(self) -> bool:
        """Whether all is sent or it was stopped, and no thread is left."""
        begun = self._begun()
        alive = any(thread.is_alive() for thread in begun)
        return not alive and (bool(begun) or self._stopping.is_set())

    def start(self) -> None:
        """After a stop nothing is sent."""
        with self._lock:
            for thread in self._threads:
                thread.start()

    def stop(self) -> None:
        """Sends no new message, and does not retry refused ones."""
        self._stopping.set()

    def join(self, timeout_seconds: float = 60.0) -> bool:
        """Waits until all is sent or it was stopped; returns whether no thread is left. Raises the
        error of a dead thread.
        """
        deadline = time.monotonic() + timeout_seconds
        begun = self._begun()
        for thread in begun:
            thread.join(max(deadline - time.monotonic(), 0))
        with self._lock:
            if self._failure is not None:
                raise self._failure
        return not any(thread.is_alive() for thread in begun)

    def _begun(self) -> list[threading.Thread]:
        with self._lock:
            return [thread for thread in self._threads if thread.ident is not None]

    def _run(self, users: Sequence[User], gap: float, chosen: random.Random) -> None:
        numbers = dict.fromkeys((user.user_id for user in users), 0)
        due = time.monotonic() + chosen.random() * gap
        try:
            while self._take():
                if self._stopping.wait(max(due - time.monotonic(), 0)):
                    return
                user = chosen.choice(users)
                numbers[user.user_id] += 1
                self._send(user, f"{user.name}-{numbers[user.user_id]}")
                due = max(due + gap, time.monotonic() - CATCH_UP_SECONDS)
        except Exception as error:  # noqa: BLE001 (join raises it)
            with self._lock:
                self._failure = error
            self._stopping.set()

    def _take(self) -> bool:
        """Takes one message of those left; False when none is, or at a stop."""
        with self._lock:
            if self._stopping.is_set() or self._left == 0:
                return False
            if self._left is not None:
                self._left -= 1
            return True

    def _send(self, user: User, text: str) -> None:
        """Returns once the bot server has accepted it, or at a stop."""
        self._count("sent")
        delivery = self._sim.say(user, text)
        pause = self._first_pause_seconds
        while not delivery.delivered:
            if self._stopping.wait(pause):
                return
            pause = min(pause * 2, MOST_PAUSE_SECONDS)
            self._count("retried")
            delivery = self._sim.redeliver(delivery)
        self._count("accepted")

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1
