"""An event that an operator releases becomes a dead letter, once, and the next one continues."""

import threading
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.line.client import LineClient
from jobworker.sending.conversation_outbox import CallState, ConversationOutbox, SendLimits
from linedesk import Bot
from linedesk.store.records.effects import unproved_try
from linedesk.store.records.letters import RELEASED, Cause
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms, texts
from tests.waiting import eventually

# A send that has to be tried again waits beyond the end of its test.
LONG_PAUSES = SendLimits(first_pause_seconds=1e9, longest_pause_seconds=1e9)


@pytest.fixture
def room(room: Rooms) -> Rooms:
    return partial(room, send_limits=LONG_PAUSES)


def sending_bot(way: str = "push") -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        getattr(talk, way)(talk.raw["message"]["text"])

    return bot


def box_of(room: Room, user: Any) -> ConversationOutbox:
    """The user's outbox, once there is something in it."""
    boxes, id_ = room.desk.outcomes.boxes, f"{CHANNEL}/{user.user_id}"
    box: ConversationOutbox = eventually(lambda: boxes.find(id_))
    return box


def first_in(box: ConversationOutbox) -> str:
    """The id of the first send."""
    return box.sends[0].send.id


def until_given_up(room: Room, user: Any, effect_id: str) -> None:
    """As the thread that reads `control` does: asks until it is over."""
    eventually(lambda: not room.desk.give_up_send(CHANNEL, str(user), effect_id))


def until_stepped(room: Room) -> None:
    """Until the steps that are left by now are done."""
    done = threading.Event()
    room.pool.step(done.set)
    assert done.wait(15)


def test_a_send_that_waits_for_its_next_try_is_given_up_at_once(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    sim.answer_next("push", 500, times=1)
    one = room(sending_bot())
    one.says(user, "一")
    box = box_of(one, user)
    eventually(lambda: box.state is CallState.RESTING)
    name, rest, calls = first_in(box), box._rest, len(sim.calls)
    assert rest is not None
    with one.desk.gate.turn():
        one.says(user, "二")
        one.until_decided()
        until_given_up(one, user.user_id, name)
        (letter,) = one.letters()
        assert (letter["_id"], Cause.of(letter)) == (name, RELEASED)
        assert letter["attempts"] == 1
        # The rest ends, and changes nothing any more: the next one still waits for its turn.
        one.desk.outcomes._wake(box, rest)
        until_stepped(one)
        assert len(one.desk.outbox.boxes) == 1
        assert box.state is CallState.WAITING
    one.until_quiet()
    # The same is true once its outbox is empty.
    one.desk.outcomes._wake(box, rest)
    assert texts(sim, user) == ["二"]
    assert len(sim.calls) == calls + 1


def test_a_send_with_an_unused_turn_is_given_up_without_a_call(room: Rooms, sim: Sim) -> None:
    """It was written down as tried, and was not."""
    user, asked = sim.add_user("花子"), list[bool]()

    def but_once() -> bool:
        if asked or not one.calls_noted():
            return True
        box = box_of(one, user)
        if box.state is not CallState.BUSY:
            return True
        asked.append(one.desk.give_up_send(CHANNEL, user.user_id, first_in(box)))
        return False

    one = room(sending_bot(), lease_is_fresh=but_once)
    one.says(user, "一")
    (letter,) = eventually(one.letters)
    one.until_quiet()
    assert asked == [True]
    assert (Cause.of(letter), letter["attempts"]) == (RELEASED, 0)
    assert "triedAt" not in letter["effect"]
    assert texts(sim, user) == []


def test_a_try_of_unknown_outcome_stays_marked(room: Rooms, sim: Sim) -> None:
    """So that a replay asks before the message arrives a second time."""
    user = sim.add_user("花子")
    sim.answer_next("reply", 500, accept=True)
    one = room(sending_bot("reply"))
    one.says(user, "一")
    box = box_of(one, user)
    eventually(lambda: box.state is CallState.RESTING)
    until_given_up(one, user.user_id, first_in(box))
    one.until_quiet()
    (letter,) = one.letters()
    assert letter["effect"]["triedAt"] is not None
    assert unproved_try(letter["effect"], datetime.now(UTC)) is not None
    assert texts(sim, user) == ["一"]


def test_a_send_that_waits_at_the_gate_is_given_up_without_a_call(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    one = room(sending_bot())
    with one.desk.gate.turn():
        one.says(user, "一")
        one.says(user, "二")
        box = box_of(one, user)
        eventually(lambda: box.state is CallState.WAITING)
        name = first_in(box)
        until_given_up(one, user.user_id, name)
        eventually(lambda: one.letters())
        # Only the next one waits there.
        eventually(lambda: one.desk.gate.waiting == 1)
    one.until_quiet()
    assert texts(sim, user) == ["二"]
    (letter,) = one.letters()
    assert (letter["_id"], letter["attempts"]) == (name, 0)
    assert "triedAt" not in letter["effect"]


def test_a_turn_that_comes_for_a_send_that_was_given_up_is_not_taken(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate chose its ticket just before that was to be taken back."""
    user = sim.add_user("花子")
    one = room(sending_bot())
    monkeypatch.setattr(one.desk.gate, "cancel", lambda ticket: False)
    with one.desk.gate.turn():
        one.says(user, "一")
        one.says(user, "二")
        one.until_decided()
        box = box_of(one, user)
        name = first_in(box)
        until_given_up(one, user.user_id, name)
        eventually(lambda: first_in(box) != name)
    one.until_quiet()
    assert texts(sim, user) == ["二"]
    assert [letter["_id"] for letter in one.letters()] == [name]


@pytest.mark.parametrize(
    ("status", "said"), [(200, ["一"]), (500, [])], ids=["it arrives", "it has to be repeated"]
)
def test_a_call_under_way_ends_by_itself_first(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, status: int, said: list[str]
) -> None:
    user = sim.add_user("花子")
    calls, go_on = threading.Event(), threading.Event()
    post = LineClient.post

    def slowly(self: LineClient, *args: Any, **more: Any) -> Any:
        calls.set()
        assert go_on.wait(15)
        return post(self, *args, **more)

    monkeypatch.setattr(LineClient, "post", slowly)
    if status != 200:
        sim.answer_next("push", status)
    one = room(sending_bot())
    one.says(user, "一")
    assert calls.wait(15)
    name = first_in(box_of(one, user))
    for _ in range(2):
        assert one.desk.give_up_send(CHANNEL, user.user_id, name)
    assert one.letters() == []
    go_on.set()
    until_given_up(one, user.user_id, name)
    one.until_quiet()
    assert texts(sim, user) == said
    assert [Cause.of(letter) for letter in one.letters()] == [RELEASED] * (status != 200)


def test_only_the_first_send_of_a_conversation_is_given_up(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    sim.answer_next("push", 500)
    one = room(sending_bot())
    one.says(user, "一")
    second = one.says(user, "二")
    one.until_decided()
    box = box_of(one, user)
    eventually(lambda: box.state is CallState.RESTING)
    assert not one.desk.give_up_send(CHANNEL, user.user_id, f"{second['eventId']}/0")
    name = first_in(box)
    assert not one.desk.give_up_send(CHANNEL, "U" * 33, name)
    assert not one.desk.give_up_send("second", user.user_id, name)
    assert one.letters() == []
    until_given_up(one, user.user_id, name)
    one.until_quiet()
