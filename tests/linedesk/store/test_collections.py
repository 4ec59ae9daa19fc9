"""The collections are made once, by any number of calls, and never replace foreign ones."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime

import pytest
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from linedesk.store.client import Client, connect
from linedesk.store.collections import (
    CAPPED_BYTES,
    MEGABYTE,
    WEEK_SECONDS,
    check_recvq,
    create_collections,
    wrong_neighbours,
)
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, WrongCollection
from linedesk.store.queue import repair
from linedesk.store.queue.repair import CollectionRepair, Neighbours

ALL = {
    "audit",
    "history",
    "jobs",
    *("recvq", "progress", "leases", "conversations", "batches", "held", "schedule"),
    *("deadletters", "calls", "control", "status"),
}


@pytest.fixture
def empty(client: Client) -> Iterator[Database[Document]]:
    """A database in which nothing was made yet."""
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    yield database
    client.drop_database(database.name)


def create(database: Database[Document]) -> dict[str, str]:
    return create_collections(database, capped_bytes=MEGABYTE)


def test_all_collections_are_made_and_named(empty: Database[Document]) -> None:
    assert set(create(empty)) == ALL
    assert set(empty.list_collection_names()) == ALL
    options = empty["recvq"].options()
    assert (options["capped"], options["size"]) == (True, MEGABYTE)
    assert empty["calls"].options()["capped"] is True


def test_the_indexes_are_those_of_the_design(empty: Database[Document]) -> None:
    create(empty)
    recvq = empty["recvq"].index_information()["eventId"]
    assert recvq["unique"] is True
    assert recvq["partialFilterExpression"] == {"eventId": {"$exists": True}}
    outboxes = empty["conversations"].index_information()
    assert outboxes["outbox"]["key"] == [("at", 1)]
    assert outboxes["outbox"]["partialFilterExpression"] == {"outbox": {"$gt": {}}}
    assert outboxes["answers"]["partialFilterExpression"] == {"answers": {"$gt": {}}}
    by_key = empty["held"].index_information()["channel_key_n"]["key"]
    assert by_key == [("channel", 1), ("key", 1), ("n", 1)]
    schedule = empty["schedule"].index_information()
    assert schedule["runAt"]["key"] == [("runAt", 1)]
    assert schedule["endedAt"]["expireAfterSeconds"] == WEEK_SECONDS


def test_a_second_run_makes_nothing_and_keeps_everything(empty: Database[Document]) -> None:
    create(empty)
    empty["leases"].update_one({"_id": "epochs"}, {"$set": {"epoch": 41}})
    empty["leases"].update_one({"_id": "dispatcher"}, {"$set": {"owner": "me", "epoch": 41}})
    empty["recvq"].insert_one({"_id": 1})
    assert create(empty) == {}
    assert empty["leases"].find_one({"_id": "epochs"}) == {"_id": "epochs", "epoch": 41}
    row = empty["leases"].find_one({"_id": "dispatcher"})
    assert row == {"_id": "dispatcher", "owner": "me", "epoch": 41, "until": None}
    assert empty["recvq"].find_one() == {"_id": 1}


def test_what_is_missing_is_made_again(empty: Database[Document]) -> None:
    create(empty)
    empty.drop_collection("held")
    empty["schedule"].drop_index("runAt")
    empty["leases"].delete_many({})
    assert create(empty) == {"held": "made"}
    assert "channel_key_n" in empty["held"].index_information()
    assert "runAt" in empty["schedule"].index_information()
    assert {row["_id"] for row in empty["leases"].find()} == {"epochs", "dispatcher"}


@pytest.mark.parametrize("name", CAPPED_BYTES)
def test_one_that_came_back_uncapped_is_capped_again_and_keeps_what_it_holds(
    empty: Database[Document], name: str
) -> None:
    create(empty)
    empty.drop_collection(name)
    empty[name].insert_one({"_id": 1})
    assert f"{name} is not capped" in wrong_neighbours(empty)
    assert create(empty) == {name: "capped again"}
    assert list(wrong_neighbours(empty)) == []
    assert empty[name].options()["size"] == CAPPED_BYTES[name]
    assert empty[name].find_one() == {"_id": 1}


def test_a_conflicting_index_is_named_and_not_changed(
    empty: Database[Document], caplog: pytest.LogCaptureFixture
) -> None:
    """A person may have made it on purpose, so it ends no process."""
    create(empty)
    empty["schedule"].drop_index("runAt")
    empty["schedule"].create_index([("runAt", 1), ("name", 1)], name="runAt")
    neighbours = Neighbours(empty)
    for _ in range(4):
        neighbours.look()
    assert caplog.text.count("drop the conflicting index") == 1
    assert list(wrong_neighbours(empty)) == ["schedule's index runAt"]


def test_a_collection_dropped_during_a_check_is_made_by_a_later_one(
    empty: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    create(empty)
    empty.drop_collection("held")
    neighbours, create_all = Neighbours(empty), repair.create_neighbours

    def dropped_again(database: Database[Document]) -> None:
        create_all(database)
        monkeypatch.setattr(repair, "create_neighbours", create_all)
        database.drop_collection("calls")
        database["calls"].insert_one({})

    monkeypatch.setattr(repair, "create_neighbours", dropped_again)
    neighbours.look()
    neighbours.look()
    assert list(wrong_neighbours(empty)) == []


def test_many_at_once_make_one_set(empty: Database[Document]) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: create(empty), range(8)))
    assert set().union(*made) == ALL
    check_recvq(empty)
    assert empty["leases"].count_documents({}) == 2


def test_an_uncapped_recvq_is_refused_and_nothing_is_changed(empty: Database[Document]) -> None:
    empty["recvq"].insert_one({"_id": "somebody's"})
    with pytest.raises(WrongCollection, match=r"not capped.*renameCollection.*linedesk init"):
        create(empty)
    assert empty.list_collection_names() == ["recvq"]
    assert list(empty["recvq"].find()) == [{"_id": "somebody's"}]


def test_an_uncapped_recvq_of_our_own_is_left_to_the_dispatcher(empty: Database[Document]) -> None:
    """Inserts after a drop created it; renaming or dropping it would lose events."""
    one = {"eventId": "twice", "channel": "main", "key": "U1", "acceptTime": None, "event": {}}
    empty["recvq"].insert_many([dict(one), dict(one)])
    create(empty)
    assert set(empty.list_collection_names()) == ALL
    assert empty["leases"].count_documents({}) == 2
    assert empty["recvq"].count_documents({}) == 2
    with pytest.raises(WrongCollection, match="not capped: the dispatcher converts it"):
        check_recvq(empty)
    CollectionRepair(empty).apply()
    check_recvq(empty)
    assert empty["recvq"].count_documents({}) == 1


def test_a_recvq_as_it_should_be_passes(empty: Database[Document]) -> None:
    create(empty)
    check_recvq(empty)


def test_a_missing_recvq_is_named(empty: Database[Document]) -> None:
    with pytest.raises(WrongCollection, match=r"does not exist.*linedesk init"):
        check_recvq(empty)


def test_an_uncapped_recvq_is_named(empty: Database[Document]) -> None:
    empty.create_collection("recvq")
    with pytest.raises(WrongCollection, match="not capped"):
        check_recvq(empty)


def test_a_recvq_without_its_index_is_named(empty: Database[Document]) -> None:
    create(empty)
    empty["recvq"].drop_index("eventId")
    with pytest.raises(WrongCollection, match="lacks its unique index"):
        check_recvq(empty)


def test_a_recvq_whose_index_is_not_unique_is_named(empty: Database[Document]) -> None:
    empty.create_collection("recvq", capped=True, size=MEGABYTE)
    empty["recvq"].create_index("eventId", name="eventId")
    with pytest.raises(WrongCollection, match="lacks its unique index"):
        check_recvq(empty)


def test_two_documents_without_an_event_id_do_not_collide(empty: Database[Document]) -> None:
    create(empty)
    empty["recvq"].insert_many([{"at": datetime.now(UTC)}, {"at": datetime.now(UTC)}])
    empty["recvq"].insert_one({"eventId": "e1"})
    with pytest.raises(DuplicateKeyError):
        empty["recvq"].insert_one({"eventId": "e1"})


def test_a_server_that_is_away_is_unavailable() -> None:
    with connect(
        "mongodb://127.0.0.1:1/", app_name="tests", server_selection_seconds=0.1
    ) as client:
        with pytest.raises(StoreUnavailable):
            create(client.nowhere)
        with pytest.raises(StoreUnavailable):
            check_recvq(client.nowhere)


def test_epochs_continue_above_a_progress_that_outlived_the_leases(
    empty: Database[Document],
) -> None:
    create(empty)
    empty["leases"].drop()
    empty["progress"].insert_one({"_id": "dispatcher", "epoch": 41})

    create(empty)

    assert empty["leases"].find_one({"_id": "epochs"}) == {"_id": "epochs", "epoch": 41}
