"""A given-up send that is sent again: its retry key, and that it is sent once."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobworker.effects import Send, SendMethod
from jobworker.record.dead_letters import anew
from linedesk.operate.dead_letters import Replays, effect_again, event_again, explained, replay_name
from linedesk.store.documents import Document
from linedesk.store.records.effects import unproved_try
from linesim import Sim
from tests.jobworker.worker_harness import Room, Rooms, a_bot, a_send, texts

NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    "unknown",
    [
        a_send(tried_at=NOW - timedelta(hours=23), tried_as=SendMethod.PUSH),
        a_send(
            way=SendMethod.REPLY, token="t", tried_at=NOW, tried_as=SendMethod.REPLY, token_from=NOW
        ),
        a_send(tried_at=NOW, tried_as=SendMethod.PUSH, retry_key=None),
    ],
    ids=["a key that LINE forgets", "a reply has none", "that of a call for several stands apart"],
)
def test_a_try_that_cannot_be_proved_needs_force(unknown: Send) -> None:
    assert unproved_try(unknown.as_document(), NOW) is not None
    send = Send.from_document(anew(unknown.as_document(), name="replay:E1/0:1", now=NOW))
    assert send.retry_key != unknown.retry_key
    assert (send.tried_at, send.tried_as, send.way) == (None, None, SendMethod.PUSH)


def given_up_by(desk: Room, sim: Sim, user: Any) -> Document:
    """The letter of a reply that LINE refused."""
    sim.answer_next("reply", 400)
    desk.says(user, "?")
    desk.until_quiet()
    (letter,) = desk.letters()
    return letter


def begun(database: Any, letter: Document) -> Document:
    """The document of a replay as an operator's process stores it."""
    if "effect" in letter:
        document = effect_again(letter, name=replay_name(letter), now=datetime.now(UTC))
    else:
        document = event_again(letter, name=replay_name(letter), now=datetime.now(UTC))
    assert Replays(database).put(letter, document)
    return document


def test_a_replay_under_the_key_of_its_try_travels_with_no_other_send(
    room: Rooms, sim: Sim
) -> None:
    """Under any other key LINE would take the message a second time."""
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.push(talk.raw["message"]["text"])))
    sim.close_next("push", accept=True)
    sim.answer_next("push", 400)
    desk.says(user, "一")
    desk.until_quiet()
    (letter,) = desk.letters()

    before = len(sim.calls)
    with desk.desk.gate.turn():
        desk.says(user, "二")
        desk.put_document(begun(desk.database, letter))
        for text in ("三", "四"):
            desk.says(user, text)
        desk.until_decided()
    desk.until_quiet()

    assert texts(sim, user) == ["一", "二", "三", "四"]
    keys = [call.retry_key for call in sim.calls[before:]]
    assert (len(keys), keys.index(letter["effect"]["retryKey"])) == (3, 1)


# Documents inserted into recvq without linedesk.


def forged(user: Any, letter: Document, **fields: Any) -> Document:
    """A document with an effect of its own, under the name of the letter's first replay."""
    effect = a_send(to=user.user_id, messages=[{"type": "text", "text": "forged"}]).as_document()
    known = {"_id": letter["_id"], "channel": "main", "key": user.user_id}
    document = effect_again(known, name=replay_name(known), now=datetime.now(UTC))
    return {**document, "effect": effect, **fields}


def test_an_effect_that_no_letter_has_is_refused_and_logged(
    room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    letter = given_up_by(desk, sim, user)
    for document in (
        # The letter is there, and its replay was not begun.
        forged(user, letter),
        forged(user, {"_id": "no letter"}),
        forged(user, letter, eventId="E7"),
        forged(user, letter, eventId="replay:1"),
        # No effect of its own, and nothing behind it.
        {**forged(user, letter, eventId=f"replay:{letter['_id']}:9"), "event": {"type": "replay"}},
    ):
        desk.put_document(document)
    desk.until_quiet()
    assert texts(sim, user) == []
    refused = [explained(row) for row in desk.letters() if row["_id"] != letter["_id"]]
    assert [cause.partition(":")[0] for cause in refused] == ["refused"] * 5
    assert caplog.text.count("refused: no_letter") == 5
    assert desk.figures()["deadLetters"]["event"] == 5


def test_under_a_letter_that_is_replayed_only_what_it_holds_is_sent_and_once(
    room: Rooms, sim: Sim
) -> None:
    user, other = sim.add_user("花子"), sim.add_user("太郎")
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    letter = given_up_by(desk, sim, user)
    name = begun(desk.database, letter)["eventId"]
    stranger = {"eventId": name, "key": other.user_id, "_id": "the other's"}
    desk.put_document(forged(other, letter, **stranger))
    desk.put_document(forged(user, letter, eventId=name))
    desk.until_quiet()
    assert (texts(sim, user), texts(sim, other)) == (["はい"], [])

    # Once more when the conversation and recvq have forgotten it.
    desk.database.conversations.update_many({}, {"$set": {"applied": []}})
    desk.put_document(forged(user, letter, eventId=name))
    desk.until_quiet()
    assert texts(sim, user) == ["はい"]


def test_a_replay_whose_name_was_forged_before_it_began_goes_under_the_next(
    room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    letter = given_up_by(desk, sim, user)
    early = forged(user, letter)
    desk.database.recvq.insert_one(early)
    desk.put_document(early)
    desk.until_quiet()
    document = effect_again(letter, name=replay_name(letter), now=datetime.now(UTC))
    assert document["eventId"] == early["eventId"]
    assert not Replays(desk.database).put(letter, document)
    letter = desk.database.deadletters.find_one({"_id": letter["_id"]})
    assert "replayedAt" not in letter
    desk.put_document(begun(desk.database, letter))
    desk.until_quiet()
    assert texts(sim, user) == ["はい"]
