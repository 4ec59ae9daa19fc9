"""Recording an event once, with several processes and any answer of MongoDB."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from bson import ObjectId
from pymongo.collection import Collection

from dispatcher.commit.committer import Committer, Write
from dispatcher.conversations.conversations import KEPT_SECONDS
from jobworker.effects import Call, SendMethod
from jobworker.record.conversations import (
    FIRST_NUMBER,
    ConversationStore,
    Decision,
    Noted,
    Placed,
    Recorded,
    StoredConversation,
)
from jobworker.record.dead_letters import change_of
from jobworker.record.record import APPLIED
from linedesk import Bot
from linedesk.store.client import Client
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.effects import effects_of, place_of
from linesim import Sim
from tests.dispatcher.faults import failing
from tests.jobworker.worker_harness import Room, a_send, lead
from tests.rows import Db
from tests.waiting import eventually

NOTHING = Decision({}, [])


def document(event_id: str = "E1", key: str = "U1", **event: Any) -> Document:
    source = {"type": "user", "userId": key}
    return {
        "_id": ObjectId(),
        "eventId": event_id,
        "channel": "main",
        "key": key,
        "acceptTime": datetime.now(UTC),
        "event": {"type": "message", "source": source, **event},
    }


def effect(name: str = "E1/0") -> Document:
    return a_send(id=name).as_document()


def deciding(*names: str, **changes: Any) -> Decision:
    return Decision(changes, [effect(name) for name in names])


@pytest.fixture
def of_epoch(database: Db) -> Callable[[int], ConversationStore]:
    def make(epoch: int) -> ConversationStore:
        made = ConversationStore(lead(Committer(database), epoch=epoch))
        made.epoch = epoch
        return made

    return make


@pytest.fixture
def mine(of_epoch: Callable[[int], ConversationStore]) -> ConversationStore:
    return of_epoch(5)


def record(
    conversations: ConversationStore, doc: Document, decision: Decision, **more: Any
) -> Recorded:
    effects = more.pop("effects", None) or conversations.placed(decision.to_carry_out)
    more = {"message_id": None, **more}
    return conversations.recorded(conversations.enter_record(doc, decision, effects, **more))


def is_made(recorded: Recorded) -> bool:
    return not (recorded.applied or recorded.unsent or recorded.outdated)


def places(recorded: Recorded) -> list[str]:
    """The places of a record's effects in the outbox."""
    return [place for place, _ in recorded.effects]


def ids_in(conversation: Document) -> list[str]:
    """The effects in its outbox, in order."""
    return [effect["id"] for _, effect in effects_of(conversation)]


def a_call(*members: str, **fields: Any) -> Call:
    """A push under way for the sends at these places."""
    known = {"at": datetime.now(UTC), "way": SendMethod.PUSH, "key": "k"}
    return Call(**{**known, "members": members, **fields})


def stored(database: Db, key: str = "U1") -> Document:
    found: Document | None = database.conversations.find_one({"_id": f"main/{key}"})
    assert found is not None
    return found


def test_the_last_hundred_names_are_kept_and_twice_as_many_at_most(
    database: Db, mine: ConversationStore
) -> None:
    """Also if one record decides a hundred events."""
    names: list[str] = []
    for n in range(330):
        gathered = {f"{n}-{m}": None for m in range(99 if n % 50 == 0 else 0)}
        record(mine, document(f"E{n}"), NOTHING, gathered=gathered)
        names += [f"E{n}", *gathered]
        applied = stored(database)["applied"]
        assert applied == names[-len(applied) :]
        assert min(len(names), APPLIED) <= len(applied) <= 2 * APPLIED


def test_sixteen_threads_record_one_event_once(database: Db, mine: ConversationStore) -> None:
    doc, start = document(), threading.Barrier(16)

    def on_a_thread(n: int) -> Any:
        start.wait(10)
        return record(mine, doc, deciding(f"E1/{n}"))

    with ThreadPoolExecutor(16) as threads:
        answers = list(threads.map(on_a_thread, range(16)))
    (made,) = [answer for answer in answers if is_made(answer)]
    found = stored(database)
    assert (found["n"], found["applied"], len(found["outbox"])) == (1, ["E1"], 1)
    assert [effect["id"] for _, effect in made.effects] == ids_in(found)
    assert [list(answer.applied) for answer in answers if answer is not made] == [["E1"]] * 15


