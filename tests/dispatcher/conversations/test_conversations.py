"""The conversations in memory: those used last remain, and those in use."""

import pytest

from dispatcher.conversations import conversations
from dispatcher.conversations.conversations import Conversations, Stored


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversations, "MOST_BYTES", 10_000)


def a_state(n: int = 1) -> Stored:
    return Stored.of({"data": {"text": "x" * 1_000}}, n)


def test_those_used_last_remain() -> None:
    known = Conversations()
    for n in range(100):
        known.store(known.get(f"U{n}"), a_state(n))
        assert known.get("U0").stored is not None
    kept = [n for n in range(100) if known.find(f"U{n}") is not None]
    assert 3 < len(kept) < 10
    assert kept == [0, *range(101 - len(kept), 100)]


@pytest.mark.parametrize(
    "use",
    [
        {"mailbox": object()},
        {"outbox": object()},
        {"is_unloaded": True},
        {"is_reserved": True},
        {"timers": frozenset({"1-0"})},
    ],
    ids=lambda use: next(iter(use)),
)
def test_one_in_use_is_not_forgotten(use: dict[str, object]) -> None:
    known = Conversations()
    busy = known.get("busy")
    vars(busy).update(use)
    for n in range(100):
        known.store(known.get(f"U{n}"), a_state(n))
    assert known.find("busy") is busy
    vars(busy).clear()
    busy.id = "busy"
    for n in range(100):
        known.store(known.get(f"U{n}"), a_state(n))
    assert known.find("busy") is None


def test_the_messages_taken_back_last_are_known() -> None:
    one = Conversations().get("U")
    one.take_back(f"M{n}" for n in range(150))
    one.take_back(["M149", "M60"])
    assert len(one.unsent) == 100
    assert {"M60", "M149", "M51"} <= {*one.unsent}
    assert "M49" not in one.unsent
