"""A send that is given up: one decision, whoever dies or freezes in the middle of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobworker import Bot
from jobworker.conversations import Conversations
from jobworker.deadletters import DeadLetters
from jobworker.talk import Talk
from linesim import Sim
from recvq.errors import Replaced, StoreUnavailable, translated
from tests.jobworker.room import Room
from tests.waiting import eventually

Rooms = Callable[..., Room]


def pushing_bot() -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.push("はい")

    return bot


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


def refuse_once(sim: Sim) -> None:
    """LINE refuses the next push for good, and would take it from then on."""
    sim.answer_next("push", 400, {"message": "The request body has 1 error(s)"})


def test_a_send_with_a_letter_is_not_tried_by_the_successor_of_who_died_there(
    database: Any, room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sim.add_user("花子")
    refuse_once(sim)

    def never(self: Conversations, id_: str, effect_id: str) -> None:
        raise StoreUnavailable("as good as dead")

    with monkeypatch.context() as broken:
        broken.setattr(Conversations, "remove", never)
        with Room(database, sim, pushing_bot()) as first:
            first.says(user, "?")
            eventually(lambda: first.letters())
    before = len(sim.calls)
    second = room(pushing_bot(), epoch=2)
    second.until_quiet()
    # A replay of the letter goes under a new key, so any other try would be a second message.
    assert (len(sim.calls), texts(sim, user)) == (before, [])
    (letter,) = second.letters()
    assert letter["cause"] == "LINE refused it with 400"
    assert (letter["attempts"], letter["effect"]["type"]) == (1, "send")


def test_who_died_before_the_letter_leaves_it_to_the_successor(
    database: Any, room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sim.add_user("花子")
    refuse_once(sim)
    asked: list[Any] = []

    def never(self: DeadLetters, letter: Any) -> None:
        asked.append(letter)
        raise StoreUnavailable("as good as dead")

    with monkeypatch.context() as broken:
        broken.setattr(DeadLetters, "write", never)
        with Room(database, sim, pushing_bot()) as first:
            first.says(user, "?")
            eventually(lambda: asked)
    before = len(sim.calls)
    second = room(pushing_bot(), epoch=2)
    second.until_quiet()
    assert (len(sim.calls), texts(sim, user)) == (before, [])
    assert [one["cause"] for one in second.letters()] == ["LINE refused it with 400"]


def test_who_was_replaced_before_giving_up_writes_no_letter_of_what_may_have_been_sent(
    room: Rooms, sim: Sim, deaths: list[BaseException | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sim.add_user("花子")
    refuse_once(sim)
    give_up = Conversations.give_up

    def after_a_freeze(self: Conversations, id_: str, letter: Any) -> None:
        self._collection.update_one({"_id": id_}, {"$set": {"epoch": 2}})
        give_up(self, id_, letter)

    monkeypatch.setattr(Conversations, "give_up", after_a_freeze)
    desk = room(pushing_bot())
    desk.says(user, "?")
    eventually(lambda: deaths)
    assert isinstance(deaths[0], Replaced)
    assert desk.letters() == []
    assert [effect["type"] for effect in desk.pending()] == ["send"]


def test_a_send_is_given_up_where_its_conversation_has_no_room_for_the_words(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = sim.add_user("花子")
    refuse_once(sim)
    give_up = Conversations.give_up

    def in_a_full_one(self: Conversations, id_: str, letter: Any) -> None:
        # The server's small cache may be full of other tests' writes: then it is tried again.
        with translated():
            self._collection.database.client.admin.command("fsync")
            fill(self._collection, id_, left=20)
        give_up(self, id_, letter)

    monkeypatch.setattr(Conversations, "give_up", in_a_full_one)
    desk = room(pushing_bot())
    desk.says(user, "?")
    desk.until_quiet()
    assert [one["cause"] for one in desk.letters()] == ["LINE refused it with 400"]
    assert texts(sim, user) == []


def fill(conversations: Any, id_: str, *, left: int) -> None:
    """Have the conversation take so many bytes more, up to what MongoDB holds."""
    conversations.update_one({"_id": id_}, {"$set": {"fat": ""}})
    sized = [{"$match": {"_id": id_}}, {"$project": {"size": {"$bsonSize": "$$ROOT"}}}]
    (row,) = conversations.aggregate(sized)
    fat = "x" * (16 * 1024 * 1024 - row["size"] - left)
    conversations.update_one({"_id": id_}, {"$set": {"fat": fat}})