def test_a_record_and_its_letters_are_one(database: Db, mine: ConversationStore) -> None:
    record(mine, document(), NOTHING, letters=[change_of({"id": "E1"})])
    assert [row["_id"] for row in database.deadletters.find()] == ["E1"]
    assert not is_made(record(mine, document(), NOTHING, letters=[change_of({"id": "E2"})]))
    assert [row["_id"] for row in database.deadletters.find()] == ["E1"]


# A record of unknown outcome, on a mongod that fails on request.


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "made, and the majority not heard of in time": (
        "commitTransaction",
        {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}},
    ),
    "not made, the connection broken": ("update", {"closeConnection": True}),
    "not made, no longer primary": ("update", {"errorCode": 10107}),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_record_of_unknown_outcome_is_settled_and_carried_out_once(
    client: Client, database: Db, sim: Sim, fault: tuple[str, dict[str, Any]]
) -> None:
    command, how = fault
    bot, user, runs = Bot(), sim.add_user("花子"), list[str]()

    @bot.default()
    def handler(event: Any, talk: Any) -> None:
        runs.append(talk.event_id)
        talk.reply("はい")
        talk.after(60, talk.state or "egg")
        talk.state = f"{talk.state or ''}x"

    with Room(database, sim, bot) as room:
        # The driver itself repeats a commit once, so one failure would not be seen.
        with failing(client, [command], times=4, **how):
            room.says(user, "一")
            room.until_quiet()
        room.says(user, "二")
        room.until_quiet()
        found = room.conversation(user.user_id)
        rows = {row["name"]: (row["n"], row["setBy"]) for row in database.schedule.find()}
    assert len(runs) == 2
    assert [bubble.text for bubble in sim.answers(user)] == ["はい", "はい"]
    assert (found["n"], found["state"], len(found["applied"])) == (2, "xx", 2)
    assert rows == {"egg": (1, runs[0]), "x": (2, runs[1])}


LEFT = 1_100


