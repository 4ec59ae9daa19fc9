"""Unsent messages: no handler runs for them, and no stored copy keeps their content."""

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from dispatcher.commit.committer import Committer
from dispatcher.conversations.mailbox import Condemned
from jobworker.bot.talk import Talk
from jobworker.effects import of_event
from jobworker.record.dead_letters import DeadLetters
from jobworker.unsend import Unsends
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from linedesk.store.documents import Document, make_document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.letters import Cause
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms, lead
from tests.rows import Db

SECRET = "ひみつのことば"


@pytest.fixture(autouse=True)
def _nothing_held(database: Db) -> None:
    database.held.delete_many({})


class Heard:
    """A bot that remembers whose events it got and answers none."""

    def __init__(self) -> None:
        self.raws: list[dict[str, Any]] = []
        self.bot = Bot()
        self.bot.default()(self.handle)

    def handle(self, event: Any, talk: Talk) -> None:
        self.raws.append(talk.raw)

    @property
    def texts(self) -> list[str]:
        return [raw["message"]["text"] for raw in self.raws if "message" in raw]


def a_message(user: str, message_id: str, text: str = SECRET, **more: Any) -> Document:
    message = {"type": "text", "id": message_id, "text": text, "quoteToken": text}
    return document_of("message", user, message=message, **more)


def an_unsend(user: str, message_id: str) -> Document:
    return document_of("unsend", user, unsend={"messageId": message_id})


def document_of(kind: str, user: str, **more: Any) -> Document:
    source = {"type": "user", "userId": user}
    name = f"{kind}-{len(NAMES)}"
    NAMES.append(name)
    event = {"type": kind, "mode": "active", "webhookEventId": name, "source": source, **more}
    return make_document(event, channel=CHANNEL, accept_time=datetime.now(UTC))


NAMES: list[str] = []


def stored(desk: Room, document: Document) -> Document:
    """The document in recvq, too, as the front desk put it there."""
    desk.database.recvq.insert_one(document)
    return document


def a_letter(document: Document) -> Document:
    stack = f"Traceback ...\nValueError: {SECRET}"
    return of_event(
        document,
        Condemned(Cause("handler_error", {"error": "ValueError"}), 3, datetime.now(UTC), stack),
    )


def everything(database: Db) -> str:
    names = ("recvq", "held", "conversations", "deadletters", "calls")
    return str([list(database[name].find()) for name in names])


def test_all_stored_copies_are_emptied_and_the_bot_still_gets_the_unsend(
    room: Rooms, database: Db, sim: Sim
) -> None:
    heard = Heard()
    desk = room(heard.bot)
    user = sim.add_user("花子").user_id
    message, other = a_message(user, "m-1"), a_message(user, "m-2", "残る")
    desk.put_document(stored(desk, message))
    desk.put_document(stored(desk, other))
    desk.until_decided()
    letter = a_letter(message)
    database.deadletters.insert_one({"_id": "L1", **letter})
    database.held.insert_one({"_id": message["_id"], "n": 1, "key": user, "channel": CHANNEL,
                              "document": message})  # fmt: skip
    assert SECRET in everything(database)

    desk.put_document(stored(desk, an_unsend(user, "m-1")))
    desk.until_decided()

    assert SECRET not in everything(database)
    assert "残る" in everything(database)
    assert [raw["type"] for raw in heard.raws] == ["message", "message", "unsend"]
    left = database.recvq.find_one({"_id": message["_id"]})
    assert left["unsent"] is True
    assert left["event"]["message"] == {"type": "text", "id": "m-1"}
    row = database.deadletters.find_one({"_id": "L1"})
    assert (row["traceback"], explained(row)) == (None, "handler: ValueError")
    assert desk.conversation(user)["unsent"] == ["m-1"]


