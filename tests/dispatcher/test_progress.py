"""Progress: nobody but the holder of the epoch writes it, and a save is small."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo.database import Database

from dispatcher.ledger import RING_SLOTS, Ledger
from dispatcher.progress import Progress, Trying
from linedesk.embedded import EmbeddedMongod
from recvq.collections import MEGABYTE, create_collections
from recvq.connect import Client, connect
from recvq.documents import Document
from recvq.errors import Replaced, StoreUnavailable
from tests.dispatcher.faults import failing
from tests.waiting import eventually


@pytest.fixture
def faulty_database(faulty: EmbeddedMongod) -> Iterator[Database[Document]]:
    with connect(faulty.uri, app_name="tests") as client:
        client.drop_database("progress_test")
        create_collections(client.progress_test, capped_bytes=MEGABYTE)
        yield client.progress_test


def progress(database: Database[Document], epoch: int, feed: str = "memory") -> Progress:
    return Progress(database["progress"], feed=feed, epoch=epoch)


def finish(ledger: Ledger, *ids: Any) -> None:
    for id_ in ids:
        slot = ledger.take(id_, f"after {id_}")
        assert slot is not None
        ledger.finish(slot)


def save(one: Progress, ledger: Ledger) -> None:
    snapshot = ledger.snapshot()
    one.save(snapshot)
    ledger.saved(snapshot)


def found(database: Database[Document]) -> dict[str, Any]:
    document = database["progress"].find_one({"_id": "dispatcher"})
    assert document is not None
    return document


def test_the_first_start_finds_nothing_finished(database: Database[Document]) -> None:
    start = progress(database, 1).take_over()
    assert start.feed is None
    assert (start.ledger.token, start.ledger.after, len(start.ledger)) == (None, None, 0)
    document = found(database)
    assert document["ring"] == [None] * RING_SLOTS
    assert (document["epoch"], document["starts"], document["trying"]) == (1, 0, None)


def test_a_successor_finds_what_was_saved(database: Database[Document]) -> None:
    first = progress(database, 1)
    ledger = first.take_over().ledger
    finish(ledger, "a", "b")
    assert ledger.take("unfinished", "after unfinished") is not None
    finish(ledger, "d")
    save(first, ledger)
    start = progress(database, 2).take_over()
    assert start.feed == "memory"
    assert (start.ledger.token, start.ledger.after) == ("after b", "b")
    again = {id_: start.ledger.take(id_, None) for id_ in ("a", "b", "unfinished", "d", "e")}
    assert [id_ for id_, slot in again.items() if slot] == ["unfinished", "e"]


def test_starts_and_the_job_that_ran_alone_are_told_to_the_successor(
    database: Database[Document],
) -> None:
    first = progress(database, 1)
    ledger = first.take_over().ledger
    trying = Trying("E1", 1, datetime(2026, 1, 2, tzinfo=UTC))
    first.note_starts(4, trying)
    finish(ledger, "a")
    save(first, ledger)
    start = progress(database, 2).take_over()
    assert (start.starts, start.trying) == (4, trying)
    with pytest.raises(Replaced):
        first.note_starts(0, None)


def test_a_predecessor_is_refused(database: Database[Document]) -> None:
    first, second = progress(database, 1), progress(database, 2)
    ledger = first.take_over().ledger
    second.take_over()
    before = found(database)
    finish(ledger, "a")
    with pytest.raises(Replaced):
        save(first, ledger)
    with pytest.raises(Replaced):
        first.take_over()
    assert found(database) == before


def test_taking_over_again_with_the_own_epoch_is_allowed(database: Database[Document]) -> None:
    one = progress(database, 1)
    one.take_over()
    assert one.take_over().ledger.after is None


def test_a_take_over_of_unknown_outcome_may_be_repeated(
    faulty_database: Database[Document],
) -> None:
    one = progress(faulty_database, 1)
    unknown = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
    with (
        failing(faulty_database.client, ["findAndModify"], times=1, **unknown),
        pytest.raises(StoreUnavailable),
    ):
        one.take_over()
    # It had been written all the same.
    assert eventually(lambda: faulty_database["progress"].find_one({"epoch": 1}))
    assert one.take_over().ledger.after is None


def test_a_save_of_unknown_outcome_is_told_again_by_the_next_one(
    faulty_database: Database[Document],
) -> None:
    one = progress(faulty_database, 1)
    ledger = one.take_over().ledger
    finish(ledger, "a")
    unknown = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
    with (
        failing(faulty_database.client, ["update"], times=1, **unknown),
        pytest.raises(StoreUnavailable),
    ):
        one.save(ledger.snapshot())
    ledger.not_saved()
    finish(ledger, "b")
    save(one, ledger)
    document = found(faulty_database)
    assert (document["after"], document["ring"][:3]) == ("b", ["a", "b", None])


def test_an_unreachable_server_is_unavailable() -> None:
    with connect(
        "mongodb://127.0.0.1:1/", app_name="tests", server_selection_seconds=0.1
    ) as client:
        with pytest.raises(StoreUnavailable):
            progress(client.db, 1).take_over()
        with pytest.raises(StoreUnavailable):
            progress(client.db, 1).save(Ledger().snapshot())


def test_a_save_writes_the_changed_slots_only(database: Database[Document], client: Client) -> None:
    """18 KB a save would roll the oplog over in half an hour."""
    one = progress(database, 1)
    ledger = one.take_over().ledger
    finish(ledger, *(ObjectId() for _ in range(RING_SLOTS + 10)))
    save(one, ledger)
    finish(ledger, ObjectId())
    save(one, ledger)
    entry = client.local["oplog.rs"].find_one(
        {"ns": f"{database.name}.progress", "op": "u"}, sort=[("$natural", -1)]
    )
    assert entry is not None
    assert len(bson.encode(entry)) < 500
    assert len(bson.encode(found(database))) > 10_000


def test_the_ring_comes_back_as_it_was_saved(database: Database[Document]) -> None:
    one = progress(database, 1)
    ledger = one.take_over().ledger
    ids = [ObjectId() for _ in range(RING_SLOTS * 2 + 30)]
    for first in range(0, len(ids), 700):
        finish(ledger, *ids[first : first + 700])
        save(one, ledger)
    start = progress(database, 2).take_over()
    known = [id_ for id_ in ids if start.ledger.take(id_, None) is None]
    assert known == ids[-RING_SLOTS:]


def test_another_feed_is_told_by_its_name(database: Database[Document]) -> None:
    first = progress(database, 1, feed="oplog")
    ledger = first.take_over().ledger
    finish(ledger, "a")
    save(first, ledger)
    assert progress(database, 2, feed="changestream").take_over().feed == "oplog"


def test_the_count_of_held_documents_goes_on(database: Database[Document]) -> None:
    first = progress(database, 1)
    ledger = first.take_over().ledger
    assert [ledger.next_held() for _ in range(3)] == [0, 1, 2]
    save(first, ledger)
    assert progress(database, 2).take_over().ledger.next_held() == 3


def test_a_transaction_that_was_refused_leaves_held_as_it_was(
    database: Database[Document],
) -> None:
    first = progress(database, 1)
    ledger = first.take_over().ledger
    first.save(ledger.snapshot(rows=[{"_id": "a", "n": 0, "channel": "main", "key": "U1"}]))
    progress(database, 2).take_over()
    with pytest.raises(Replaced):
        first.save(ledger.snapshot(rows=[{"_id": "b", "n": 1}], gone=["a"]))
    assert [row["_id"] for row in database["held"].find()] == ["a"]
