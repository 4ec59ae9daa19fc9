"""The demo's check of timers' messages, with a fake environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import pytest

from linedesk.demo.conversation import Person
from linedesk.demo.timed_events import LEAD_SECONDS, DemoTimers
from linedesk.settings.errors import DemoFailed

HANAKO, TARO = Person("佐藤花子", "U1"), Person("田中太郎", "U2")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

Found = TypeVar("Found")


class Stage:
    """Answers like the simulator and MongoDB."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.rows: dict[str, list[dict[str, Any]]] = {"recvq": [], "schedule": []}
        self.advanced: list[float] = []

    def get(self, path: str) -> Any:
        return {"/sim/calls": self.calls, "/sim/clock": {"now": NOON.timestamp()}}[path]

    def post(self, path: str, body: Mapping[str, float]) -> None:
        self.advanced.append(body["advance"])

    def documents(self, collection: str, query: object) -> list[dict[str, Any]]:
        return self.rows[collection]

    def wait_for(
        self, look: Callable[[], Found | None], concerned: str, *, seconds: float
    ) -> Found:
        if found := look():
            return found
        raise DemoFailed("nothing")

    def waits(self, *seconds: float) -> None:
        """Timers that are due these seconds after noon."""
        rows = [{"runAt": NOON + timedelta(seconds=each)} for each in seconds]
        self.rows["schedule"] = list(rows)

    def rings(self, who: Person, text: str, *, late_ms: int, due: datetime = NOON) -> None:
        """A timer fired, and LINE got its message."""
        self.rows["recvq"].append({"key": who.user_id, "event": {"timer": {"runAt": due}}})
        self.pushes(who, text, at=due + timedelta(milliseconds=late_ms))

    def pushes(self, who: Person, text: str, *, at: datetime) -> None:
        body = {"messages": [{"type": "text", "text": text}]}
        call = {"chatId": who.user_id, "body": body, "at": round(at.timestamp() * 1000)}
        self.calls.append({"endpoint": "push", "accepted": True, **call})


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def rings(stage: Stage) -> DemoTimers:
    return DemoTimers(stage)  # type: ignore[arg-type]


def test_the_clock_goes_to_just_before_the_next_timer(stage: Stage, rings: DemoTimers) -> None:
    stage.waits(600, 180)
    assert rings.advance_to_next(waiting=2) == pytest.approx(180 - LEAD_SECONDS)
    assert stage.advanced == [pytest.approx(180 - LEAD_SECONDS)]


def test_the_clock_waits_until_all_timers_are_set(stage: Stage, rings: DemoTimers) -> None:
    stage.waits(180)
    with pytest.raises(DemoFailed):
        rings.advance_to_next(waiting=2)
    assert stage.advanced == []


def test_a_timer_that_is_due_at_once_needs_no_clock(stage: Stage, rings: DemoTimers) -> None:
    stage.waits(0.1)
    assert rings.advance_to_next(waiting=1) == 0
    assert stage.advanced == []


def test_each_message_has_its_own_timer_in_order(stage: Stage, rings: DemoTimers) -> None:
    stage.rings(HANAKO, "a", late_ms=90)
    stage.rings(TARO, "t", late_ms=5)
    stage.rings(HANAKO, "b", due=NOON + timedelta(milliseconds=50), late_ms=100)
    came = rings.wait_for([(HANAKO, "b"), (HANAKO, "a"), (TARO, "t")])
    assert [(each.who, each.text, each.late_ms) for each in came] == [
        (HANAKO, "a", 90),
        (TARO, "t", 5),
        (HANAKO, "b", 100),
    ]
    rings.require_no_more()
    stage.rings(HANAKO, "c", late_ms=0)
    assert [ring.text for ring in rings.wait_for([(HANAKO, "c")])] == ["c"]


def test_a_message_before_its_time_is_a_failure(stage: Stage, rings: DemoTimers) -> None:
    stage.rings(HANAKO, "a", late_ms=-1)
    with pytest.raises(DemoFailed, match=r"1\.0 ms early"):
        rings.wait_for([(HANAKO, "a")])


@pytest.mark.parametrize(("who", "text"), [(HANAKO, "b"), (TARO, "a")])
def test_another_message_is_a_failure(
    stage: Stage, rings: DemoTimers, who: Person, text: str
) -> None:
    stage.rings(HANAKO, "a", late_ms=1)
    with pytest.raises(DemoFailed):
        rings.wait_for([(who, text)])


@pytest.mark.parametrize("timer_too", [True, False])
def test_a_message_too_many_is_a_failure(stage: Stage, rings: DemoTimers, timer_too: bool) -> None:
    """A timer that fired twice, or one whose message was sent twice."""
    stage.rings(HANAKO, "a", late_ms=1)
    rings.wait_for([(HANAKO, "a")])
    if timer_too:
        stage.rings(HANAKO, "a", late_ms=2)
    else:
        stage.pushes(HANAKO, "a", at=NOON)
    with pytest.raises(DemoFailed, match="more than expected"):
        rings.require_no_more()


def test_a_push_without_a_timer_is_a_failure(stage: Stage, rings: DemoTimers) -> None:
    stage.pushes(HANAKO, "a", at=NOON)
    with pytest.raises(DemoFailed, match="has no timer"):
        rings.wait_for([(HANAKO, "a")])


def test_messages_of_one_push_are_separated(stage: Stage, rings: DemoTimers) -> None:
    stage.rings(HANAKO, "a", late_ms=90)
    stage.rings(HANAKO, "b", due=NOON + timedelta(milliseconds=50), late_ms=40)
    other = stage.calls.pop()
    stage.calls[0]["body"]["messages"] += other["body"]["messages"]
    came = rings.wait_for([(HANAKO, "a"), (HANAKO, "b")])
    assert [(each.text, each.late_ms) for each in came] == [("a", 90), ("b", 40)]
    rings.require_no_more()
