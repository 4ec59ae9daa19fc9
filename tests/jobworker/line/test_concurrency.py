"""Several calls at a time: their distance, and the effect of their ends."""

from __future__ import annotations

import gc
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from linebot.v3.messaging import ApiClient as SdkApiClient

import linesim
from jobworker.line import gate
from jobworker.line.answer import LineAnswer
from jobworker.line.breaker import Breaker, BreakerState
from jobworker.line.client import LineClient
from jobworker.line.gate_order import Standing, Ticket
from linedesk.store.records.calls import TurnClass
from linesim import Sim
from tests.jobworker.line.test_breaker import SHORT
from tests.jobworker.line.test_gate import Hand
from tests.jobworker.worker_harness import Rooms, echo, texts
from tests.rows import rows_of
from tests.waiting import eventually

# By hand: a call ends when the test says so.


@pytest.fixture(autouse=True)
def turns_of_this_test(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Callers here share the test's thread, and some keep their turn to the end."""
    monkeypatch.setattr(gate, "_of_thread", threading.local())
    yield
    # Where one of them is found as garbage later, its turn ends on another test's thread.
    gc.collect()


@dataclass
class Held:
    """A caller that keeps its turn until the test lets it call, and end the call."""

    hand: Hand
    place: float = 0.0
    ticket: Ticket | None = None
    called_at: float | None = None
    _turn: AbstractContextManager[None] | None = None

    def enter(self) -> Held:
        standing = Standing(TurnClass.CHAT, self.place)
        self.hand.gate.enter(Ticket(standing, granted=self._granted))
        self.hand.run()
        return self

    def _granted(self, ticket: Ticket) -> None:
        self._turn = self.hand.gate.holding(ticket)
        self._turn.__enter__()
        self.ticket = ticket

    def call(self) -> bool:
        """Begin the call, where that is allowed."""
        assert self.ticket is not None
        if self.hand.gate.may_call(self.ticket):
            self.hand.gate.begin(self.ticket)
            self.called_at = self.hand.now
        self.hand.run()
        return self.ticket.began is not None

    def leave(self) -> None:
        assert self._turn is not None
        self._turn.__exit__(None, None, None)
        self.ticket = None
        self.hand.run()

    @property
    def has_turn(self) -> bool:
        return self.ticket is not None


def several(hand: Hand, count: int) -> list[Held]:
    return [Held(hand, place).enter() for place in range(count)]


def test_starts_keep_the_interval_and_one_at_a_time_prepares() -> None:
    hand = Hand(1.0, concurrency=3)
    callers = several(hand, 5)
    assert [one.has_turn for one in callers] == [True, False, False, False, False]
    for one in callers[:3]:
        assert one.call()
        hand.advance(1.0)
    assert [one.called_at for one in callers[:3]] == [100.0, 101.0, 102.0]
    # Three are under way, so the fourth one waits for an end and not for the interval.
    hand.advance(5.0)
    assert [one.has_turn for one in callers[3:]] == [False, False]
    callers[0].leave()
    assert callers[3].call()


def test_a_call_prepared_as_line_went_away_is_not_the_probe_either() -> None:
    hand = Hand(0.0, concurrency=3)
    calling, preparing = several(hand, 2)
    assert calling.call()
    hand.held_until, hand.probed = hand.now + 10.0, True
    calling.leave()
    waits = [Held(hand, place).enter() for place in (5.0, 6.0)]
    hand.advance(10.0)
    probe = waits[0]
    assert [one.has_turn for one in waits] == [True, False]
    assert not preparing.call()
    assert probe.call()
    # LINE answers it.
    hand.probed = False
    probe.leave()
    assert waits[1].has_turn


def test_a_thread_that_was_called_for_as_line_went_away_serves_after_the_pause() -> None:
    hand = Hand(1.0, concurrency=2)
    calling, waits = several(hand, 2)
    assert calling.call()
    # By now a thread is on its way for the second one.
    hand.held_until, hand.probed = hand.now + 10.0, True
    hand.advance(9.9)
    assert not waits.has_turn
    hand.advance(0.2)
    assert waits.has_turn


# With real threads, against the simulator.


def together(calls: list[Any]) -> int:
    """How many of them were under way at the same time, at most."""
    starts = [(call.started, 1) for call in calls]
    ends = [(call.finished, -1) for call in calls]
    return max(itertools.accumulate(step for _, step in sorted(starts + ends)))


@pytest.fixture
def slow_sim() -> Iterator[Sim]:
    """It takes a while for its answers, and keeps LINE's limits."""
    with linesim.running(latency_ms=30) as sim:
        yield sim


def test_by_default_calls_still_never_overlap(room: Rooms, slow_sim: Sim) -> None:
    users = [slow_sim.add_user(f"客{n}") for n in range(8)]
    desk = room(echo(), sim=slow_sim, threads=8)
    for user in users:
        desk.says(user, "はい")
    desk.until_quiet()
    assert [texts(slow_sim, user) for user in users] == [["はい"]] * 8
    assert together(slow_sim.calls) == 1


def holds_of(breaker: Breaker, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When it forbade calls, each time."""
    moments: list[float] = []
    hold = breaker._hold

    def noted(state: BreakerState) -> bool:
        moments.append(time.monotonic())
        return hold(state)

    monkeypatch.setattr(breaker, "_hold", noted)
    return moments


def answered_together(
    monkeypatch: pytest.MonkeyPatch, answer: LineAnswer, *, count: int
) -> Callable[[], int]:
    """The first `count` calls are under way at the same time, and all get this answer.

    Yields the number of calls.
    """
    barrier, numbers, request = threading.Barrier(count), itertools.count(), LineClient._request
    made: list[int] = []

    def requested(client: LineClient, *args: Any) -> LineAnswer:
        made.append(number := next(numbers))
        if number >= count:
            return request(client, *args)
        barrier.wait(20)
        return answer

    monkeypatch.setattr(LineClient, "_request", requested)
    return lambda: len(made)


@pytest.mark.parametrize("way", ["push", "reply"])
def test_a_hiccup_of_many_calls_is_one_failure(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Twenty calls fail together: five open it, and fifteen more would double the pause each."""
    made = answered_together(monkeypatch, LineAnswer(503), count=20)
    users = [sim.add_user(f"客{n}") for n in range(40)]
    desk = room(echo(way), threads=24, line={"concurrency": 20, **SHORT})
    holds = holds_of(desk.desk.gate.breaker, monkeypatch)
    for user in users:
        desk.says(user, "はい")
    desk.until_quiet()
    assert [texts(sim, user) for user in users] == [["はい"]] * 40
    assert (len(holds), made()) == (1, 60)
    assert desk.letters() == []


class Answered:
    """The SDK's copy of an answer."""

    def __init__(self, status: int) -> None:
        self.status = status

    def getheaders(self) -> dict[str, str]:
        return {"x-line-request-id": f"r-{self.status}"}


def test_sdk_calls_that_end_at_the_same_moment_each_note_their_own_answer(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK's client keeps one last answer, for all threads."""
    barrier = threading.Barrier(2)

    def call_api(client: SdkApiClient, path: str, method: str, *, status: int, **_: Any) -> None:
        client.last_response = Answered(status)
        barrier.wait(10)

    monkeypatch.setattr(SdkApiClient, "call_api", call_api)
    desk = room(echo(), threads=8, line={"concurrency": 2})
    api = desk.desk.line.sdk.api
    threads = [
        threading.Thread(target=partial(api.call_api, "/v2/bot/info", "GET", status=status))
        for status in (200, 404)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    found = eventually(lambda: len(rows := rows_of(desk.database.calls)) == 2 and rows)
    rows = [(row["status"], row["requestId"]) for row in found]
    assert sorted(rows) == [(200, "r-200"), (404, "r-404")]
