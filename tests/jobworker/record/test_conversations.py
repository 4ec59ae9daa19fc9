"""Recording an event once, with several processes and any answer of MongoDB."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database

from dispatcher.commit.committer import Committer, Write
from dispatcher.conversations.conversations import KEPT_SECONDS
from jobworker.bot.talk import Talk, TalkContext
from jobworker.effects import Call, SendMethod
from jobworker.record.conversations import (
    FIRST_NUMBER,
    MOST_MEMBERS,
    ConversationStore,
    Decision,
    LateCall,
    Noted,
    Outbound,
    Placed,
    Recorded,
    StoredConversation,
)
from jobworker.record.dead_letters import DeadLetters, change_of
from jobworker.record.record import APPLIED
from jobworker.sending.conversation_outbox import SendLimits
from linedesk import Bot
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client, connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.errors import Replaced, StoreUnavailable
from linedesk.store.records.effects import WITH_OUTBOX, effects_of, place_of
from linesim import Sim
from tests.jobworker.worker_harness import Room, a_send, lead, outbound
from tests.waiting import eventually

Db = Database[Any]
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


def test_a_first_record_looks_as_the_contract_says(database: Db, mine: ConversationStore) -> None:
    record(mine, document(), deciding("E1/0", state="asked", data={"n": 1}))
    found = stored(database)
    at = found.pop("at")
    assert abs((datetime.now(UTC) - at).total_seconds()) < 5
    ((place, effect),) = found.pop("outbox").items()
    assert place == "0000000005-0000000000"
    assert found == {
        "_id": "main/U1",
        "channel": "main",
        "key": "U1",
        "kind": "user",
        "profile": None,
        "friend": None,
        "state": "asked",
        "data": {"n": 1},
        "n": 1,
        "applied": ["E1"],
        "unsent": [],
    }
    assert effect == {
        "id": "E1/0",
        "type": "send",
        "eventId": "E1",
        "way": "push",
        "to": "U" + "1" * 32,
        "messages": [{"type": "text", "text": "こんにちは"}],
        "retryKey": effect["retryKey"],
        "at": effect["at"],
        "token": None,
        "tokenFrom": None,
    }
    assert isinstance(effect["at"], datetime)


def test_a_later_record_changes_only_what_was_decided(
    database: Db, mine: ConversationStore
) -> None:
    record(mine, document("E1"), deciding("E1/0", state="asked", data={"n": 1}))
    record(mine, document("E2"), deciding("E2/0", friend=False))
    found = stored(database)
    assert (found["state"], found["data"], found["friend"]) == ("asked", {"n": 1}, False)
    assert (found["n"], found["applied"]) == (2, ["E1", "E2"])
    assert ids_in(found) == ["E1/0", "E2/0"]


def test_an_event_without_an_id_is_named_by_its_document(
    database: Db, mine: ConversationStore
) -> None:
    doc = document()
    del doc["eventId"]
    record(mine, doc, deciding("x"))
    assert stored(database)["applied"] == [str(doc["_id"])]


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


def test_most_records_leave_the_older_names_as_they_are(
    database: Db, mine: ConversationStore
) -> None:
    """Removing some rewrites all others, 4 kB of the oplog each time."""
    counts = []
    for n in range(320):
        record(mine, document(f"E{n}"), NOTHING)
        counts.append(len(stored(database)["applied"]))
    shorter = [after for before, after in pairwise(counts) if after <= before]
    assert set(shorter) == {APPLIED}
    # Once more than needed, since nothing was known of it at first.
    assert len(shorter) <= 3


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


def test_sixteen_first_events_of_one_key_are_all_recorded(
    database: Db, mine: ConversationStore
) -> None:
    for round_ in range(5):
        start, key = threading.Barrier(16), f"U{round_}"

        def on_a_thread(n: int, start: threading.Barrier = start, key: str = key) -> None:
            start.wait(10)
            record(mine, document(f"E{n}", key), deciding(f"E{n}/0"))

        with ThreadPoolExecutor(16) as threads:
            list(threads.map(on_a_thread, range(16)))
        found = stored(database, key)
        assert sorted(found["applied"]) == sorted(f"E{n}" for n in range(16))
        assert (found["n"], len(found["outbox"])) == (16, 16)


def test_a_successor_s_conversation_refuses_its_predecessor(
    database: Db, of_epoch: Callable[[int], ConversationStore]
) -> None:
    old = of_epoch(5)
    (place,) = places(record(old, document("E1"), deciding("E1/0")))
    call, letters = a_call(place), [change_of({"id": "E1/0"})]
    assert old.note_call("main/U1", call, seconds=5) is Noted.NOTED
    before = stored(database)
    of_epoch(6)
    writes: list[Callable[[], Any]] = [
        lambda: record(old, document("E2"), deciding("E2/0")),
        lambda: record(old, document("E1"), deciding("E1/0")),
        lambda: record(old, document("E1", "U2"), deciding("E1/0")),
        lambda: old.note_call("main/U1", call, seconds=5),
        lambda: old.end_call("main/U1", done=[place]),
        lambda: old.give_up("main/U1", [place], letters, ends_call=True),
        lambda: old.put_back("main/U1", place, "E1", {}),
        lambda: old.keep_profile(StoredConversation("main/U1", n=1), None, {"displayName": "花子"}),
        lambda: old.remove("main/U1", place),
    ]
    for write in writes:
        with pytest.raises(Replaced):
            write()
    assert [stored(database)] == list(database.conversations.find()) == [before]
    assert database.deadletters.count_documents({}) == 0


def test_an_event_that_a_predecessor_recorded_is_found_applied(
    database: Db, of_epoch: Callable[[int], ConversationStore]
) -> None:
    record(of_epoch(5), document(), deciding("E1/0", state="asked"))
    answer = record(of_epoch(7), document(), deciding("other/0", state="forgotten"))
    assert (list(answer.applied), answer.effects) == (["E1"], ())
    found = stored(database)
    assert (found["state"], found["n"], ids_in(found)) == ("asked", 1, ["E1/0"])


def test_an_event_whose_message_was_unsent_is_finished_without_effects(
    database: Db, mine: ConversationStore
) -> None:
    record(mine, document("E1"), NOTHING)
    database.conversations.update_one({}, {"$push": {"unsent": "M1"}})
    answer = record(mine, document("E2"), deciding("E2/0"), message_id="M1")
    assert (answer.unsent, answer.effects) == (True, ())
    assert "outbox" not in stored(database)
    assert is_made(record(mine, document("E3"), deciding("E3/0"), message_id="M2"))


def test_a_call_is_kept_in_the_conversation_until_its_verdict(
    database: Db, mine: ConversationStore
) -> None:
    here = places(record(mine, document(), deciding("E1/0", "E1/1", "E1/2")))
    call = a_call(*here[:2])
    assert mine.note_call("main/U1", call, seconds=5) is Noted.NOTED
    found = Outbound.of(stored(database)).call
    assert isinstance(found, Call)
    assert (found.members, found.way, found.key) == (call.members, call.way, "k")
    for _ in range(2):
        mine.end_call("main/U1", done=call.members)
        left = stored(database)
        assert (ids_in(left), "call" in left) == (["E1/2"], False)


def test_a_call_that_line_refused_leaves_its_sends_without_the_token(
    database: Db, mine: ConversationStore
) -> None:
    sends = [a_send(id=f"E1/{n}", token="t").as_document() for n in range(2)]
    here = places(record(mine, document(), Decision({}, sends)))
    call = a_call(*here, way=SendMethod.REPLY, key=None, token="t")
    assert mine.note_call("main/U1", call, seconds=5) is Noted.NOTED
    mine.end_call("main/U1", used_up=here[1:])
    found = stored(database)
    assert [one["token"] for _, one in effects_of(found)] == ["t", None]
    assert "call" not in found


def test_a_conversation_has_so_many_late_replies_a_day(
    database: Db, mine: ConversationStore
) -> None:
    call = a_call(*places(record(mine, document(), deciding("E1/0"))))
    noted = [
        mine.note_call("main/U1", call, LateCall(day, 2), seconds=5)
        for day in ("2026-11-27", "2026-11-27", "2026-11-27", "2026-11-28")
    ]
    assert noted == [Noted.NOTED, Noted.NOTED, Noted.TOO_MANY_LATE, Noted.NOTED]
    assert stored(database)["late"] == {"day": "2026-11-28", "calls": 1}


def test_letters_take_the_place_of_their_sends_and_end_the_call(
    database: Db, mine: ConversationStore
) -> None:
    here = places(record(mine, document(), deciding("E1/0", "E1/1", "E1/2")))
    assert mine.note_call("main/U1", a_call(*here[:2]), seconds=5) is Noted.NOTED
    letters = [change_of({"id": f"E1/{n}", "cause": "refused"}) for n in range(2)]
    for _ in range(2):
        mine.give_up("main/U1", here[:2], letters, ends_call=True)
        found = stored(database)
        assert (ids_in(found), "call" in found) == (["E1/2"], False)
        assert [row["_id"] for row in database.deadletters.find()] == ["E1/0", "E1/1"]


def test_a_letter_that_is_written_again_stays_as_it_is(database: Db) -> None:
    letters = DeadLetters(lead(Committer(database)), is_unsent=lambda _: False)
    for cause in ("handler: ValueError", "a late writer"):
        letters.write({"id": "E1", "effect": effect(), "cause": cause})
    (row,) = database.deadletters.find()
    assert (row["_id"], row["cause"]) == ("E1", "handler: ValueError")


def test_a_letter_is_written_although_its_conversation_was_deleted_by_hand(
    database: Db, mine: ConversationStore
) -> None:
    here = places(record(mine, document(), deciding("E1/0")))
    database.conversations.delete_many({})
    mine.give_up("main/U1", here, [change_of({"id": "E1/0"})], ends_call=True)
    assert database.deadletters.count_documents({}) == 1
    assert database.conversations.count_documents({}) == 0


def test_a_record_and_its_letters_are_one(database: Db, mine: ConversationStore) -> None:
    record(mine, document(), NOTHING, letters=[change_of({"id": "E1"})])
    assert [row["_id"] for row in database.deadletters.find()] == ["E1"]
    assert not is_made(record(mine, document(), NOTHING, letters=[change_of({"id": "E2"})]))
    assert [row["_id"] for row in database.deadletters.find()] == ["E1"]


def test_no_late_write_recreates_a_removed_effect(database: Db, mine: ConversationStore) -> None:
    (place,) = places(record(mine, document(), deciding("E1/0")))
    mine.remove("main/U1", place)
    mine.give_up("main/U1", [place], [change_of({"id": "E1/0"})], ends_call=False)
    mine.end_call("main/U1", used_up=[place])
    mine.put_back("main/U1", place, "E1", {})
    assert stored(database)["outbox"] == {}


def test_a_carried_out_effect_is_removed_and_may_be_removed_twice(
    database: Db, mine: ConversationStore
) -> None:
    first, second = places(record(mine, document(), deciding("E1/0", "E1/1")))
    mine.remove("main/U1", first)
    mine.remove("main/U1", first)
    assert ids_in(stored(database)) == ["E1/1"]
    assert mine.note_call("main/U1", a_call(first, second), seconds=5) is Noted.GONE
    assert "call" not in stored(database)


def test_a_successor_finds_the_outboxes_oldest_record_first(
    database: Db, of_epoch: Callable[[int], ConversationStore]
) -> None:
    old = of_epoch(5)
    for key in ("U3", "U1", "U2"):
        record(old, document("E1", key), deciding("E1/0"))
    record(old, document("E1", "U9"), NOTHING)
    new = of_epoch(6)
    left = new.with_outbox()
    assert left == ["main/U3", "main/U1", "main/U2"]
    found = {row["_id"]: ids_in(row) for row in new.outboxes(left[:2])}
    assert found == {"main/U3": ["E1/0"], "main/U1": ["E1/0"]}


def test_the_list_of_outboxes_is_read_from_its_index(database: Db, mine: ConversationStore) -> None:
    record(mine, document(), deciding("E1/0"))
    plan = database.command(
        "explain",
        {"find": "conversations", "filter": WITH_OUTBOX, "hint": "outbox", "sort": {"at": 1}},
    )
    assert "IXSCAN" in str(plan["queryPlanner"]["winningPlan"])
    assert "'SORT'" not in str(plan["queryPlanner"]["winningPlan"])


@pytest.mark.parametrize(
    "data",
    [
        {"$set": 1, "a.b": {"$ref": 2}, "": None, "_id": [1]},
        {"when": datetime(1, 1, 1, tzinfo=UTC), "much": 2**63 - 1, "text": "😀"},
        {"list": [[], {}, [None]], "nan": float("inf")},
    ],
)
def test_any_data_reads_back(database: Db, mine: ConversationStore, data: Document) -> None:
    for name in ("E1", "E2"):
        record(mine, document(name), deciding(f"{name}/0", data=data))
        assert mine.load(document()).data == data


def test_a_conversation_not_yet_known_is_empty(mine: ConversationStore) -> None:
    found = mine.load(document())
    assert (found.state, found.data, found.profile, list(found.applied)) == (None, {}, None, [])


def test_a_full_outbox_makes_a_record_wait_instead_of_failing(
    database: Db, mine: ConversationStore
) -> None:
    large, here = "あ" * 600_000, list[str]()
    for n in range(10):
        decision = Decision({}, [{**effect(f"E{n}/0"), "messages": [large]}])
        try:
            here += places(record(mine, document(f"E{n}"), decision))
        except StoreUnavailable:
            break
    else:
        pytest.fail("MongoDB took more than a document can hold")
    mine.remove("main/U1", *here[:2])
    assert is_made(record(mine, document(f"E{n}"), decision))


# A record of unknown outcome, on a mongod that fails on request.


@pytest.fixture(scope="module")
def breakable(tmp_path_factory: pytest.TempPathFactory, mongod: object) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("breakable")
    extra = ["--setParameter", "enableTestCommands=1", "--oplogSize", "100"]
    with (
        EmbeddedMongod(folder, extra=extra) as server,
        connect(server.uri, app_name="breakable") as client,
    ):
        create_collections(client["line_bot"], capped_bytes=MEGABYTE)
        yield client


@pytest.fixture
def broken_database(breakable: Client) -> Iterator[Db]:
    database = breakable["line_bot"]
    yield database
    fail(breakable, "off")
    for name in ("conversations", "deadletters", "schedule", "progress"):
        database[name].delete_many({})


def fail(client: Client, mode: Any, *commands: str, **data: Any) -> None:
    client.admin.command(
        {
            "configureFailPoint": "failCommand",
            "mode": mode,
            **({"data": {"failCommands": list(commands), **data}} if commands else {}),
        }
    )


FAULTS: dict[str, tuple[str, dict[str, Any]]] = {
    "made, and the majority not heard of in time": (
        "commitTransaction",
        {"writeConcernError": {"code": 64, "errmsg": "waiting for replication timed out"}},
    ),
    "made or not, the connection broken": ("commitTransaction", {"closeConnection": True}),
    "not made, the connection broken": ("update", {"closeConnection": True}),
    "not made, no longer primary": ("update", {"errorCode": 10107}),
    "not made, interrupted": ("update", {"errorCode": 11601}),
}


def appending(*, timers: bool) -> tuple[Bot, list[str]]:
    """A bot whose state has an x for each event, and the events of all runs of its handler."""
    bot, runs = Bot(), []

    @bot.default()
    def handler(event: Any, talk: Any) -> None:
        runs.append(talk.event_id)
        talk.reply("はい")
        if timers:
            talk.after(60, talk.state or "egg")
        talk.state = f"{talk.state or ''}x"

    return bot, runs


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_record_of_unknown_outcome_is_settled_and_carried_out_once(
    breakable: Client, broken_database: Db, sim: Sim, fault: tuple[str, dict[str, Any]]
) -> None:
    command, how = fault
    bot, runs = appending(timers=True)
    user = sim.add_user("花子")
    with Room(broken_database, sim, bot) as room:
        # The driver itself repeats a commit once, so one failure would not be seen.
        fail(breakable, {"times": 4}, command, **how)
        room.says(user, "一")
        room.until_quiet()
        room.says(user, "二")
        room.until_quiet()
        found = room.conversation(user.user_id)
        rows = {row["name"]: (row["n"], row["setBy"]) for row in broken_database.schedule.find()}
    assert len(runs) == 2
    assert [bubble.text for bubble in sim.answers(user)] == ["はい", "はい"]
    assert (found["n"], found["state"], len(found["applied"])) == (2, "xx", 2)
    assert rows == {"egg": (1, runs[0]), "x": (2, runs[1])}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_grouped_writes_of_unknown_outcome_are_settled_and_carried_out_once(
    breakable: Client, broken_database: Db, sim: Sim, fault: tuple[str, dict[str, Any]]
) -> None:
    """The records, the notes of their calls and the ends of those."""
    command, how = fault
    bot, runs = appending(timers=False)
    users = [sim.add_user(f"客{n}") for n in range(4)]
    with Room(broken_database, sim, bot) as room:
        for user in users:
            room.says(user, "一")
        room.until_quiet()
        fail(breakable, {"times": 6}, command, **how)
        for text in "二三":
            for user in users:
                room.says(user, text)
            room.until_quiet()
        found = [room.conversation(user.user_id) for user in users]
        assert room.calls_noted() == []
    assert len(runs) == 12
    assert [[one.text for one in sim.answers(user)] for user in users] == [["はい"] * 3] * 4
    assert [(one["n"], one["state"], len(one["applied"])) for one in found] == [(3, "xxx", 3)] * 4


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_a_timer_of_unknown_outcome_is_entered_and_leaves_the_outbox(
    breakable: Client,
    broken_database: Db,
    sim: Sim,
    caplog: pytest.LogCaptureFixture,
    fault: tuple[str, dict[str, Any]],
) -> None:
    caplog.set_level(logging.DEBUG, logger="linedesk.runtime")
    caplog.set_level(logging.INFO)
    bot = Bot()
    command, how = fault

    @bot.default()
    def handler(event: Any, talk: Any) -> None:
        talk.after(60, "egg")
        talk.cancel("rice")
        # Also the rows and their leaving the outbox; the driver repeats each once by itself.
        fail(breakable, {"times": 5}, *{command, "update"}, **how)

    user = sim.add_user("花子")
    limits = SendLimits(store_pause_seconds=0.05)
    with Room(broken_database, sim, bot, send_limits=limits) as room:
        until_loaded(caplog)
        room.says(user, "一")
        room.until_quiet()
    rows = broken_database.schedule.find().sort("name", 1)
    assert [(row["name"], row["n"], row["runAt"] is None) for row in rows] == [
        ("egg", 1, False),
        ("rice", 1, True),
    ]


def test_a_try_not_known_to_be_written_down_calls_nothing(
    breakable: Client, broken_database: Db, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="linedesk.runtime")
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Any) -> None:
        talk.reply("はい")
        # The record, with its call.
        fail(breakable, "alwaysOn", "update", errorCode=11601)

    user = sim.add_user("花子")
    before = len(sim.calls)
    with Room(broken_database, sim, bot) as room:
        room.says(user, "一")
        eventually(lambda: caplog.text.count("writes not confirmed") > 2)
        assert len(sim.calls) == before
        fail(breakable, "off")
        room.until_quiet()
    assert [bubble.text for bubble in sim.answers(user)] == ["はい"]


def until_loaded(caplog: pytest.LogCaptureFixture) -> None:
    """Until a room has made the updates of its start."""
    eventually(lambda: "outboxes loaded" in caplog.text)


def test_an_answer_that_could_not_be_written_down_is_not_asked_for_again(
    breakable: Client,
    broken_database: Db,
    sim: Sim,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    end_later = ConversationStore.end_later

    def broken(conversations: ConversationStore, id_: str, call: Call) -> bool:
        fail(breakable, "alwaysOn", "update", errorCode=11601)
        return end_later(conversations, id_, call)

    monkeypatch.setattr(ConversationStore, "end_later", broken)
    bot = Bot()
    bot.default()(lambda event, talk: talk.push("はい"))
    user = sim.add_user("花子")
    before = len(sim.calls)
    with Room(broken_database, sim, bot) as room:
        room.says(user, "一")
        eventually(lambda: "writes not confirmed" in caplog.text)
        fail(breakable, "off")
        room.until_quiet()
    assert len(sim.calls) == before + 1


LEFT = 1_100


class LateLoads:
    """No outbox of a predecessor can be loaded until it may be."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on = threading.Event()
        outboxes = ConversationStore.outboxes

        def late(conversations: ConversationStore, ids: Sequence[str]) -> list[Document]:
            if not self.go_on.is_set():
                raise StoreUnavailable("not yet")
            return outboxes(conversations, ids)

        monkeypatch.setattr(ConversationStore, "outboxes", late)