def test_a_successor_decides_before_it_loads_what_waits_to_be_sent(
    database: Db, sim: Sim, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read or write of its start depends on how many outboxes a predecessor left."""
    caplog.set_level(logging.DEBUG, logger="linedesk.runtime")
    caplog.set_level(logging.DEBUG, logger="jobworker")
    go_on, outboxes = threading.Event(), ConversationStore.outboxes

    def late(conversations: ConversationStore, ids: Sequence[str]) -> list[Document]:
        if not go_on.is_set():
            raise StoreUnavailable("not yet")
        return outboxes(conversations, ids)

    monkeypatch.setattr(ConversationStore, "outboxes", late)
    database.conversations.insert_many([unsent_row(f"U{n}") for n in range(LEFT)])
    user, bot = sim.add_user("花子"), Bot()
    bot.default()(lambda event, talk: setattr(talk, "state", "heard"))
    with Room(database, sim, bot, epoch=2) as room, room.desk.gate.turn():
        room.says(user, "一")
        room.until_decided()
        assert room.conversation(user.user_id)["state"] == "heard"
        # They are counted all the same, and an operator's release waits for them.
        assert len(room.desk.outbox.boxes) == LEFT
        assert room.desk.give_up_send("main", "U7", "U7/0")
        go_on.set()
        eventually(lambda: f"outboxes loaded effects={LEFT}" in caplog.text)
        assert len(room.desk.outbox.boxes) == LEFT
        eventually(lambda: not room.desk.give_up_send("main", "U7", "U7/0"))
        assert [letter["_id"] for letter in room.letters()] == ["U7/0"]
        assert not room.desk.give_up_send("main", "U8", "U8/1")
        room.desk.stop()


def unsent_row(key: str) -> Document:
    """A conversation with one push in its outbox."""
    row = {"_id": f"main/{key}", "channel": "main", "key": key, "applied": [], "n": 1}
    outbox = {place_of(1, FIRST_NUMBER): effect(f"{key}/0")}
    return {**row, "at": datetime.now(UTC), "outbox": outbox}


def test_of_two_overlapping_records_at_once_one_is_kept(
    database: Db, mine: ConversationStore
) -> None:
    for n in range(20):
        a, b = f"A{n}", f"B{n}"
        meet = threading.Barrier(2)

        def write(first: str, second: str, meet: threading.Barrier = meet) -> Any:
            meet.wait(15)
            doc = document(first)
            return record(mine, doc, deciding(f"{first}/0"), gathered={second: None})

        with ThreadPoolExecutor(2) as pool:
            answers = [one.result() for one in (pool.submit(write, a, b), pool.submit(write, b, a))]
        assert sorted(map(is_made, answers)) == [False, True]
        applied = stored(database)["applied"]
        assert (applied.count(a), applied.count(b)) == (1, 1)


def with_call(conversations: ConversationStore, name: str) -> tuple[list[Placed], Call]:
    """A send in its place, and its call."""
    [(place, send)] = conversations.placed([effect(name)])
    return [(place, send)], a_call(place)


@pytest.mark.parametrize("by", ["a record", "a note"])
def test_a_later_call_does_not_lose_its_place_to_the_end_of_the_last_one(
    database: Db, mine: ConversationStore, by: str
) -> None:
    """LINE has accepted the call of E1, and its end is made with the next group."""
    effects, first = with_call(mine, "E1/0")
    record(mine, document("E1"), deciding("E1/0"), effects=effects, call=first)
    more = places(record(mine, document("E2"), deciding("E2/0")))
    assert mine.end_later("main/U1", first)
    assert ids_in(stored(database)) == ["E1/0", "E2/0"]
    if by == "a record":
        effects, third = with_call(mine, "E3/0")
        decision = deciding("E3/0")
        recorded = record(mine, document("E3"), decision, effects=effects, call=third)
        assert recorded.call is third
        more = list(third.members)
    else:
        assert mine.note_call("main/U1", a_call(*more), seconds=5) is Noted.NOTED
    found = stored(database)
    assert ids_in(found) == ["E2/0", "E3/0"][: 2 if by == "a record" else 1]
    assert found["call"]["members"] == more


def test_a_change_by_hand_is_seen(
    database: Db, mine: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once if it increments `n`, and otherwise after ten seconds."""
    record(mine, document("E1"), deciding(state="asked"))

    def decides(name: str) -> bool:
        read_n = mine.load(document(name)).n
        decision = Decision({"data": {"by": name}}, [], read_n)
        return not record(mine, document(name), decision).outdated

    assert mine.load(document("E2")).state == "asked"
    database.conversations.update_one({}, {"$set": {"state": "by hand"}, "$inc": {"n": 1}})
    assert not decides("E2")
    assert mine.load(document("E2")).state == "by hand"
    assert decides("E2")
    database.conversations.update_one({}, {"$set": {"state": "by hand again"}})
    assert mine.load(document("E3")).state == "by hand"
    later = time.monotonic() + KEPT_SECONDS
    clock = SimpleNamespace(monotonic=lambda: later)
    monkeypatch.setattr("dispatcher.conversations.conversations.time", clock)
    assert mine.load(document("E3")).state == "by hand again"
    assert decides("E3")
    assert stored(database)["state"] == "by hand again"


def test_what_was_read_before_a_change_is_not_kept(database: Db, mine: ConversationStore) -> None:
    record(mine, document("E1"), deciding(state="asked"))
    find_one, id_ = Collection.find_one, "main/U1"

    def find(collection: Any, *args: Any, **more: Any) -> Any:
        found = find_one(collection, *args, **more)
        if not asked:
            asked.append(True)
            profile = {"displayName": "花子"}
            assert mine.keep_profile(StoredConversation(id_, n=1), None, profile)
        return found

    asked: list[bool] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Collection, "find_one", find)
        assert mine.load(document("E2")).profile is None
    assert mine.load(document("E2")).profile == {"displayName": "花子"}


def test_a_change_while_a_record_is_made_is_in_the_copy(
    database: Db, mine: ConversationStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(mine, document("E1"), deciding(state="asked"))
    mine.load(document("E2"))
    result, profile = Committer.result, {"displayName": "花子"}

    def changed(committer: Committer, write: Write, *seconds: float) -> bool:
        is_made = result(committer, write, *seconds)
        monkeypatch.undo()
        assert mine.keep_profile(StoredConversation("main/U1", n=2), None, profile)
        assert mine.load(document("E3")).n == 2
        return is_made

    monkeypatch.setattr(Committer, "result", changed)
    record(mine, document("E2"), deciding(state="asked again"))
    found = mine.load(document("E3"))
    assert (found.n, found.state, found.profile) == (2, "asked again", profile)
