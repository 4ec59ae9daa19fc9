"""Outboxes as releases before schema 3 left them: an array, with tries recorded in its sends."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import requests
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import AutoReconnect, DuplicateKeyError

from jobworker.bot.talk import Talk
from jobworker.bot.timers import Timers
from jobworker.effects import Call, SendMethod, moved, numbered
from jobworker.record.conversations import FIRST_NUMBER, Conversations
from linedesk import Bot
from linedesk.store.documents import CONVERSATIONS, SCHEDULE, Document
from linedesk.store.records.effects import place_of
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room, a_send

Rooms = Callable[..., Room]
Db = Database[Any]
REPLY, PUSH, _ = SendMethod
NOW = datetime.now(UTC).replace(microsecond=0)


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


def a_text(text: str) -> list[Document]:
    return [{"type": "text", "text": text}]


def entry(tried: SendMethod | None = None, *, at: datetime | None = NOW, **send: Any) -> Document:
    """A send in the array; without `at` its try was refused."""
    told = {"triedAt": at if tried else None, "as": tried.value if tried else None}
    return {**a_send(**{"retry_key": str(uuid.uuid4()), **send}).as_document(), **told}


def a_push(user: Any, text: str, tried: SendMethod | None = None, **more: Any) -> Document:
    return entry(tried, id=f"E1/{text}", to=user.user_id, messages=a_text(text), **more)


def a_reply(
    sim: Sim, user: Any, text: str, tried: SendMethod | None = None, **more: Any
) -> Document:
    event = sim.drafts.text(user, "?")
    sim.deliver(event)
    told = {"way": REPLY, "token": event["replyToken"], "token_from": datetime.now(UTC)}
    return a_push(user, text, tried, **told, **more)


def left(database: Db, user: Any, *pending: Document, **fields: Any) -> None:
    """The conversation that a process of such a release, of epoch 1, left."""
    row = {
        "_id": f"{CHANNEL}/{user.user_id}",
        "channel": CHANNEL,
        "key": user.user_id,
        "kind": "user",
        "n": 1,
        "epoch": 1,
        "applied": ["E1"],
        "pending": list(pending),
        "at": datetime.now(UTC),
    }
    database[CONVERSATIONS].insert_one({**row, **fields})


def had_by_line(sim: Sim, send: Document) -> None:
    """LINE has taken it, and its answer was not heard."""
    headers = {"Authorization": f"Bearer {sim.token}"}
    body: Document = {"messages": send["messages"]}
    if send["as"] == REPLY.value:
        body["replyToken"] = send["token"]
    else:
        body["to"], headers["X-Line-Retry-Key"] = send["to"], send["retryKey"]
    url = f"{sim.url}/v2/bot/message/{send['as']}"
    assert requests.post(url, json=body, headers=headers, timeout=5).status_code == 200


def echo() -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.push(talk.raw["message"]["text"])

    return bot


# The conversion of entries. Pure.


def place(index: int) -> str:
    return f"place {index}"


def test_entries_keep_their_order_and_lose_the_fields_of_a_try() -> None:
    fresh, letter = entry(id="E1/0"), {"id": "L", "type": "deadletter"}
    assert moved([fresh, letter, 5], place) == {
        "outbox.place 0": {key: fresh[key] for key in fresh.keys() - {"triedAt", "as"}},
        "outbox.place 1": letter,
        "outbox.place 2": 5,
    }


@pytest.mark.parametrize(
    ("tried", "key", "token"), [(REPLY, None, "t"), (PUSH, "k", None)], ids=["reply", "push"]
)
def test_a_try_of_unknown_outcome_becomes_the_call(
    tried: SendMethod, key: str | None, token: str | None
) -> None:
    send = entry(tried, way=REPLY, token="t", token_from=NOW, retry_key="k")
    changes = moved([{"id": "T", "type": "timer"}, send], place)
    call = Call(NOW, tried, ("place 1",), key=key, token=token)
    assert changes["call"] == call.as_document()
    assert changes["outbox.place 1"]["token"] == (None if tried is PUSH else "t")
    assert not {"triedAt", "as"} & changes["outbox.place 1"].keys()


def test_a_reply_that_line_refused_as_invalid_has_no_token_any_more() -> None:
    send = entry(PUSH, at=None, way=REPLY, token="t", token_from=NOW)
    changes = moved([send], place)
    assert changes["outbox.place 0"]["token"] is None
    assert "call" not in changes


def test_a_replay_behind_a_try_of_unknown_outcome_keeps_what_it_knows_of_its_own() -> None:
    first, replay = entry(PUSH, id="E1/0"), entry(PUSH, id="replay:L1:1/0")
    changes = moved([first, replay], place)
    assert changes["call"]["members"] == ["place 0"]
    assert changes["outbox.place 1"] == replay


def test_a_try_beside_a_stored_call_keeps_its_own_fields() -> None:
    tried = entry(PUSH, id="E2/0")
    assert moved([tried], place, has_call=True) == {"outbox.place 0": tried}


def test_a_try_that_a_person_made_up_is_left_as_it_is() -> None:
    broken = [{"type": "send", "triedAt": NOW}, {"type": "send", "triedAt": NOW, "as": "fax"}]
    changes = moved(broken, place)
    assert changes == {"outbox.place 0": broken[0], "outbox.place 1": broken[1]}


# On the real worker.


def test_all_that_waited_is_moved_and_carried_out_once_and_in_order(
    database: Db, room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    timers = Timers(event_id="E1", channel=CHANNEL, key=user.user_id, member=None, source=None)
    timers.after(3600, "egg", {}, now=NOW)
    letter = {
        "id": "E0",
        "type": "deadletter",
        "channel": CHANNEL,
        "key": user.user_id,
        "document": {"event": {}},
        "cause": "handler: ValueError",
        "traceback": None,
        "attempts": 3,
        "firstAt": NOW,
        "lastAt": NOW,
    }
    tried = a_push(user, "一", PUSH)
    had_by_line(sim, tried)
    refused = a_reply(sim, user, "二", PUSH, at=None)
    fresh = a_push(user, "三")
    left(database, user, letter, *numbered(timers.effects(), 1), tried, refused, fresh)
    before = len(sim.calls)
    desk = room(Bot(), epoch=2)
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二", "三"]
    made = [(call.endpoint, call.status) for call in sim.calls[before:]]
    assert made == [("push", 409), ("push", 200)]
    assert [one["_id"] for one in desk.letters()] == ["E0"]
    assert [row["name"] for row in database[SCHEDULE].find()] == ["egg"]
    found = desk.conversation(user.user_id)
    assert found["outbox"] == {}
    assert not {"pending", "call"} & found.keys()


def test_a_reply_of_unknown_outcome_is_proved_by_its_token_and_the_next_one_goes_by_its_own(
    database: Db, room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    tried = a_reply(sim, user, "一", REPLY)
    had_by_line(sim, tried)
    left(database, user, tried, a_reply(sim, user, "二"))
    before = len(sim.calls)
    room(Bot(), epoch=2).until_quiet()
    assert texts(sim, user) == ["一", "二"]
    made = [(call.endpoint, call.status) for call in sim.calls[before:]]
    assert made == [("reply", 400), ("reply", 200)]


def test_a_replay_that_waits_behind_a_try_travels_under_its_own_key(
    database: Db, room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    tried, replay = a_push(user, "一", PUSH), a_push(user, "二", PUSH)
    for send in (tried, replay):
        had_by_line(sim, send)
    left(database, user, tried, replay, a_push(user, "三"))
    room(Bot(), epoch=2).until_quiet()
    assert texts(sim, user) == ["一", "二", "三"]


def test_a_try_of_an_older_release_after_a_switch_back_overwrites_no_call_of_unknown_outcome(
    database: Db, room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    first, tried = a_reply(sim, user, "一", REPLY), a_push(user, "二", PUSH)
    for send in (first, tried):
        had_by_line(sim, send)
    moved_on = {**first, "triedAt": None, "as": None}
    place = place_of(1, FIRST_NUMBER)
    call = Call(NOW, REPLY, (place,), token=first["token"]).as_document()
    left(database, user, tried, outbox={place: moved_on}, call=call, epoch=2)
    before = len(sim.calls)
    room(Bot(), epoch=3).until_quiet()
    assert texts(sim, user) == ["一", "二"]
    made = [(call.endpoint, call.status) for call in sim.calls[before:]]
    assert made == [("reply", 400), ("push", 409)]


@pytest.mark.parametrize("applied", [True, False], ids=["found applied", "recorded"])
def test_an_event_of_a_conversation_that_is_not_adopted_yet_goes_behind_what_waits(
    database: Db, room: Rooms, sim: Sim, applied: bool
) -> None:
    """By a process that froze: its record comes after the outboxes were loaded."""
    user, desk = sim.add_user("花子"), room(echo(), epoch=2)
    desk.until_quiet()
    event = sim.drafts.text(user, "二")
    names = ["E1", event["webhookEventId"]] if applied else ["E1"]
    left(database, user, a_push(user, "一"), applied=names)
    desk.send(event)
    desk.until_quiet()
    assert texts(sim, user) == (["一"] if applied else ["一", "二"])
    assert desk.conversation(user.user_id)["epoch"] == 2


def test_records_of_an_older_release_after_a_switch_back_are_sent_last(
    database: Db, room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    first = a_send(id="E0/0", to=user.user_id, messages=a_text("一")).as_document()
    outbox = {place_of(1, FIRST_NUMBER): first}
    left(database, user, a_push(user, "二"), a_push(user, "三"), outbox=outbox, epoch=2)
    desk = room(echo(), epoch=3)
    desk.says(user, "四")
    desk.until_quiet()
    assert texts(sim, user) == ["一", "二", "三", "四"]


def test_a_move_of_unknown_outcome_moves_nothing_twice(
    database: Db, room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    user, failures = sim.add_user("花子"), ["after", "before"]
    find_one_and_update = Collection.find_one_and_update

    def failing(self: Collection[Any], condition: Any, update: Any, **more: Any) -> Any:
        moves = "pending" in update.get("$unset", ())
        failure = failures.pop() if moves and failures else None
        if failure == "before":
            raise AutoReconnect("away")
        found = find_one_and_update(self, condition, update, **more)
        if failure == "after":
            raise AutoReconnect("away, but done")
        return found

    monkeypatch.setattr(Collection, "find_one_and_update", failing)
    left(database, user, a_push(user, "一"), a_push(user, "二"))
    room(Bot(), epoch=2).until_quiet()
    assert (failures, texts(sim, user)) == ([], ["一", "二"])


def test_a_process_that_died_before_the_move_leaves_it_to_the_next(
    database: Db, room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("花子")
    left(database, user, a_push(user, "一"), epoch=2)
    room(Bot(), epoch=3).until_quiet()
    assert texts(sim, user) == ["一"]


def test_a_frozen_process_of_an_older_release_writes_nothing_once_it_is_moved(
    database: Db, room: Rooms, sim: Sim
) -> None:
    """These are the four writes of such a release, under its epoch."""
    user = sim.add_user("花子")
    waiting = a_push(user, "一")
    left(database, user, waiting)
    room(Bot(), epoch=2).until_quiet()
    rows, id_ = database[CONVERSATIONS], f"{CHANNEL}/{user.user_id}"
    before = rows.find_one({"_id": id_})
    undecided = {"_id": id_, "applied": {"$ne": "E2"}, "epoch": {"$not": {"$gt": 1}}}
    pushed = {"pending": {"$each": [a_push(user, "二")]}}
    with pytest.raises(DuplicateKeyError):
        rows.find_one_and_update(undecided, {"$push": pushed, "$set": {"epoch": 1}}, upsert=True)
    its_own = {"_id": id_, "epoch": 1}
    tried = {"$set": {"pending.$.triedAt": NOW, "pending.$.as": "push"}}
    assert not rows.update_one({**its_own, "pending.id": waiting["id"]}, tried).matched_count
    gone = {"$pull": {"pending": {"id": {"$in": [waiting["id"]]}}}}
    assert not rows.update_one(its_own, gone).matched_count
    kept = {"_id": id_, "epoch": {"$not": {"$gt": 1}}}
    assert not rows.update_one(kept, {"$set": {"epoch": 1}}).matched_count
    assert rows.find_one({"_id": id_}) == before
    assert texts(sim, user) == ["一"]


@pytest.mark.parametrize("broken", ["nothing", {"0": {}}, 5, [], None])
def test_an_array_edited_by_hand_does_not_prevent_adoption(
    database: Db, sim: Sim, broken: Any
) -> None:
    user, mine = sim.add_user("花子"), Conversations(database[CONVERSATIONS])
    mine.epoch = 2
    left(database, user)
    id_ = f"{CHANNEL}/{user.user_id}"
    database[CONVERSATIONS].update_one({"_id": id_}, {"$set": {"pending": broken}})
    assert mine.adopt(id_)["epoch"] == 2


def test_outboxes_are_found_oldest_first_in_both_forms(database: Db, sim: Sim) -> None:
    users = [sim.add_user(str(n)) for n in range(4)]
    for n, user in enumerate(users[:3]):
        at = NOW - timedelta(seconds=n)
        form = {"outbox": {"1-1": {}}, "pending": []} if n == 1 else {}
        left(database, user, a_push(user, "一"), **{"at": at, **form})
    # Made by hand, without a time.
    left(database, users[3], a_push(users[3], "一"))
    database[CONVERSATIONS].update_one({"key": users[3].user_id}, {"$unset": {"at": ""}})
    found = Conversations(database[CONVERSATIONS]).with_outbox()
    assert found == [f"{CHANNEL}/{users[n].user_id}" for n in (3, 2, 1, 0)]
