"""Rooms that freeze at a named point of a multicast's way, to wake or to die there.

A frozen thread keeps its resources, and the others of its room wait for it, as in a process that is
frozen.
"""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dispatcher.commit.committer import Change
from jobworker.record.batches import Batches
from linedesk.store.documents import BATCHES
from linedesk.store.errors import Replaced, StoreUnavailable
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

MOST_SECONDS = 60.0


class Killed(BaseException):
    """Ends the thread of a room that died where it was frozen."""


class Freeze:
    """The point at which the first arriving thread freezes."""

    def __init__(self) -> None:
        self.is_reached = threading.Event()
        self._ends = threading.Event()
        self._is_killed = False
        self._lock = threading.Lock()

    def stand_still(self) -> None:
        with self._lock:
            if self.is_reached.is_set():
                return
            self.is_reached.set()
        assert self._ends.wait(MOST_SECONDS)
        if self._is_killed:
            raise Killed

    def wake(self) -> None:
        self._ends.set()

    def kill(self) -> None:
        """Also before any thread has arrived, which then never freezes; a woken one lives."""
        self._is_killed = not self._ends.is_set()
        self._ends.set()


def parts_of(room: Room) -> tuple[Any, Batches, Any]:
    """The parts of a room's multicasts: its sender, their documents, and the calls of LINE."""
    sender = room.desk.sender
    return sender, sender._rows, room.desk.line.client


def freeze_before(owner: Any, name: str) -> Callable[[Freeze], None]:
    """Freeze before a method of this one object does anything."""

    def apply(freeze: Freeze) -> None:
        method = getattr(owner, name)

        def then(*args: Any, **kwargs: Any) -> Any:
            freeze.stand_still()
            return method(*args, **kwargs)

        setattr(owner, name, then)

    return apply


def freeze_after(owner: Any, name: str) -> Callable[[Freeze], None]:
    """Freeze once a method of this one object has done its work."""

    def apply(freeze: Freeze) -> None:
        method = getattr(owner, name)

        def then(*args: Any, **kwargs: Any) -> Any:
            done = method(*args, **kwargs)
            freeze.stand_still()
            return done

        setattr(owner, name, then)

    return apply


def freeze_sent(room: Room, kind: str) -> Callable[[Freeze], None]:
    """Freeze when MongoDB has such a change of a batch, whose group is not committed yet."""

    def apply(freeze: Freeze) -> None:
        committer = room.committer
        send = committer._send

        def then(changes: Sequence[Change]) -> None:
            send(changes)
            if any((one.collection, one.kind) == (BATCHES, kind) for one in changes):
                try:
                    freeze.stand_still()
                except Killed as killed:
                    # The threads that wait for this group end, too.
                    raise Replaced("died") from killed

        committer._send = then  # type: ignore[method-assign]

    return apply


def points_of(room: Room) -> dict[str, Callable[[Freeze], None]]:
    """The points of a multicast's way, in their order."""
    _, rows, client = parts_of(room)
    return {
        "claiming": freeze_before(rows, "make"),
        "claims sent": freeze_sent(room, "update"),
        "claimed": freeze_after(rows, "make"),
        "calling": freeze_before(client, "_call"),
        "called": freeze_after(client, "_call"),
        "answered": freeze_before(rows, "end"),
        "end sent": freeze_sent(room, "delete"),
        "ended": freeze_after(rows, "end"),
    }


def next_points_of(room: Room) -> dict[str, Callable[[Freeze], None]]:
    """The points of a leader that finds the work of another one."""
    _, rows, client = parts_of(room)
    return {
        "outboxes read": freeze_after(room.desk.outbox, "_read"),
        "calling": freeze_before(client, "_call"),
        "called": freeze_after(client, "_call"),
        "end sent": freeze_sent(room, "delete"),
        "ended": freeze_after(rows, "end"),
    }


@contextmanager
def frozen(room: Room, freeze: Callable[[Freeze], None]) -> Iterator[Freeze]:
    """The room's first thread at that point freezes; at the end it dies, if it has not woken.

    The room must not have started.
    """
    one = Freeze()
    freeze(one)
    try:
        yield one
    finally:
        one.kill()


def until_idle(room: Room) -> None:
    """Nothing is under way on its threads: it has ended, waits, or has nothing more to do."""

    def is_busy() -> bool:
        threads, now = room.pool.threads.useful, time.monotonic()
        return any(one.is_alive() and one.has_been_at_it(now) for one in threads)

    eventually(lambda: not is_busy())


def not_confirmed(owner: Any, name: str, *, lands: bool) -> None:
    """The next call of a method that writes ends as in an outage, with its write done or not."""
    method = getattr(owner, name)

    def once(*args: Any, **kwargs: Any) -> Any:
        setattr(owner, name, method)
        if lands:
            method(*args, **kwargs)
        raise StoreUnavailable("not confirmed in time")

    setattr(owner, name, once)
