"""Progress: only the holder of the epoch writes it, and a save is small."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import bson
import pytest
from bson import ObjectId
from pymongo.database import Database

from dispatcher.progress.document import Progress, Trying, _Unmatched
from dispatcher.progress.tracker import RING_SLOTS, ProgressTracker
from linedesk.compose.private_mongod import EmbeddedMongod
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client, connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import SCHEMA, Document
from linedesk.store.errors import OtherSchema, Replaced, StoreUnavailable
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


def finish(tracker: ProgressTracker, *ids: Any) -> None:
    for id_ in ids:
        slot = tracker.take(id_, f"after {id_}")
        assert slot is not None
        tracker.finish(slot)


def save(one: Progress, tracker: ProgressTracker) -> None:
    snapshot = tracker.snapshot()
    one.save(snapshot)
    tracker.saved(snapshot)


def found(database: Database[Document]) -> dict[str, Any]:
    document = database["progress"].find_one({"_id": "dispatcher"})
    assert document is not None
    return document


def test_the_first_start_finds_nothing_finished(database: Database[Document]) -> None:
    start = progress(database, 1).take_over()
    assert start.feed is None
    assert (start.tracker.token, start.tracker.after, len(start.tracker)) == (None, None, 0)
    document = found(database)
    assert document["ring"] == [None] * RING_SLOTS
    assert (document["epoch"], document["starts"], document["trying"]) == (1, 0, None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"$set": {"schema": SCHEMA + 1}}, "newer release of linedesk"),
        ({"$unset": {"schema": ""}}, "development version of linedesk"),
    ],
)
def test_progress_of_another_schema_is_left_unchanged(
    database: Database[Document], change: Document, words: str
) -> None:
    """A standby may have looked before."""
    progress(database, 1).take_over()
    database["progress"].update_one({}, change)
    before = found(database)
    with pytest.raises(OtherSchema, match=words):
        progress(database, 2).take_over()
    assert found(database) == before


def test_a_successor_finds_what_was_saved(database: Database[Document]) -> None:
    first = progress(database, 1)
    tracker = first.take_over().tracker
    finish(tracker, "a", "b")
    assert tracker.take("unfinished", "after unfinished") is not None
    finish(tracker, "d")
    save(first, tracker)
    start = progress(database, 2).take_over()
    assert start.feed == "memory"
    assert (start.tracker.token, start.tracker.after) == ("after b", "b")
    again = {id_: start.tracker.take(id_, None) for id_ in ("a", "b", "unfinished", "d", "e")}
    assert [id_ for id_, slot in again.items() if slot] == ["unfinished", "e"]


def test_starts_and_the_job_that_ran_alone_are_passed_to_the_successor(
    database: Database[Document],
) -> None:
    first = progress(database, 1)
    tracker = first.take_over().tracker
    trying = Trying("E1", 1, datetime(2026, 1, 2, tzinfo=UTC))
    first.note_starts(4, trying)
    finish(tracker, "a")
    save(first, tracker)
    start = progress(database, 2).take_over()
    assert (start.starts, start.trying) == (4, [trying])
    with pytest.raises(Replaced):
        first.note_starts(0)


def test_a_predecessor_is_refused(database: Database[Document]) -> None:
    first, second = progress(database, 1), progress(database, 2)
    tracker = first.take_over().tracker
    second.take_over()
    before = found(database)
    finish(tracker, "a")
    with pytest.raises(Replaced):
        save(first, tracker)
    with pytest.raises(Replaced):
        first.take_over()
    assert found(database) == before


def test_taking_over_again_with_the_own_epoch_is_allowed(database: Database[Document]) -> None:
    one = progress(database, 1)
    one.take_over()
    assert one.take_over().tracker.after is None


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
    assert one.take_over().tracker.after is None


def test_a_save_of_unknown_outcome_is_repeated_by_the_next_one(
    faulty_database: Database[Document],
) -> None:
    one = progress(faulty_database, 1)
    tracker = one.take_over().tracker
    finish(tracker, "a")
    unknown = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
    with (
        failing(faulty_database.client, ["update"], times=1, **unknown),
        pytest.raises(StoreUnavailable),
    ):
        one.save(tracker.snapshot())
    tracker.not_saved()
    finish(tracker, "b")
    save(one, tracker)
    document = found(faulty_database)
    assert (document["after"], document["ring"][:3]) == ("b", ["a", "b", None])


def test_an_unreachable_server_is_unavailable() -> None:
    with connect(
        "mongodb://127.0.0.1:1/", app_name="tests", server_selection_seconds=0.1
    ) as client:
        with pytest.raises(StoreUnavailable):
            progress(client.db, 1).take_over()
        with pytest.raises(StoreUnavailable):
            progress(client.db, 1).save(ProgressTracker().snapshot())


def test_a_save_writes_the_changed_slots_only(database: Database[Document], client: Client) -> None:
    """18 KB a save would roll the oplog over in half an hour."""
    one = progress(database, 1)
    tracker = one.take_over().tracker
    finish(tracker, *(ObjectId() for _ in range(RING_SLOTS + 10)))
    save(one, tracker)
    finish(tracker, ObjectId())
    save(one, tracker)
    assert last_save_bytes(client, database) < 500
    assert len(bson.encode(found(database))) > 10_000


def last_save_bytes(client: Client, database: Database[Document]) -> int:
    """The cost of the last save in the oplog."""
    condition = {"ns": f"{database.name}.progress", "op": "u"}
    entry = client.local["oplog.rs"].find_one(condition, sort=[("$natural", -1)])
    assert entry is not None
    return len(bson.encode(entry))


def test_a_save_behind_a_slow_handler_costs_what_has_finished_since(
    database: Database[Document], client: Client
) -> None:
    """Written completely, the documents finished beyond it multiplied the oplog by four."""
    one = progress(database, 1)
    tracker = one.take_over().tracker
    slow, second = tracker.take("slow", 1), None
    finish(tracker, *(ObjectId() for _ in range(2000)))
    second = tracker.take("second", 1)
    save(one, tracker)
    finish(tracker, ObjectId())
    save(one, tracker)
    assert last_save_bytes(client, database) < 500
    # Documents that the position passes free their places, which the next ones take.
    assert slow is not None
    tracker.finish(slow)
    save(one, tracker)
    finish(tracker, ObjectId())
    save(one, tracker)
    assert last_save_bytes(client, database) < 500
    assert len(found(database)["finished"]) == 2
    assert second is not None
    tracker.finish(second)
    save(one, tracker)
    assert found(database)["finished"] == []


def test_finished_places_lost_by_a_drop_are_written_again(
    database: Database[Document],
) -> None:
    """A save of changes only would leave holes, and a successor would decide those documents
    again.
    """
    one = progress(database, 1)
    tracker = one.take_over().tracker
    assert tracker.take("slow", 1) is not None
    finish(tracker, "a", "b")
    save(one, tracker)
    database["progress"].drop()
    # Another write than a save finds it out.
    with pytest.raises(StoreUnavailable):
        one.note_starts(0)
    finish(tracker, "c")
    with pytest.raises(StoreUnavailable):
        one.save(tracker.snapshot())
    tracker.not_saved()
    save(one, tracker)
    assert found(database)["finished"] == ["a", "b", "c"]


def test_a_save_that_arrives_after_later_ones_is_refused(
    database: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a cut the kernel still delivers bytes sent on an abandoned connection."""
    one = progress(database, 1)
    tracker, late = one.take_over().tracker, []
    slow, *others = (tracker.take(id_, id_) for id_ in ("slow", "a", "b", "slower", "c", "d"))

    def finish_and_save(slot: Any) -> None:
        tracker.finish(slot)
        save(one, tracker)

    def lose(changes: Document, *given: Any) -> None:
        late.append((changes, *given))
        raise StoreUnavailable("on its way")

    a, b, _, c, d = others
    finish_and_save(a)
    finish_and_save(c)
    write = one._update
    monkeypatch.setattr(one, "_update", lose)
    tracker.finish(b)  # type: ignore[arg-type]
    with pytest.raises(StoreUnavailable):
        one.save(tracker.snapshot())
    tracker.not_saved()
    monkeypatch.setattr(one, "_update", write)
    finish_and_save(slow)
    finish_and_save(d)
    before = found(database)
    assert (before["after"], before["finished"]) == ("b", ["c", "d"])
    with suppress(_Unmatched):
        write(*late[0])
    assert found(database) == before


