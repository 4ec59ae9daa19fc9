"""Sends of one conversation that travel in one call: free, in order, and each for itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from jobworker.effects import Call
from jobworker.line.answer import LineAnswer
from jobworker.line.client import LineClient
from jobworker.record.conversations import ConversationStore, Noted
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.effects import unproved_try
from linesim import Sim
from tests.jobworker.worker_harness import Room

Rooms = Callable[..., Room]
POISON = "毒"
REFUSED = "The request body has 1 error(s)"


def echo(way: str = "reply") -> Bot:
    """Answers each message with its text."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        getattr(talk, way)(talk.raw["message"]["text"])

    return bot


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


def says_at_once(desk: Room, user: Any, *said: str) -> None:
    """The user writes this much while the gate is taken, so all answers wait for one turn."""
    with desk.desk.gate.turn():
        for text in said:
            desk.says(user, text)
        desk.until_decided()


def refuse(monkeypatch: pytest.MonkeyPatch, *, by_name: bool) -> None:
    """LINE refuses each call with POISON in it."""
    post = LineClient.post

    def refusing(self: LineClient, path: str, body: Mapping[str, Any], **more: Any) -> LineAnswer:
        said = [message["text"] for message in body["messages"]]
        if POISON not in said:
            return post(self, path, body, **more)
        named = {"message": "invalid", "property": f"messages[{said.index(POISON)}].text"}
        told = {"message": REFUSED, "details": [named] if by_name else []}
        return LineAnswer(400, json.dumps(told))

    monkeypatch.setattr(LineClient, "post", refusing)


def test_twenty_waiting_events_are_answered_in_order_by_four_free_replies(
    room: Rooms, sim: Sim
) -> None:
    user, desk, said = sim.add_user("花子"), room(echo()), [str(n) for n in range(20)]
    before = len(sim.calls)
    says_at_once(desk, user, *said)
    desk.until_quiet()
    assert texts(sim, user) == said
    assert [call.endpoint for call in sim.calls[before:]] == ["reply"] * 4
    assert sum(call.paid for call in sim.calls[before:]) == 0


def test_one_that_line_names_is_a_letter_and_the_others_take_one_call_more(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, by_name=True)
    user, desk = sim.add_user("花子"), room(echo())
    before = len(sim.calls)
    says_at_once(desk, user, "一", "二", "三", POISON, "五")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二", "三", "五"]
    (letter,) = desk.letters()
    assert explained(letter).startswith("LINE refused it with 400: The request body has 1 error")
    assert letter["attempts"] == 1
    assert letter["effect"]["messages"][0]["text"] == POISON
    assert "triedAt" not in letter["effect"], "a replay need not ask"
    assert [call.endpoint for call in sim.calls[before:]] == ["reply"]


def test_one_that_line_does_not_name_is_found_and_costs_the_others_nothing(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, by_name=False)
    user, desk = sim.add_user("花子"), room(echo())
    before = len(sim.calls)
    says_at_once(desk, user, "一", "二", "三", POISON, "五")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二", "三", "五"]
    assert [one["effect"]["messages"][0]["text"] for one in desk.letters()] == [POISON]
    assert {call.endpoint for call in sim.calls[before:]} == {"reply"}


def test_several_that_may_have_arrived_and_are_refused_then_are_letters_that_say_so(
    room: Rooms, sim: Sim
) -> None:
    user, desk = sim.add_user("花子"), room(echo("push"))
    sim.close_next("push", accept=True)
    sim.answer_next("push", 400, {"message": REFUSED})
    says_at_once(desk, user, "一", "二")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二"]
    letters = desk.letters()
    assert [one["attempts"] for one in letters] == [2, 2]
    for letter in letters:
        effect = letter["effect"]
        assert (effect["as"], effect["retryKey"]) == ("push", None)
        assert unproved_try(effect, datetime.now(UTC)) is not None


def test_a_token_that_line_refuses_leaves_the_older_ones_to_reply_on(room: Rooms, sim: Sim) -> None:
    user, desk = sim.add_user("花子"), room(echo())
    sim.answer_next("reply", 400, {"message": "Invalid reply token"})
    before = len(sim.calls)
    says_at_once(desk, user, "一", "二", "三")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二", "三"]
    made = sim.calls[before:]
    assert [call.endpoint for call in made] == ["reply"] * 2
    assert made[0].body["replyToken"] != made[1].body["replyToken"]


@pytest.mark.parametrize("refused", [False, True], ids=["", "and the next one is refused"])
def test_a_call_that_is_written_too_late_gives_way_to_the_next_one(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    user, note_call = sim.add_user("花子"), ConversationStore.note_call
    noted: list[Call] = []

    def too_late(self: ConversationStore, id_: str, call: Call, *args: Any, **more: Any) -> Noted:
        result = note_call(self, id_, call, *args, **more)
        noted.append(call)
        if len(noted) == 1:
            desk.says(user, "二")
            desk.until_decided()
            raise StoreUnavailable("made, and not confirmed in time")
        return result

    monkeypatch.setattr(ConversationStore, "note_call", too_late)
    desk = room(echo("push"), send_limits=SendLimits(first_pause_seconds=0.01))
    if refused:
        sim.answer_next("push", 429, {"message": "too many messages to the same user"})
    before = len(sim.calls)
    says_at_once(desk, user, "一", "間")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "間", "二"]
    assert [len(call.members) for call in noted[:2]] == [2, 3]
    assert (desk.calls_noted(), desk.letters()) == ([], [])
    assert not any(call.retry_differs for call in sim.calls[before:])
