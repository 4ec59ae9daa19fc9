"""Bot time in a simulation, against linesim's clock."""

import logging
import socket
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import linesim
from linedesk.launch.sim_clock import SimClock
from tests.waiting import eventually


def short(url: str, **limits: float) -> SimClock:
    """A clock with short waits."""
    return SimClock(url, **{"look_seconds": 0.01, **limits})


@pytest.fixture
def sim() -> Iterator[linesim.Sim]:
    with linesim.running() as sim:
        yield sim


@pytest.fixture
def clock(sim: linesim.Sim) -> Iterator[SimClock]:
    clock = short(f"{sim.url}/sim/clock")
    yield clock
    clock.stop()
    assert clock.join(5)


def ahead_of(clock: SimClock) -> float:
    return (clock.now() - datetime.now(UTC)).total_seconds()


def test_a_caller_never_gets_a_time_before_a_confirmed_move(
    sim: linesim.Sim, clock: SimClock
) -> None:
    """Whatever the thread knows: a move and the event after it keep their order."""
    clock.start()
    for moves in range(1, 20):
        sim.advance(1_000)
        assert ahead_of(clock) == pytest.approx(moves * 1_000, abs=100)


def test_a_move_missed_by_the_thread_is_returned_by_the_next_request(
    sim: linesim.Sim, clock: SimClock
) -> None:
    heard: list[float] = []
    clock.when_moved(lambda: heard.append(ahead_of(clock)))

    def move_once() -> None:
        """Between the thread's first question and its second."""
        if len(heard) == 1:
            sim.advance(60)

    clock.when_moved(move_once)
    clock.start()
    eventually(lambda: len(heard) == 2)
    assert heard[1] == pytest.approx(60, abs=1)


def test_without_an_answer_the_last_offset_is_kept(caplog: pytest.LogCaptureFixture) -> None:
    moved = threading.Event()

    def hear() -> None:
        if served.platform.clock.ahead == 600:
            moved.set()

    with caplog.at_level(logging.WARNING), linesim.running() as served:
        # However long a busy machine takes for an answer.
        clock = short(f"{served.url}/sim/clock", ask_seconds=30.0)
        clock.when_moved(hear)
        clock.start()
        served.advance(600)
        assert moved.wait(10)
        assert not caplog.records
    with caplog.at_level(logging.WARNING):
        eventually(lambda: caplog.messages)
        assert ahead_of(clock) == pytest.approx(600, abs=2)
    clock.stop()
    assert clock.join(5)
    assert [text.partition(" url")[0] for text in caplog.messages] == [
        "linesim does not report the time"
    ]


def test_a_simulator_that_hangs_blocks_no_caller() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        clock = short(f"http://127.0.0.1:{silent.getsockname()[1]}/", ask_seconds=0.05)
        began = time.monotonic()
        assert ahead_of(clock) == pytest.approx(0, abs=1)
        clock.start()
        clock.stop()
        assert clock.join(5)
        assert time.monotonic() - began < 5