def test_a_message_that_comes_after_its_unsend_reaches_no_handler(room: Rooms, sim: Sim) -> None:
    heard = Heard()
    desk = room(heard.bot)
    user = sim.add_user("花子").user_id
    desk.put_document(stored(desk, an_unsend(user, "m-3")))
    desk.until_decided()
    late = stored(desk, a_message(user, "m-3"))
    edited = stored(
        desk, {**a_message(user, "m-3"), "event": {**late["event"], "type": "messageEdited"}}
    )
    desk.put_document(late)
    desk.put_document(edited)
    desk.put_document(stored(desk, a_message(user, "m-4", "次")))
    desk.until_decided()

    assert heard.texts == ["次"]
    for document in (late, edited):
        assert SECRET not in str(desk.database.recvq.find_one({"_id": document["_id"]}))
    assert desk.conversation(user)["unsent"] == ["m-3"]
    assert desk.conversation(user)["kind"] == "user"


def test_a_successor_ends_what_a_resumed_stream_brings_with_its_old_text(
    room: Rooms, sim: Sim, deaths: list[BaseException | None]
) -> None:
    first = room(Heard().bot)
    user = sim.add_user("花子").user_id
    message = stored(first, a_message(user, "m-6"))
    first.put_document(stored(first, an_unsend(user, "m-6")))
    first.until_decided()

    heard = Heard()
    second = room(heard.bot, epoch=2)
    second.put_document(message, again=True)
    second.until_decided()

    assert heard.raws == []
    assert SECRET not in everything(second.database)


def test_a_record_that_meets_the_unsend_carries_nothing_out_and_empties_the_copy(
    room: Rooms, sim: Sim
) -> None:
    """The unsend is older than those the process remembers."""
    bot = Bot()
    bot.default()(lambda event, talk: talk.push("はい") if "message" in talk.raw else None)
    desk = room(bot)
    user = sim.add_user("花子")
    Unsends(desk.committer)._note(an_unsend(user.user_id, "m-8"), "m-8")
    message = stored(desk, a_message(user.user_id, "m-8"))
    desk.put_document(message)
    desk.until_quiet()

    assert sim.answers(user) == []
    assert SECRET not in str(desk.database.recvq.find_one({"_id": message["_id"]}))


def test_a_letter_on_its_way_when_the_unsend_comes_is_empty_in_the_end(database: Db) -> None:
    """It was decided before the unsend and is written after it."""
    unsends = unsends_of(database)
    message = a_message("U-on-its-way", "m-9")
    letter = a_letter(message)

    unsends.ends(an_unsend("U-on-its-way", "m-9"))
    unsends.deadletters.write(letter)

    assert database.deadletters.find_one({"_id": letter["id"]})["document"]["unsent"] is True
    assert SECRET not in everything(database)


def test_an_unsend_is_finished_only_when_every_copy_is_empty(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MongoDB fails in the middle; the event stays unfinished and is carried out again."""
    failed = threading.Event()
    empty = DeadLetters.empty

    def once(self: DeadLetters, document: Document, message_id: str) -> None:
        if not failed.is_set():
            failed.set()
            raise StoreUnavailable("planted")
        empty(self, document, message_id)

    monkeypatch.setattr(DeadLetters, "empty", once)
    heard = Heard()
    desk = room(heard.bot)
    user = sim.add_user("花子").user_id
    message = stored(desk, a_message(user, "m-13"))
    desk.database.deadletters.insert_one({"_id": "L13", **a_letter(message)})
    desk.put_document(an_unsend(user, "m-13"))
    assert failed.wait(10)
    desk.until_decided()

    assert SECRET not in everything(desk.database)
    assert [raw["type"] for raw in heard.raws] == ["unsend"]
    assert desk.conversation(user)["unsent"] == ["m-13"]


def leading(database: Db, *, epoch: int = 1) -> Committer:
    return lead(Committer(database), epoch=epoch)


def unsends_of(database: Db, *, epoch: int = 1) -> Unsends:
    return Unsends(leading(database, epoch=epoch))
