"""Messages that a handler gets together: on a whole worker, against MongoDB and the simulator."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from linebot.v3.webhooks import MessageEvent, StickerMessageContent, TextMessageContent

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.operate.dead_letters import explained
from linedesk.store.control import NO_PAUSES, Pause, Pauses, Scope
from linedesk.store.documents import Document
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, Rooms, texts
from tests.rows import Db, rows_of
from tests.waiting import eventually

# Longer than any test lasts: such a gathering ends only by the documents behind it, or their
# number.
LONG = 30.0


class Gatherer:
    """A bot that repeats its gathered messages; `seen` are its handler's calls."""

    def __init__(self, *, gather: float = LONG, most: int | None = None, **options: Any) -> None:
        self.bot = Bot()
        self.seen: list[list[str]] = []
        self.fails = 0
        self.act: Callable[[list[MessageEvent], Talk], None] = self.answer
        self.bot.add(MessageEvent, message=TextMessageContent, gather=gather, most=most, **options)(
            self.handle
        )

        @self.bot.add(MessageEvent, message=StickerMessageContent)
        def sticker(event: Any, talk: Talk) -> None:
            talk.reply("スタンプですね")

    def handle(self, events: list[MessageEvent], talk: Talk) -> None:
        self.seen.append([event.message.text for event in events])
        if len(self.seen) <= self.fails:
            raise RuntimeError("planted")
        self.act(events, talk)

    def answer(self, events: list[MessageEvent], talk: Talk) -> None:
        talk.data["handled"] = [*talk.data.get("handled", ()), *self.seen[-1]]
        talk.reply("、".join(self.seen[-1]))


def say(desk: Room, user: Any, *words: str, **more: Any) -> list[Document]:
    return [desk.says(user, word, **more) for word in words]


def names(documents: list[Document]) -> list[str]:
    return [one["eventId"] for one in documents]


@pytest.mark.parametrize("what", ["sticker", "another sender", "postback"])
def test_anything_else_behind_them_ends_it(room: Rooms, sim: Sim, what: str) -> None:
    user, other, gatherer = sim.add_user("花子"), sim.add_user("太郎"), Gatherer()
    group = sim.add_group("組")
    group.members.extend((user.user_id, other.user_id))
    desk = room(gatherer.bot)
    say(desk, user, "一", "二", chat=group)
    eventually(lambda: desk.pool.view.in_hand()["waiting_keys"]["again"] == 1)
    assert gatherer.seen == []
    if what == "sticker":
        desk.send(sim.drafts.sticker(user, chat=group))
    elif what == "postback":
        desk.send(sim.drafts.postback(user, "x", chat=group))
    else:
        desk.says(other, "三", chat=group)
        desk.says(user, "四", chat=group)
        desk.send(sim.drafts.sticker(user, chat=group))
    desk.until_quiet()
    assert gatherer.seen == [["一", "二"], *([["三"], ["四"]] if what == "another sender" else [])]


def test_a_message_whose_condition_fails_fails_alone(room: Rooms, sim: Sim) -> None:
    user, bot = sim.add_user("花子"), Gatherer()
    prices = {"卵": 0, "牛乳": 0}
    bot.bot.add(MessageEvent, when=lambda event, talk: prices[event.message.text] > 0)(bot.handle)
    desk = room(bot.bot)
    *_, wrong = say(desk, user, "卵", "牛乳", "パン")
    desk.until_quiet()
    assert bot.seen == [["卵", "牛乳"]]
    assert [letter["_id"] for letter in desk.letters()] == [wrong["eventId"]]


def test_a_message_whose_unsend_is_queued_is_left_out(room: Rooms, sim: Sim) -> None:
    user, gatherer = sim.add_user("花子"), Gatherer()
    desk = room(gatherer.bot)
    desk.pool.obey(Pauses((Pause(Scope(CHANNEL)),)))
    documents = say(desk, user, "秘密", "こんにちは", "間違い")
    for taken_back in (documents[0], documents[2]):
        desk.send(sim.drafts.unsend(taken_back["event"]["message"]["id"], user))
    desk.pool.obey(NO_PAUSES)
    desk.until_quiet()
    assert gatherer.seen == [["こんにちは"]]
    assert texts(sim, user) == ["こんにちは"]
    rows = {row["eventId"]: row["outcome"] for row in runs_of(desk)}
    assert [rows[name] for name in names(documents)] == ["recorded", "gathered", "unheard"]
    first = [row.get("gatheredWith") for row in runs_of(desk) if row["eventId"] in names(documents)]
    assert first == [None, *names(documents)[:1] * 2]


def test_of_messages_that_were_all_taken_back_none_is_handled(room: Rooms, sim: Sim) -> None:
    user, gatherer = sim.add_user("花子"), Gatherer()
    desk = room(gatherer.bot)
    (document,) = say(desk, user, "秘密")
    desk.send(sim.drafts.unsend(document["event"]["message"]["id"], user))
    desk.until_quiet()
    assert gatherer.seen == []
    assert [row["outcome"] for row in runs_of(desk)][:1] == ["unheard"]