def test_a_row_that_was_dropped_during_a_save_has_no_holes(
    database: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another write makes it again between the save's preparation and its update."""
    one = progress(database, 1)
    tracker = one.take_over().tracker
    assert tracker.take("slow", 1) is not None
    finish(tracker, "a", "b")
    save(one, tracker)
    write = one._update

    def drop_before(*given: Any) -> None:
        monkeypatch.setattr(one, "_update", write)
        database["progress"].drop()
        one._claim()
        write(*given)

    monkeypatch.setattr(one, "_update", drop_before)
    finish(tracker, "c")
    with pytest.raises(StoreUnavailable):
        one.save(tracker.snapshot())
    tracker.not_saved()
    save(one, tracker)
    assert found(database)["finished"] == ["a", "b", "c"]


def test_places_that_were_left_are_taken_again_and_no_successor_reads_them(
    database: Database[Document],
) -> None:
    first = progress(database, 1)
    tracker = first.take_over().tracker
    slots = {id_: tracker.take(id_, None) for id_ in ("slow", "a", "b", "slower", "c", "d")}
    for id_ in ("b", "c", "d", "a"):
        tracker.finish(slots[id_])  # type: ignore[arg-type]
        save(first, tracker)
    assert found(database)["finished"] == ["b", "c", "d", "a"]
    tracker.finish(slots["slow"])  # type: ignore[arg-type]
    save(first, tracker)
    assert found(database)["finished"] == [None, "c", "d", None]
    finish(tracker, "e")
    save(first, tracker)
    assert sorted(filter(None, found(database)["finished"])) == ["c", "d", "e"]
    successor = progress(database, 2).take_over().tracker
    assert [id_ for id_ in (*slots, "e", "f") if successor.take(id_, None)] == ["slower", "f"]


def test_the_ring_comes_back_as_it_was_saved(database: Database[Document]) -> None:
    one = progress(database, 1)
    tracker = one.take_over().tracker
    ids = [ObjectId() for _ in range(RING_SLOTS * 2 + 30)]
    for first in range(0, len(ids), 700):
        finish(tracker, *ids[first : first + 700])
        save(one, tracker)
    start = progress(database, 2).take_over()
    known = [id_ for id_ in ids if start.tracker.take(id_, None) is None]
    assert known == ids[-RING_SLOTS:]


def test_another_feed_is_recognised_by_its_name(database: Database[Document]) -> None:
    first = progress(database, 1, feed="oplog")
    tracker = first.take_over().tracker
    finish(tracker, "a")
    save(first, tracker)
    assert progress(database, 2, feed="changestream").take_over().feed == "oplog"


def test_the_count_of_held_documents_continues(database: Database[Document]) -> None:
    first = progress(database, 1)
    tracker = first.take_over().tracker
    assert [tracker.next_held() for _ in range(3)] == [0, 1, 2]
    save(first, tracker)
    assert progress(database, 2).take_over().tracker.next_held() == 3


def test_a_transaction_that_was_refused_leaves_held_as_it_was(
    database: Database[Document],
) -> None:
    first = progress(database, 1)
    tracker = first.take_over().tracker
    first.save(tracker.snapshot(rows=[{"_id": "a", "n": 0, "channel": "main", "key": "U1"}]))
    progress(database, 2).take_over()
    with pytest.raises(Replaced):
        first.save(tracker.snapshot(rows=[{"_id": "b", "n": 1}], gone=["a"]))
    assert [row["_id"] for row in database["held"].find()] == ["a"]


def test_naming_a_suspect_ends_no_transaction(
    database: Database[Document], monkeypatch: pytest.MonkeyPatch
) -> None:
    """MongoDB aborts a transaction when the row it is to write was written since it began."""
    one = progress(database, 1)
    tracker, met = one.take_over().tracker, threading.Event()
    write, writing = one.held.write, threading.Lock()

    def name() -> None:
        one.note_starts(3, Trying("e1", 0, datetime.now(UTC)))
        met.set()

    def acquire(timeout: float) -> bool:
        if writing.locked():
            met.set()
        return writing.acquire(timeout=timeout)

    naming = threading.Thread(target=name)

    def amid(*given: Any) -> None:
        write(*given)
        naming.start()
        assert met.wait(15), "it is written, or waits for the end of the transaction"

    told = SimpleNamespace(acquire=acquire, release=writing.release)
    monkeypatch.setattr(one, "_writing", told, raising=False)
    monkeypatch.setattr(one.held, "write", amid)
    one.save(tracker.snapshot(rows=[{"_id": "a", "n": 0, "channel": "main", "key": "U1"}]))
    naming.join(15)
    assert database["held"].count_documents({}) == 1
    assert found(database)["trying"]["name"] == "e1"
