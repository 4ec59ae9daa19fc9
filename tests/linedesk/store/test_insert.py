"""Inserting: a duplicate counts as stored, but only where the first copy is known to be safe."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from pymongo.errors import BulkWriteError
from pymongo.write_concern import WriteConcern

from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import _settle, insert_documents
from tests.linedesk.store.conftest import MakeDocument
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db


def names(database: Db) -> list[str]:
    return [row["eventId"] for row in database["recvq"].find().sort("$natural", 1)]


def insert(database: Db, *documents: Document, timeout_seconds: float = 5.0) -> frozenset[int]:
    return insert_documents(database["recvq"], documents, timeout_seconds=timeout_seconds)


def test_of_duplicates_within_one_insert_the_first_is_stored(
    database: Db, document: MakeDocument
) -> None:
    first, second = document("e1", text="first"), document("e1", text="second")
    assert insert(database, first, second) == frozenset({1})
    assert [row["_id"] for row in database["recvq"].find()] == [first["_id"]]


def test_of_sixteen_deliveries_at_once_one_is_stored(database: Db, document: MakeDocument) -> None:
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
