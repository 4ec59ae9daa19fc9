"""The collections are made once, by any number of calls, and never replace foreign ones."""

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest

from linedesk.setup import collections
from linedesk.setup.collections import create_collections
from linedesk.setup.neighbours import CAPPED_BYTES, Neighbours, wrong_neighbours
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE, check_recvq
from linedesk.store.documents import Document
from linedesk.store.errors import WrongCollection
from linedesk.store.insert import insert_documents
from linedesk.store.records.conversations import FORMER_NAMES
from tests.rows import Db
from tests.waiting import eventually

ALL = {
    "audit",
    "history",
    "jobs",
    *("recvq", "progress", "leases", "conversations", "batches", "held", "schedule"),
    *("deadletters", "calls", "control", "status"),
}


@pytest.fixture
def empty(client: Client) -> Iterator[Db]:
    """A database in which nothing was made yet."""
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    yield database
    client.drop_database(database.name)


def create(database: Db) -> dict[str, str]:
    return create_collections(database, capped_bytes=MEGABYTE)


def test_a_second_run_makes_nothing_and_keeps_everything(empty: Db) -> None:
    create(empty)
    empty["leases"].update_one({"_id": "epochs"}, {"$set": {"epoch": 41}})
    empty["leases"].update_one({"_id": "dispatcher"}, {"$set": {"owner": "me", "epoch": 41}})
    empty["recvq"].insert_one({"_id": 1})
    assert create(empty) == {}
    assert empty["leases"].find_one({"_id": "epochs"}) == {"_id": "epochs", "epoch": 41}
    row = empty["leases"].find_one({"_id": "dispatcher"})
    assert row == {"_id": "dispatcher", "owner": "me", "epoch": 41, "until": None}
    assert empty["recvq"].find_one() == {"_id": 1}


def test_what_is_missing_is_made_again(empty: Db) -> None:
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
    empty: Db, name: str
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
    empty: Db, caplog: pytest.LogCaptureFixture
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


def test_many_at_once_make_one_set(empty: Db) -> None:
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: create(empty), range(8)))
    assert set().union(*made) == ALL
    check_recvq(empty)
    assert empty["leases"].count_documents({}) == 2


def test_an_uncapped_recvq_is_refused_and_nothing_is_changed(empty: Db) -> None:
    empty["recvq"].insert_one({"_id": "somebody's"})
    with pytest.raises(WrongCollection, match=r"not capped.*renameCollection.*linedesk init"):
        create(empty)
    assert empty.list_collection_names() == ["recvq"]
    assert list(empty["recvq"].find()) == [{"_id": "somebody's"}]


def event(number: int, name: str) -> Document:
    """As a front desk stores it."""
    return {"_id": number, "eventId": name, "acceptTime": datetime.now(UTC), "event": {}}


def come_back(database: Db, *names: str) -> None:
    """A drop, and inserts that make recvq again, uncapped."""
    database.drop_collection("recvq")
    database["recvq"].insert_many([event(99 - n, name) for n, name in enumerate(names)])


def ids(database: Db) -> list[Any]:
    return [row["_id"] for row in database["recvq"].find().sort("$natural", 1)]


def test_a_recvq_that_grew_beyond_its_size_loses_nothing(empty: Db) -> None:
    given = [{**event(n, f"e{n}"), "text": "x" * 1000} for n in range(40)]
    empty["recvq"].insert_many(given)
    create_collections(empty, capped_bytes=4096)
    assert ids(empty) == list(range(40))
    assert empty["recvq"].options()["size"] > 40_000


@pytest.mark.parametrize(
    "dies_after", [None, "cap", "_remove_duplicates", "_index_recvq", "create_neighbours"]
)
def test_of_several_with_one_event_id_the_oldest_stays_however_often_a_run_is_killed(
    empty: Db, monkeypatch: pytest.MonkeyPatch, dies_after: str | None
) -> None:
    class Killed(BaseException):
        pass

    def and_die(*arguments: Any) -> None:
        step(*arguments)
        raise Killed

    create(empty)
    come_back(empty, "a", "b", "a", "c", "b", "a")
    if dies_after is not None:
        step = getattr(collections, dies_after)
        with monkeypatch.context() as patch:
            patch.setattr(collections, dies_after, and_die)
            with pytest.raises(Killed):
                create(empty)
    create(empty)
    check_recvq(empty)
    assert ids(empty) == [99, 98, 96]


def test_writers_that_insert_while_recvq_is_made_again_lose_nothing(empty: Db) -> None:
    """They insert between any two of its steps, at first the same event from two hands, too."""
    create(empty)
    empty.drop_collection("recvq")
    stop = threading.Event()
    stored: list[set[str]] = [set(), set()]

    def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            own, shared = f"w{writer}-{number}", f"both-{number}"
            names = [own, shared] if number <= 40 else [own]
            given = [{"eventId": name, "acceptTime": None, "event": {}} for name in names]
            insert_documents(empty["recvq"], given, timeout_seconds=10)
            stored[writer] |= set(names)
            number += 1

    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write, number) for number in range(2)]
        try:
            eventually(lambda: all(stored))
            create_collections(empty, capped_bytes=16 * MEGABYTE)
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    check_recvq(empty)
    names = [row["eventId"] for row in empty["recvq"].find()]
    assert len(names) == len(set(names))
    assert set(names) == stored[0] | stored[1]


def uncapped(database: Db) -> None:
    database.create_collection("recvq")


def without_index(database: Db) -> None:
    create(database)
    database["recvq"].drop_index("eventId")


def with_an_index_that_is_not_unique(database: Db) -> None:
    database.create_collection("recvq", capped=True, size=MEGABYTE)
    database["recvq"].create_index("eventId", name="eventId")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda database: None, r"does not exist.*linedesk init"),
        (uncapped, r"not capped: run `linedesk init`"),
        (without_index, "lacks its unique index"),
        (with_an_index_that_is_not_unique, "lacks its unique index"),
    ],
)
def test_a_recvq_that_is_not_as_it_must_be_is_named(
    empty: Db, make: Callable[[Db], object], words: str
) -> None:
    make(empty)
    with pytest.raises(WrongCollection, match=words):
        check_recvq(empty)


def test_epochs_continue_above_a_progress_that_outlived_the_leases(empty: Db) -> None:
    create(empty)
    empty["leases"].drop()
    empty["progress"].insert_one({"_id": "dispatcher", "epoch": 41})

    create(empty)

    assert empty["leases"].find_one({"_id": "epochs"}) == {"_id": "epochs", "epoch": 41}


def test_an_index_of_a_former_release_is_dropped_by_init_alone(empty: Db) -> None:
    create_collections(empty, capped_bytes=MEGABYTE)
    empty.conversations.create_index(FORMER_NAMES, name=FORMER_NAMES)
    Neighbours(empty).look()
    assert FORMER_NAMES in empty.conversations.index_information()
    create_collections(empty, capped_bytes=MEGABYTE)
    assert FORMER_NAMES not in empty.conversations.index_information()