def test_a_successor_decides_before_it_loads_what_waits_to_be_sent(
    database: Db, sim: Sim, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read or write of its start depends on how many outboxes a predecessor left."""
    caplog.set_level(logging.DEBUG, logger="linedesk.runtime")
    caplog.set_level(logging.INFO)
    loads = LateLoads(monkeypatch)
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
        loads.go_on.set()
        eventually(lambda: f"outboxes loaded effects={LEFT}" in caplog.text)
        assert len(room.desk.outbox.boxes) == LEFT
        eventually(lambda: not room.desk.give_up_send("main", "U7", "U7/0"))
        assert [letter["_id"] for letter in room.letters()] == ["U7/0"]
        assert not room.desk.give_up_send("main", "U8", "U8/1")
        room.desk.stop()


def test_outboxes_not_loaded_yet_count_as_waiting(
    database: Db, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = SendLimits(most_in_all=3)
    LateLoads(monkeypatch)
    database.conversations.insert_many([unsent_row(f"U{n}") for n in (1, 2)])
    with Room(database, sim, Bot(), epoch=2, send_limits=limits) as room:
        assert len(room.desk.outbox.boxes) == 2
        assert room.desk.has_room()
        room.desk.outbox.add("main/U3", outbound(effect("U3/0")))
        assert not room.desk.has_room()


def unsent_row(key: str) -> Document:
    """A conversation with one push in its outbox."""
    row = {"_id": f"main/{key}", "channel": "main", "key": key, "applied": [], "n": 1}
    outbox = {place_of(1, FIRST_NUMBER): effect(f"{key}/0")}
    return {**row, "at": datetime.now(UTC), "outbox": outbox}


def test_a_member_more_of_a_full_group_costs_a_profile_and_not_all_of_them(
    database: Db, mine: ConversationStore
) -> None:
    profile = {"displayName": "花子", "pictureUrl": "https://example.com/" + "p" * 100}
    members = {f"U{n:032}": profile for n in range(MOST_MEMBERS)}
    group = {"source": {"type": "group", "groupId": "G1", "userId": "U" + "9" * 32}}
    record(mine, document("E1", "G1", **group), deciding(members=members))
    before = len(bson.encode(stored(database, "G1")["members"]))
    event = document("E2", "G1", **group)
    talk = Talk(
        event, TalkContext(load=lambda: mine.load(event), api=lambda: None, content=lambda: None)
    )
    talk.know_profile(profile)
    record(mine, event, talk.decision())

    assert set(stored(database, "G1")["members"]) == {*list(members)[1:], "U" + "9" * 32}
    written = {"o.applyOps.ns": f"{database.name}.conversations"}
    entry = database.client.local["oplog.rs"].find(written).sort("$natural", -1).limit(-1).next()
    assert len(bson.encode(entry)) < 2_000 < before


# Several events in one record.


def test_one_record_names_all_that_was_decided_together(
    database: Db, mine: ConversationStore
) -> None:
    together = {"E2": "M2", "E3": None}
    assert is_made(record(mine, document(), deciding("E1/0"), gathered=together))
    assert stored(database)["applied"] == ["E1", "E2", "E3"]
    assert stored(database)["n"] == 1


@pytest.mark.parametrize("name", ["E1", "E2", "E3"])
def test_where_one_of_them_is_applied_nothing_is_recorded(
    database: Db, mine: ConversationStore, name: str
) -> None:
    record(mine, document(name), deciding("old/0"))
    answer = record(
        mine, document(), deciding("E1/0"), gathered={"E2": None, "E3": None}, message_id="M1"
    )
    assert answer.applied == stored(database)["applied"] == [name]
    assert ids_in(stored(database)) == ["old/0"]


@pytest.mark.parametrize("unsent", ["M1", "M3"])
def test_where_a_message_of_them_was_taken_back_nothing_is_recorded(
    database: Db, mine: ConversationStore, unsent: str
) -> None:
    record(mine, document("E0"), NOTHING)
    database.conversations.update_one({}, {"$set": {"unsent": [unsent, "M2"]}})
    together = {"E2": None, "E3": "M3"}
    answer = record(mine, document(), deciding("E1/0"), message_id="M1", gathered=together)
    assert answer.unsent
    assert stored(database)["applied"] == ["E0"]
    others = {name: None if id_ == unsent else id_ for name, id_ in together.items()}
    own = None if unsent == "M1" else "M1"
    assert is_made(record(mine, document(), deciding("E1/0"), message_id=own, gathered=others))


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


# A call that is stored with its record, and the end of the last one.


def with_call(conversations: ConversationStore, name: str) -> tuple[list[Placed], Call]:
    """A send in its place, and its call."""
    [(place, send)] = conversations.placed([effect(name)])
    return [(place, send)], a_call(place)


def test_a_record_is_stored_with_its_call(database: Db, mine: ConversationStore) -> None:
    effects, call = with_call(mine, "E1/0")
    recorded = record(mine, document(), deciding("E1/0"), effects=effects, call=call)
    assert (recorded.call, recorded.effects) == (call, effects)
    assert tuple(stored(database)["call"]["members"]) == call.members
    effects, other = with_call(mine, "E1/0")
    assert record(mine, document(), deciding("E1/0"), effects=effects, call=other).call is None
    assert tuple(stored(database)["call"]["members"]) == call.members


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


def test_a_copy_follows_the_records(database: Db, mine: ConversationStore) -> None:
    """Whatever path they change, a copy is what MongoDB has."""
    changes = [
        Decision({"state": "a", "data": {"x": [1, {"y": None}]}}, []),
        Decision({"members.U2": {"displayName": "次郎"}, "answers.E1": {"state": "taken"}}, []),
        Decision({"members.U3": {"displayName": "三郎"}, "until": datetime.now(UTC)}, []),
        Decision({"state": None}, [], gone=["members.U2", "answers.E1"]),
    ]
    mine.load(document("E0"))
    for number, decision in enumerate(changes, 1):
        record(mine, document(f"E{number}"), decision)
        conversation = mine.known.find("main/U1")
        assert conversation is not None
        assert conversation.fresh is not None
        kept, read = mine.load(document("E9")), mine.read(document("E9"))
        assert (kept.fields(), kept.n) == (read.fields(), read.n)
        assert kept.answers == read.answers


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


def test_a_count_that_was_decreased_by_hand_is_read_again(
    database: Db, mine: ConversationStore
) -> None:
    record(mine, document("E1"), deciding(state="asked"))
    read_n = mine.load(document("E2")).n
    database.conversations.update_one({}, {"$set": {"n": 0}})
    assert record(mine, document("E2"), Decision({"state": "b"}, [], read_n)).outdated
    assert mine.load(document("E2")).n == 0
