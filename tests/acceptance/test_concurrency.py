"""Several calls at a time, as LINE and the people see them, through the real processes."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

import linesim
from linesim.model.calls import Call
from tests.acceptance.conftest import House

AT_ONCE = 8
MESSAGES = 10
SETTINGS = {
    "BOT": "acceptance_bots:pusher",
    "LINE_ACCESS_INTERVAL_MS": "0",
    "LINE_CONCURRENCY": str(AT_ONCE),
}


@pytest.fixture
def sim() -> Iterator[linesim.Sim]:
    """It takes as long for an answer as LINE."""
    with linesim.running(latency_ms=50) as sim:
        yield sim


@pytest.fixture
def house(
    tmp_path: Path, mongo_uri: str, database: Database[Any], sim: linesim.Sim
) -> Iterator[House]:
    house = House(tmp_path, mongo_uri, database, sim)
    with closing(house):
        house.start_frontdesk()
        yield house


def together(calls: list[Call]) -> int:
    """How many of them were under way at the same time, at most."""
    starts = [(call.started, 1) for call in calls]
    ends = [(call.finished or call.started, -1) for call in calls]
    return max(itertools.accumulate(step for _, step in sorted(starts + ends)))


def test_a_kill_amid_many_calls_loses_none_and_repeats_none(house: House, sim: linesim.Sim) -> None:
    first = house.start_dispatcher(**SETTINGS)
    users = [sim.add_user(f"客{n}") for n in range(16)]
    for user in users:
        sim.say(user, str(MESSAGES))
    sim.wait_for(lambda: len(sim.calls_to("push")) >= 40)
    house.stop(first, signal.SIGKILL)
    again = time.monotonic()
    house.start_dispatcher(**SETTINGS)

    # The bot says each number three times in a call.
    said = [str(number) for number in range(MESSAGES) for _ in range(3)]
    sim.wait_for(lambda: all(len(sim.answers(user)) >= len(said) for user in users), timeout=40)

    for user in users:
        assert [bubble.text for bubble in sim.answers(user)] == said
    calls = sim.calls_to("push")
    for is_first in (True, False):
        made = [call for call in calls if (call.started < again) is is_first]
        assert 1 < together(made) <= AT_ONCE
