"""Inserting: a duplicate counts as stored, but only where the first copy is known to be safe."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import bson
import pytest
from bson.raw_bson import RawBSONDocument
from pymongo.database import Database
from pymongo.errors import BulkWriteError
from pymongo.write_concern import WriteConcern

from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import _settle, insert_documents
from tests.linedesk.store.lagging import LaggingSet

MakeDocument = Callable[..., Document]


def names(database: Database[Document]) -> list[str]:
    return [row["eventId"] for row in database["recvq"].find().sort("$natural", 1)]


def insert(
    database: Database[Document], *documents: Document, timeout_seconds: float = 5.0
) -> frozenset[int]:
    return insert_documents(database["recvq"], documents, timeout_seconds=timeout_seconds)


def test_documents_are_stored_in_their_order(
    database: Database[Document], document: MakeDocument
) -> None:
    given = [document(f"e{number}") for number in range(50)]
    assert insert(database, *given) == frozenset()
    assert names(database) == [f"e{number}" for number in range(50)]


def test_nothing_to_store_needs_no_server(document: MakeDocument) -> None:
    with connect("mongodb://127.0.0.1:1/", app_name="tests") as client:
        assert insert_documents(client.db.recvq, [], timeout_seconds=1) == frozenset()


def test_a_duplicate_of_an_earlier_insert_counts_as_stored(
    database: Database[Document], document: MakeDocument
) -> None:
    insert(database, document("e1"), document("e2"))
    stored = insert(database, document("e0"), document("e2"), document("e3"), document("e1"))
    assert stored == frozenset({1, 3})
    assert names(database) == ["e1", "e2", "e0", "e3"]


def test_of_duplicates_within_one_insert_the_first_is_stored(
    database: Database[Document], document: MakeDocument
) -> None:
    first, second = document("e1", text="first"), document("e1", text="second")
    assert insert(database, first, second) == frozenset({1})
    assert [row["_id"] for row in database["recvq"].find()] == [first["_id"]]


def test_the_same_documents_again_do_no_harm(
    database: Database[Document], document: MakeDocument
) -> None:
    """A caller's retry after StoreUnavailable, with an eventId and without."""
    given = [document("e1"), document()]
    insert(database, *given)
    assert insert(database, *given) == frozenset({0, 1})
    assert database["recvq"].count_documents({}) == 2


def test_documents_without_an_event_id_are_never_duplicates(
    database: Database[Document], document: MakeDocument
) -> None:
    assert insert(database, document(), document(), document()) == frozenset()


def test_encoded_documents_are_stored_untouched(
    database: Database[Document], document: MakeDocument
) -> None:
    plain = document("e1", text="写真ですね 👨‍👩‍👧")
    raw = RawBSONDocument(bson.encode(plain))
    before = raw.raw
    assert insert_documents(database["recvq"], [raw], timeout_seconds=5) == frozenset()
    assert raw.raw == before
    found = database["recvq"].find_one()
    assert found is not None
    assert found["event"] == plain["event"]


def test_of_sixteen_deliveries_at_once_one_is_stored(
    database: Database[Document], document: MakeDocument
) -> None:
    together = threading.Barrier(16)

    def deliver(number: int) -> int:
        given = [document(f"e{n}") for n in range(number % 4, 20)]
        together.wait(10)
        return len(given) - len(insert(database, *given))

    with ThreadPoolExecutor(16) as threads:
        stored = list(threads.map(deliver, range(16)))
    assert sum(stored) == 20
    assert sorted(names(database)) == sorted(f"e{number}" for number in range(20))


def test_without_a_majority_nothing_counts_as_stored(
    lagging: LaggingSet, document: MakeDocument
) -> None:
    """The first copy of a duplicate may still be rolled back: no 200 for its redelivery."""
    database = lagging.client["insert"]
    create_collections(database, capped_bytes=MEGABYTE)
    with lagging.held_back():
        for given in ([document("e1")], [document("e1"), document("e2")]):
            with pytest.raises(StoreUnavailable):
                insert(database, *given, timeout_seconds=0.3)
        # As reported by the server, if its time-out precedes the client's.
        impatient = database["recvq"].with_options(
            write_concern=WriteConcern(w="majority", j=True, wtimeout=100)
        )
        with pytest.raises(BulkWriteError) as told:
            impatient.insert_many([document("e1"), document("e3")], ordered=False)
    details = told.value.details
    assert [error["code"] for error in details["writeErrors"]] == [11000]
    assert [error["code"] for error in details["writeConcernErrors"]] == [64]
    with pytest.raises(StoreUnavailable, match=r"codes \[64\]"):
        _settle(told.value)
    stored = insert(database, document("e1"), document("e2"), document("e4"))
    assert stored == frozenset({0, 1})


DUPLICATE = {"index": 1, "code": 11000}
OTHER = {"index": 0, "code": 11602}
NOT_MAJORITY = {"code": 64, "errmsg": "waiting for replication timed out"}


@pytest.mark.parametrize(
    ("write_errors", "concern_errors"),
    [
        ([DUPLICATE], [NOT_MAJORITY]),
        ([], [NOT_MAJORITY]),
        ([OTHER], []),
        ([OTHER, DUPLICATE], []),
        ([OTHER, DUPLICATE], [NOT_MAJORITY]),
    ],
)
def test_any_other_error_beside_a_duplicate_means_unavailable(
    write_errors: list[Document], concern_errors: list[Document]
) -> None:
    details = {"writeErrors": write_errors, "writeConcernErrors": concern_errors, "nInserted": 1}
    with pytest.raises(StoreUnavailable, match="not confirmed"):
        _settle(BulkWriteError(details))


def test_duplicates_alone_are_named_by_their_places() -> None:
    errors = [DUPLICATE, {"index": 4, "code": 11000}]
    details = {"writeErrors": errors, "writeConcernErrors": [], "nInserted": 3}
    assert _settle(BulkWriteError(details)) == frozenset({1, 4})


def test_a_server_that_ends_is_reported_within_the_time_limit(
    own_mongod: EmbeddedMongod, document: MakeDocument
) -> None:
    with connect(own_mongod.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        insert(database, document("e1"))
        own_mongod.kill()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable):
            insert(database, document("e2"), timeout_seconds=0.5)
        assert time.monotonic() - began < 1.5
        own_mongod.start()
        assert insert(database, document("e1"), document("e2"))
        assert sorted(names(database)) == ["e1", "e2"]
