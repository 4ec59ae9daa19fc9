"""A send that was given up and is sent anew: under which retry key, and once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker import Bot
from jobworker.conversations import Decision
from jobworker.delivery import Send, Way
from jobworker.errors import MayArriveTwice
from jobworker.replay import anew, is_sound, replayed
from jobworker.talk import Talk
from linesim import Sim
from recvq.documents import Document
from recvq.replay import effect_again, event_again, replay_name
from tests.jobworker.room import Room, a_send

Rooms = Callable[..., Room]
NOW = datetime.now(UTC)
NAME = "replay:E1/0:1"


def sent_anew(given_up: Send, *, force: bool = False) -> Send:
    effect = anew(given_up.as_document(), name=NAME, now=NOW, force=force)
    return Send.from_document(effect)


def test_a_send_that_was_always_refused_gets_a_new_key_and_no_token() -> None:
    refused = a_send(way=Way.REPLY, token="t", token_from=NOW - timedelta(days=1))
    send = sent_anew(refused)
    assert (send.id, send.event_id) == (f"{NAME}/0", NAME)
    assert (send.way, send.token, send.token_from) == (Way.PUSH, None, None)
    assert (send.tried_at, send.tried_as) == (None, None)
    assert send.retry_key != refused.retry_key
    assert (send.to, send.messages) == (refused.to, refused.messages)


@pytest.mark.parametrize("way", [Way.PUSH, Way.MULTICAST])
def test_a_try_of_unknown_outcome_goes_under_its_own_key_while_line_keeps_it(way: Way) -> None:
    tried = NOW - timedelta(hours=22, minutes=59)
    unknown = a_send(way=way, tried_at=tried, tried_as=way)
    for force in (False, True):
        send = sent_anew(unknown, force=force)
        assert send.retry_key == unknown.retry_key
        assert (send.tried_at, send.tried_as, send.way) == (tried, way, way)


@pytest.mark.parametrize(
    "unknown",
    [
        a_send(tried_at=NOW - timedelta(hours=23), tried_as=Way.PUSH),
        a_send(way=Way.REPLY, token="t", tried_at=NOW, tried_as=Way.REPLY, token_from=NOW),
    ],
    ids=["a key that LINE forgets", "a reply has none"],
)
def test_a_try_that_cannot_be_proved_needs_force(unknown: Send) -> None:
    with pytest.raises(MayArriveTwice):
        sent_anew(unknown)
    send = sent_anew(unknown, force=True)
    assert send.retry_key != unknown.retry_key
    assert (send.tried_at, send.tried_as, send.way) == (None, None, Way.PUSH)


@pytest.mark.parametrize("effect", [None, [], "x", {}, {"type": "send"}, {"id": 1, "way": "?"}])
def test_a_hand_made_effect_that_cannot_be_recorded_is_told(effect: Any) -> None:
    assert not is_sound({"effect": effect})


def test_a_document_of_the_front_desk_is_no_replay() -> None:
    assert is_sound({"event": {}})
    assert replayed({"event": {}}) is None


# On the real worker.


def forbidden(event: Any, talk: Talk) -> None:
    raise AssertionError("no handler runs for a replayed send")


def a_bot(handler: Callable[[Any, Talk], None]) -> Bot:
    bot = Bot()
    bot.default()(handler)
    return bot


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


def given_up_by(desk: Room, sim: Sim, user: Any) -> Document:
    """The letter of a reply that LINE refused."""
    sim.answer_next("reply", 400)
    desk.says(user, "?")
    desk.until_quiet()
    (letter,) = desk.letters()
    return letter


def document_of(letter: Document, **more: Any) -> Document:
    name = replay_name(letter)
    effect = anew(letter["effect"], name=name, now=datetime.now(UTC), **more)
    return effect_again(letter, effect, name=name, now=datetime.now(UTC))


def test_a_refused_reply_is_pushed_by_its_replay_and_no_handler_runs(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    letter = given_up_by(desk, sim, user)
    assert (letter["channel"], letter["key"]) == ("main", user.user_id)
    assert letter["effect"]["triedAt"] is None

    second = room(a_bot(forbidden), epoch=2)
    document = document_of(letter)
    second.put_document(document)
    second.until_quiet()

    assert texts(sim, user) == ["はい"]
    conversation = second.conversation(user.user_id)
    assert conversation["applied"][-1] == document["eventId"]
    assert conversation["kind"] == "user"
    call = sim.calls_to("push")[-1]
    assert call.retry_key == document["effect"]["retryKey"] != letter["effect"]["retryKey"]


def test_a_replay_read_twice_is_sent_once(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    first = room(a_bot(lambda event, talk: talk.reply("はい")))
    document = document_of(given_up_by(first, sim, user))
    first.put_document(document)
    first.until_quiet()

    second = room(a_bot(forbidden), epoch=2)
    second.put_document(document, again=True)
    second.until_quiet()

    assert texts(sim, user) == ["はい"]


def test_a_replay_that_fails_again_makes_a_letter_of_its_own(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    letter = given_up_by(desk, sim, user)
    sim.answer_next("push", 400)
    document = document_of(letter)
    desk.put_document(document)
    desk.until_quiet()

    assert [row["_id"] for row in desk.letters()] == [letter["_id"], f"{document['eventId']}/0"]
    assert texts(sim, user) == []


def test_a_push_that_line_accepted_without_an_answer_is_not_seen_twice(
    room: Rooms, sim: Sim
) -> None:
    """Its outcome is unknown to the letter, so the replay goes under the same retry key."""
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.push("はい")))
    sim.close_next("push", accept=True)
    sim.answer_next("push", 400)
    desk.says(user, "?")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert letter["effect"]["triedAt"] is not None

    desk.put_document(document_of(letter))
    desk.until_quiet()

    assert texts(sim, user) == ["はい"]


def test_a_replayed_event_runs_its_handler_anew_and_its_reply_is_a_push(
    room: Rooms, sim: Sim
) -> None:
    broken = [True]

    def handler(event: Any, talk: Talk) -> None:
        if broken:
            raise RuntimeError("not mended yet")
        talk.reply(f"今度は: {talk.raw['message']['text']}")

    user = sim.add_user("花子")
    desk = room(a_bot(handler), tries=1)
    desk.says(user, "もしもし")
    desk.until_quiet()
    (letter,) = desk.letters()
    broken.clear()
    desk.put_document(event_again(letter, name=replay_name(letter), now=datetime.now(UTC)))
    desk.until_quiet()

    assert texts(sim, user) == ["今度は: もしもし"]
    assert sim.replies_to(letter["_id"]) == []


def test_a_hand_made_document_with_a_broken_effect_is_passed_over(room: Rooms, sim: Sim) -> None:
    user = sim.add_user("花子")
    desk = room(a_bot(forbidden))
    letter = {"_id": "x", "channel": "main", "key": user.user_id}
    desk.put_document(effect_again(letter, {"type": "send"}, name="replay:x:1", now=NOW))
    desk.until_quiet()
    assert desk.letters() == []


def test_a_decision_of_a_replay_is_its_effect_alone() -> None:
    effect = replace(a_send(), id="y").as_document()
    assert replayed({"effect": effect}) == Decision({}, [effect])
