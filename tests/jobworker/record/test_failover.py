"""A record that a failover undoes, and one that meets a take-over: each decided once."""

import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from dispatcher.commit.committer import Committer
from jobworker.bot.talk import Talk
from jobworker.record.conversations import ConversationStore, Decision, Recorded
from jobworker.record.schedule import Schedule
from linedesk import Bot
from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.errors import Replaced, StoreUnavailable
from linedesk.store.records.effects import effects_of
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.jobworker.worker_harness import Room, a_send, lead
from tests.linedesk.store.lagging import lagging_set
from tests.rows import Db
from tests.waiting import eventually


@pytest.mark.timeout(240)
def test_a_record_that_is_lost_with_its_primary_is_decided_once(
    mongod: object, request: pytest.FixtureRequest, sim: Sim
) -> None:
    """It reached the primary alone, which then died: nothing was sent of it, and it is repeated."""
    lagging = lagging_set(request.config)
    database = lagging.client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
    user, runs = sim.add_user("花子"), []
    bot = Bot()

    @bot.default()
    def answer(event: Any, talk: Talk) -> None:
        runs.append(talk.event_id)
        talk.push("一度だけ")
        talk.after(3600, "timer", by=talk.event_id)

    with lagging.electing(), Room(database, sim, bot) as room:
        room.says(user, "前")
        room.until_quiet(seconds=30)
        local = database.get_collection("conversations", read_concern=ReadConcern("local"))
        with lagging.held_back():
            document = room.says(user, "?")
            eventually(lambda: local.find_one({"applied": document["eventId"]}))
            assert len(sim.answers(user)) == 1, "a record that is on no majority sends nothing"
            lagging.kill_primary()
        room.until_quiet(seconds=60)
        assert len(sim.answers(user)) == 2
        assert runs.count(document["eventId"]) == 1
    found = eventually(lambda: database.conversations.find_one())
    assert found["applied"].count(document["eventId"]) == 1
    assert (found["n"], found["outbox"]) == (2, {})
    row = database.schedule.find_one()
    assert row is not None
    assert (row["n"], row["data"]) == (2, {"by": document["eventId"]})
    assert database.deadletters.count_documents({}) == 0
    lagging.client.drop_database(database.name)


@pytest.mark.timeout(240)
def test_a_timer_that_only_the_primary_knows_to_be_cancelled_is_not_heard_and_not_ended(
    mongod: object, request: pytest.FixtureRequest
) -> None:
    """A new primary then shows all majority writes, and also writes that will be rolled back."""
    lagging = lagging_set(request.config)
    database = lagging.client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
    row = {"_id": "main/U1/egg", "channel": "main", "key": "U1", "name": "egg", "data": {}, "n": 1}
    ring = make_timer_document({**row, "runAt": datetime.now(UTC)}, accept_time=datetime.now(UTC))
    schedule, confirmed = Schedule(database), threading.Event()
    assert not schedule.overtook(ring)

    def overtook() -> bool:
        try:
            return schedule.overtook(ring)
        except StoreUnavailable:
            assert not confirmed.is_set()
            return False

    with lagging.held_back():
        on_primary = WriteConcern(w=1)
        database.get_collection("schedule", write_concern=on_primary).insert_one({**row, "n": 2})
        with pytest.raises(StoreUnavailable):
            schedule.overtook(ring)
    eventually(overtook)
    confirmed.set()
    assert overtook()
    lagging.client.drop_database(database.name)


@pytest.mark.parametrize("same_event", [True, False], ids=["one event", "two events"])
def test_records_of_one_key_meet_the_take_over_of_a_successor(
    database: Db, same_event: bool
) -> None:
    """The older one is recorded before it, or refused; the successor sees which."""
    for turn in range(30):
        documents = [a_document(turn, "E1"), a_document(turn, "E1" if same_event else "E2")]
        older = conversations(database, 2 * turn + 1)

        def newer(turn: int = turn, document: Document = documents[1]) -> str:
            return record(conversations(database, 2 * turn + 2), document, "newer")

        told = at_once(partial(record, older, documents[0], "older"), newer)
        found = database.conversations.find_one({"_id": f"main/U{turn}"})
        assert found is not None
        ways = [effect["to"] for _, effect in effects_of(found)]
        # One that is told of the successor may have been made before the take-over, and one that is
        # asked again for want of an answer finds itself.
        if "older" in ways:
            assert told[0] in ("recorded", "Replaced", "found applied")
        else:
            assert told[0] == "Replaced"
        if same_event:
            assert ways == ["newer" if told[1] == "recorded" else "older"]
            assert found["applied"] == ["E1"]
        else:
            assert told[1] == "recorded"
            assert ways in (["older", "newer"], ["newer"])
        assert record(older, a_document(turn, "E3"), "older") == "Replaced"


def a_document(turn: int, name: str) -> dict[str, Any]:
    event = {"source": {"type": "user", "userId": f"U{turn}"}}
    return {"_id": name, "eventId": name, "channel": "main", "key": f"U{turn}", "event": event}


def conversations(database: Db, epoch: int) -> ConversationStore:
    made = ConversationStore(lead(Committer(database), epoch=epoch))
    made.epoch = epoch
    return made


def record(mine: ConversationStore, document: dict[str, Any], to: str) -> str:
    send = a_send(id=f"{document['eventId']}/{to}", event_id=document["eventId"], to=to)
    decision = Decision({}, [send.as_document()])
    try:
        # Without its thread it tries once: the take-over may end its transaction.
        recorded = eventually(lambda: confirmed(mine, document, decision))
    except Replaced:
        return "Replaced"
    return "found applied" if recorded.applied else "recorded"


def confirmed(mine: ConversationStore, document: Document, decision: Decision) -> Recorded | None:
    effects = mine.placed(decision.effects)
    try:
        return mine.recorded(mine.enter_record(document, decision, effects, message_id=None))
    except StoreUnavailable:
        return None


def at_once(*actions: Callable[[], str]) -> list[str]:
    together = threading.Barrier(len(actions))
    told = [""] * len(actions)

    def act(place: int) -> None:
        together.wait(15)
        told[place] = actions[place]()

    threads = [threading.Thread(target=act, args=(n,)) for n in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return told