@pytest.mark.parametrize("place", [0, 1])
def test_a_message_that_the_record_finds_taken_back_is_left_out(
    room: Rooms, sim: Sim, place: int
) -> None:
    """Another process has noted it; the others are handled again, without it."""
    user, gatherer = sim.add_user("花子"), Gatherer(most=3)
    desk = room(gatherer.bot)
    documents: list[Document] = []

    def handle(events: list[MessageEvent], talk: Talk) -> None:
        if len(gatherer.seen) == 1:
            note_unsent(desk, user, documents[place]["event"]["message"]["id"])
        gatherer.answer(events, talk)

    gatherer.act = handle
    drafts = [sim.drafts.text(user, word) for word in "一二三"]
    sim.deliver(*drafts)
    documents += [a_document(event) for event in drafts]
    for one in documents:
        desk.put_document(one)
    if place == 0:
        # Without the first one two are left, and they wait for a third.
        say(desk, user, "四")
    desk.until_quiet()
    assert gatherer.seen == [["一", "二", "三"], [["二", "三", "四"], ["一", "三"]][place]]
    assert texts(sim, user) == ["、".join(gatherer.seen[-1])]


def note_unsent(desk: Room, user: Any, message_id: str) -> None:
    id_ = f"{CHANNEL}/{user.user_id}"
    desk.database.conversations.update_one(
        {"_id": id_}, {"$push": {"unsent": message_id}}, upsert=True
    )


def a_document(event: dict[str, Any]) -> Document:
    return {
        "_id": event["webhookEventId"],
        "eventId": event["webhookEventId"],
        "channel": CHANNEL,
        "key": event["source"]["userId"],
        "acceptTime": datetime.now(UTC),
        "event": event,
    }


def runs_of(desk: Room) -> list[Document]:
    desk.desk.rows.write()
    return rows_of(desk.database.jobs)


def test_each_of_those_given_up_becomes_a_dead_letter_of_its_own(room: Rooms, sim: Sim) -> None:
    user, gatherer = sim.add_user("花子"), Gatherer(most=3)
    desk = room(gatherer.bot, tries=2)
    gatherer.fails = 2
    documents = say(desk, user, "一", "二", "三")
    desk.until_quiet()
    assert gatherer.seen == [["一", "二", "三"]] * 2
    letters = {letter["_id"]: letter for letter in desk.letters()}
    assert sorted(letters) == sorted(names(documents))
    assert {explained(letter) for letter in letters.values()} == {"handler: RuntimeError"}
    assert [letters[n]["document"]["event"]["message"]["text"] for n in names(documents)] == [
        *"一二三"
    ]
    assert texts(sim, user) == []


@pytest.mark.parametrize("recorded", [1, 2])
@pytest.mark.parametrize("answers", [True, False])
def test_messages_gathered_otherwise_by_a_predecessor_are_decided_once(
    database: Db, room: Rooms, sim: Sim, recorded: int, answers: bool
) -> None:
    """It recorded fewer of them, and its successor finds that only with its own record."""
    user, slow, quick = sim.add_user("花子"), Gatherer(most=3), Gatherer(gather=0.01)
    documents = [a_document(sim.drafts.text(user, word)) for word in "一二三"]
    with Room(database, sim, quick.bot) as predecessor:
        for one in documents[:recorded]:
            predecessor.put_document(dict(one))
        predecessor.until_quiet()
    successor = room(slow.bot, epoch=2)

    def handle(events: list[MessageEvent], talk: Talk) -> None:
        talk.data["read"] = True
        if answers:
            slow.answer(events, talk)

    slow.act = handle
    for one in documents:
        successor.put_document(one)
    successor.send(sim.drafts.sticker(user))
    successor.until_quiet()
    handled = successor.conversation(user.user_id)["data"]["handled"]
    assert handled == ["一", "二", "三"][: 3 if answers else recorded]
    assert [slow.seen[0], slow.seen[-1]] == [["一", "二", "三"], ["一", "二", "三"][recorded:]]
    applied = successor.conversation(user.user_id)["applied"]
    assert sorted(name for name in applied if name in names(documents)) == sorted(names(documents))


def test_a_state_that_another_process_has_changed_ends_the_gathering(room: Rooms, sim: Sim) -> None:
    """The decision is made by an older state: the handler of the new one gets one event each."""
    user, gatherer = sim.add_user("花子"), Gatherer(most=2)
    desk, alone = room(gatherer.bot), list[str]()

    @gatherer.bot.add(MessageEvent, message=TextMessageContent, state="busy")
    def busy(event: MessageEvent, talk: Talk) -> None:
        alone.append(event.message.text)
        talk.push("はい")

    def handle(events: list[MessageEvent], talk: Talk) -> None:
        desk.database.conversations.update_one(
            {"_id": f"{CHANNEL}/{user.user_id}"},
            {"$set": {"state": "busy"}, "$inc": {"n": 1}},
            upsert=True,
        )
        gatherer.answer(events, talk)

    gatherer.act = handle
    say(desk, user, "一", "二")
    desk.until_quiet()
    assert (gatherer.seen, alone) == ([["一", "二"]], ["一", "二"])
    assert texts(sim, user) == ["はい", "はい"]
