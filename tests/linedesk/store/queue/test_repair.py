"""recvq is repaired from every state, also when the repair is interrupted often."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.store.client import connect
from linedesk.store.collections import DEFAULT_CAPPED_BYTES, MEGABYTE, check_recvq
from linedesk.store.documents import RECVQ, Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import insert_documents
from linedesk.store.queue.repair import CollectionRepair


def event(number: int, name: str) -> Document:
    return {"_id": number, "eventId": name}


def ids(database: Database[Document]) -> list[Any]:
    return [row["_id"] for row in database[RECVQ].find().sort("$natural", 1)]


def size(database: Database[Document]) -> int:
    return int(database[RECVQ].options()["size"])


@pytest.fixture
def repair(database: Database[Document]) -> CollectionRepair:
    """A repair that has seen recvq as `init` made it."""
    repair = CollectionRepair(database)
    assert repair.look() is None
    return repair


def test_a_recvq_that_is_right_is_left_alone(
    database: Database[Document], repair: CollectionRepair
) -> None:
    database[RECVQ].insert_one(event(1, "a"))
    assert repair.apply() == []
    assert ids(database) == [1]


def test_a_missing_one_is_made_as_large_as_it_was(
    database: Database[Document], repair: CollectionRepair
) -> None:
    database.drop_collection(RECVQ)
    assert repair.look() == "missing"
    assert repair.apply()[0] == f"created with {16 * MEGABYTE} bytes"
    assert size(database) == 16 * MEGABYTE
    check_recvq(database)
    assert repair.look() is None


def test_a_missing_one_of_unknown_size_gets_the_default(
    database: Database[Document],
) -> None:
    database.drop_collection(RECVQ)
    CollectionRepair(database).apply()
    assert size(database) == DEFAULT_CAPPED_BYTES


def test_one_that_came_back_by_an_insert_keeps_its_documents_in_order(
    database: Database[Document], repair: CollectionRepair
) -> None:
    database.drop_collection(RECVQ)
    given = [event(9 - n, f"e{n}") for n in range(9)]
    insert_documents(database[RECVQ], given, timeout_seconds=5)
    assert repair.look() == "not capped"
    assert repair.apply()[0] == f"converted to capped with {16 * MEGABYTE} bytes"
    assert ids(database) == [9 - n for n in range(9)]
    check_recvq(database)


def test_one_that_grew_beyond_its_size_meanwhile_loses_nothing(
    database: Database[Document],
) -> None:
    database.drop_collection(RECVQ)
    database.create_collection(RECVQ, capped=True, size=4096)
    repair = CollectionRepair(database)
    repair.apply()
    database.drop_collection(RECVQ)
    given = [{**event(n, f"e{n}"), "text": "x" * 1000} for n in range(40)]
    insert_documents(database[RECVQ], given, timeout_seconds=5)
    repair.apply()
    assert ids(database) == list(range(40))
    assert size(database) > 40_000


def test_of_several_with_one_event_id_the_oldest_stays(
    database: Database[Document], repair: CollectionRepair
) -> None:
    database.drop_collection(RECVQ)
    names = ["a", "b", "a", "c", "b", "a"]
    given = [event(20 - n, name) for n, name in enumerate(names)]
    nameless: list[Document] = [{"_id": 1}, {"_id": 2}]
    database[RECVQ].insert_many([*given, *nameless])
    assert "3 duplicates removed" in repair.apply()
    assert ids(database) == [20, 19, 17, 1, 2]
    check_recvq(database)


def test_an_index_of_its_name_that_is_not_unique_is_replaced(
    database: Database[Document], repair: CollectionRepair
) -> None:
    database[RECVQ].drop_index("eventId")
    database[RECVQ].create_index("eventId", name="eventId")
    assert repair.look() == "without its index eventId"
    repair.apply()
    check_recvq(database)


@pytest.mark.parametrize("steps", range(6))
def test_it_continues_after_an_interruption_at_any_step(
    database: Database[Document], repair: CollectionRepair, steps: int
) -> None:
    """A kill may come between any two steps; the next process knows nothing of the first."""
    database.drop_collection(RECVQ)
    database[RECVQ].insert_many([event(n, f"e{n % 3}") for n in range(5)])
    for _ in range(steps):
        repair._next_step()
    CollectionRepair(database).apply()
    check_recvq(database)
    assert ids(database) == [0, 1, 2]
    assert CollectionRepair(database).apply() == []


def test_writers_that_insert_all_the_while_lose_nothing(
    database: Database[Document], repair: CollectionRepair
) -> None:
    """They insert between any two of its steps, at first the same event from two hands, too."""
    database.drop_collection(RECVQ)
    stop = threading.Event()
    stored: list[set[str]] = [set(), set()]

    def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            own, shared = f"w{writer}-{number}", f"both-{number}"
            given = [{"eventId": own}]
            if number <= 40:
                given.append({"eventId": shared})
            insert_documents(database[RECVQ], given, timeout_seconds=10)
            stored[writer] |= {one["eventId"] for one in given}
            number += 1

    threads = [threading.Thread(target=write, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    try:
        while repair.look() is not None:
            repair.apply()
    finally:
        stop.set()
        for thread in threads:
            thread.join(10)
    check_recvq(database)
    names = [row["eventId"] for row in database[RECVQ].find()]
    assert len(names) == len(set(names))
    assert set(names) == stored[0] | stored[1]


def test_after_a_drop_of_the_database_its_neighbours_come_back_without_their_rows(
    database: Database[Document], repair: CollectionRepair
) -> None:
    database.client.drop_database(database.name)
    repair.apply()
    assert "held" in repair.apply_neighbours()
    assert "runAt" in database["schedule"].index_information()
    assert database["leases"].count_documents({}) == 0


def test_without_a_server_it_says_so() -> None:
    uri = "mongodb://127.0.0.1:1/"
    with connect(uri, app_name="tests", server_selection_seconds=0.1) as client:
        for act in (CollectionRepair(client.nowhere).look, CollectionRepair(client.nowhere).apply):
            with pytest.raises(StoreUnavailable):
                act()
