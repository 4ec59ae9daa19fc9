"""Timers on the real MongoDB with a clock that is moved by hand, and rows as bots set them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher import timers
from dispatcher.timers import Timers
from linedesk.store.client import Client
from linedesk.store.documents import Document
from linedesk.store.timers import timer_id
from tests.conftest import database as database

# With all collections, unlike that of the other tests of the dispatcher.
from tests.rows import Db

NOON = datetime(2026, 4, 19, 12, 0, tzinfo=UTC)
DAY = timedelta(days=1)
DAILY = {"at": "21:00", "tz": "Asia/Tokyo"}  # noon in UTC
RANG = "timer:main/U1/tea:1:2026-04-19T12:00:00.000Z"


# Short, so that no test waits for a stop or for a reading of the clock. A stopped clock also falls
# behind.
SHORT = {"clock_seconds": 0.02, "step_back_seconds": 3600.0, "read_seconds": 60.0}


class HandClock:
    """Does not move by itself."""

    def __init__(self, now: datetime = NOON) -> None:
        self.now = now
        self.asked = 0

    def __call__(self) -> datetime:
        self.asked += 1
        return self.now

    def move(self, **by: float) -> None:
        self.now += timedelta(**by)


def a_row(name: str = "tea", run_at: datetime | None = NOON, **more: Any) -> Document:
    """A row as the jobworker makes it: due at noon by default."""
    key = more.pop("key", "U1")
    return {
        "_id": timer_id("main", key, name),
        "channel": "main",
        "key": key,
        "name": name,
        "n": 1,
        "runAt": run_at,
        "every": None,
        "data": {"cups": 2},
        "source": {"type": "user", "userId": key},
        "setBy": "E1",
        **more,
    }


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def schedule(
    database: Db,
    client: Client,
    clock: HandClock,
    nothing_left: None,
    short_limits: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[..., Timers]]:
    """Starts the thread of a leader; all of them have to end within the test's time."""
    made: list[Timers] = []

    def start(
        *,
        now: Any = clock,
        inserting: Any = None,
        registry: Any = None,
        leads: Callable[[], bool] = lambda: True,
        **limits: Any,
    ) -> Timers:
        for name, value in {**SHORT, **short_limits, **limits}.items():
            monkeypatch.setattr(timers, name.upper(), value)
        made.append(Timers(database, lease_is_fresh=leads, now=now, registry=registry))
        if inserting is not None:
            monkeypatch.setattr(made[-1]._guard, "inserting", inserting)
        made[-1].start()
        return made[-1]

    yield start
    for one in made:
        one.stop()
    for one in made:
        assert one.join(10)


def rung(database: Db) -> list[str]:
    """The eventIds in recvq, in its order."""
    return [document["eventId"] for document in database["recvq"].find().sort("$natural", 1)]


def asleep(one: Timers) -> bool:
    """Whether it waits for a timer, and knows of nothing earlier."""
    idle = one.activity._since is None
    return idle and one._due_at is not None and not one._wake.is_set()


class Gate:
    """Blocks inserting threads, before or after the insert, until it is opened."""

    def __init__(self, *, after: bool = False) -> None:
        self.came, self.opened = threading.Event(), threading.Event()
        self._after = after

    @contextmanager
    def inserting(self, size: int) -> Iterator[None]:
        if not self._after:
            self._wait()
        yield
        if self._after:
            self._wait()

    def _wait(self) -> None:
        self.came.set()
        assert self.opened.wait(20)
