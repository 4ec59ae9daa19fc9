"""Edited messages: a handler gets the newest text once, and nothing of a message taken back."""

import threading
import uuid
from typing import Any

from linebot.v3.webhooks import MessageEditedEvent, MessageEvent

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.operate.dead_letters import event_again
from linedesk.store.documents import Document
from tests.jobworker.test_unsend import document_of, everything, stored
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms
from tests.rows import Db


class Busy:
    """A bot that notes what it gets; its first message holds the conversation until `free`."""

    def __init__(self) -> None:
        self.group = f"C{uuid.uuid4().hex}"
        self.got: list[tuple[str, str]] = []
        self.free = threading.Event()
        self.bot = Bot()
        self.bot.add(MessageEvent)(self.handle)
        self.bot.add(MessageEditedEvent)(self.handle)

    def event(self, kind: str, at: int, **more: Any) -> Document:
        source = {"type": "group", "groupId": self.group, "userId": "U" + "1" * 32}
        common = {"timestamp": at, "deliveryContext": {"isRedelivery": False}}
        return document_of(kind, "U", **{"source": source, **common, **more})

    def text(self, text: str, at: int, *, kind: str = "message", id_: str = "5001") -> Document:
        message = {"type": "text", "id": id_, "text": text, "quoteToken": "q"}
        return self.event(kind, at, message=message)

    def edit(self, text: str, at: int) -> Document:
        return self.text(text, at, kind="messageEdited")

    def handle(self, event: Any, talk: Talk) -> None:
        if event.message.text == "busy":
            self.free.wait(10)
            return
        self.got.append((event.type, event.message.text))
        if "fail" in event.message.text:
            raise ValueError(event.message.text)


def until_decided(desk: Room, bot: Busy, *documents: Document) -> None:
    """The documents come while the bot is busy with another message of the group."""
    for one in (bot.text("busy", 1, id_="1"), *documents):
        desk.put_document(one)
    bot.free.set()
    desk.until_decided()


def test_an_edit_that_waits_replaces_the_message_and_counts_after_a_restart(
    room: Rooms, database: Db
) -> None:
    bot = Busy()
    desk = room(bot.bot)
    message, first, last = bot.text("古い", 10), bot.edit("新しい", 20), bot.edit("最新", 30)
    # LINE may deliver edits in any order.
    until_decided(desk, bot, stored(desk, message), stored(desk, last), stored(desk, first))
    assert bot.got == [("message", "最新")]
    assert desk.conversation(bot.group)["edits"] == {"5001": 30}
    assert "最新" not in str(desk.conversation(bot.group))

    desk.until_quiet()
    successor = room(bot.bot, epoch=2)
    for document in (message, last, first):
        successor.put_document(document, again=True)
    successor.put_document(bot.edit("もう一度", 40))
    successor.until_decided()
    assert bot.got[1:] == [("messageEdited", "もう一度")]


def test_a_message_that_comes_after_its_edit_has_the_edits_text(room: Rooms) -> None:
    bot = Busy()
    desk = room(bot.bot)
    desk.put_document(stored(desk, bot.edit("新しい", 20)))
    desk.until_decided()
    desk.put_document(stored(desk, bot.text("古い", 10)))
    desk.until_decided()
    assert bot.got == [("messageEdited", "新しい"), ("message", "新しい")]


def test_an_edited_message_that_fails_keeps_the_newest_text_until_it_is_taken_back(
    room: Rooms, database: Db
) -> None:
    bot = Busy()
    desk = room(bot.bot, tries=1)
    message, edited = bot.text("fail 古い", 10), bot.edit("fail ひみつ", 20)
    until_decided(desk, bot, stored(desk, message), stored(desk, edited))
    assert bot.got == [("message", "fail ひみつ")]
    (letter,) = desk.letters()
    now = letter["lastAt"]
    desk.put_document(event_again(letter, name=f"replay:{letter['_id']}:1", now=now))
    desk.until_decided()
    assert bot.got[1:] == [("message", "fail ひみつ")]

    unsend = bot.event("unsend", 25, unsend={"messageId": "5001"})
    until_decided(desk, bot, stored(desk, unsend), bot.edit("ひみつ 2", 30))
    assert len(bot.got) == 2
    assert "ひみつ" not in everything(database)


def test_only_the_last_edited_messages_are_noted(room: Rooms) -> None:
    bot = Busy()
    desk = room(bot.bot)
    known = {str(number): 1 for number in range(100)}
    place = {"channel": CHANNEL, "key": bot.group, "n": 1, "applied": [], "edits": known}
    desk.database.conversations.insert_one({"_id": f"{CHANNEL}/{bot.group}", **place})
    desk.put_document(bot.edit("やあ", 20))
    desk.until_decided()
    noted = desk.conversation(bot.group)["edits"]
    assert (len(noted), "0" in noted, noted["5001"]) == (100, False, 20)
