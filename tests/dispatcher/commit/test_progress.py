"""Progress: only the holder of the epoch writes it, and its part of a group is small."""

from collections.abc import Sequence
from typing import Any

import bson
import pytest
from bson import ObjectId

from dispatcher.commit.committer import Change, Committer
from dispatcher.commit.progress import Progress, Start
from dispatcher.commit.tracker import RING_SLOTS, ProgressTracker
from linedesk.store.client import Client
from linedesk.store.documents import SCHEMA, Document
from linedesk.store.errors import OtherSchema, Replaced, StoreUnavailable
from tests.dispatcher.faults import failing
from tests.rows import Db


class Term:
    """The progress of one epoch, and its groups, which `save` commits: as the dispatcher's fence,
    without its pool.
    """

    def __init__(self, database: Db, epoch: int, *, feed: str = "memory") -> None:
        self.committer = Committer(database)
        self.progress = Progress(self.committer, feed=feed, epoch=epoch)
        self.tracker = ProgressTracker()
        self._rows: Sequence[Document] = ()
        self._gone: Sequence[Any] = ()
        self.committer.lead(self)

    def take_over(self) -> Start:
        start = self.progress.take_over()
        self.tracker = start.tracker
        return start

    def finish(self, *ids: Any) -> None:
        for id_ in ids:
            slot = self.tracker.take(id_, f"after {id_}")
            assert slot is not None
            self.tracker.finish(slot)

    def save(self, *, rows: Sequence[Document] = (), gone: Sequence[Any] = ()) -> bool:
        """Commit a group; documents enter and leave `held` with it."""
        self._rows, self._gone = rows, gone
        return self.committer.commit_waiting()

    def changes(self, *, alone: bool) -> Sequence[Change]:
        self._plan = self.tracker.snapshot(self._rows, self._gone)
        return self.progress.changes(self._plan)

    def written(self) -> None:
        self.tracker.saved(self._plan)

    def not_written(self) -> None:
        self.tracker.not_saved()

    def refused(self) -> None:
        self.progress.refused()

    def seconds(self) -> float:
        return 0.0


def began(database: Db, epoch: int = 1) -> Term:
    """A term that has taken over."""
    term = Term(database, epoch)
    term.take_over()
    return term


def found(database: Db) -> dict[str, Any]:
    document = database["progress"].find_one({"_id": "dispatcher"})
    assert document is not None
    return document


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"$set": {"schema": SCHEMA + 1}}, "newer release of linedesk"),
        ({"$unset": {"schema": ""}}, "development version of linedesk"),
    ],
)
def test_progress_of_another_schema_is_left_unchanged(
    database: Db, change: Document, words: str
) -> None:
    """A standby may have looked before."""
    began(database)
    database["progress"].update_one({}, change)
    before = found(database)
    with pytest.raises(OtherSchema, match=words):
        began(database, 2)
    assert found(database) == before


def test_a_predecessor_is_refused(database: Db) -> None:
    first = began(database)
    began(database, 2)
    before = found(database)
    first.finish("a")
    with pytest.raises(Replaced):
        first.save()
    with pytest.raises(Replaced):
        first.take_over()
    assert found(database) == before


@pytest.mark.parametrize("reached", [True, False], ids=["committed", "aborted"])
def test_a_group_of_unknown_outcome_is_repeated_by_the_next_one(
    database: Db, reached: bool
) -> None:
    one = began(database)
    one.finish("a")
    unknown = {"writeConcernError": {"code": 64, "errmsg": "waiting timed out"}}
    fault = unknown if reached else {"closeConnection": True}
    # The driver itself asks twice.
    with failing(database.client, ["commitTransaction"], times=2, **fault):
        assert not one.save()
    one.finish("b")
    assert one.save()
    document = found(database)
    assert (document["after"], document["ring"][:3]) == ("b", ["a", "b", None])


def last_save_bytes(client: Client, database: Db) -> int:
    """The cost of the last group in the oplog."""
    condition = {"o.applyOps.ns": f"{database.name}.progress"}
    entry = client.local["oplog.rs"].find_one(condition, sort=[("$natural", -1)])
    assert entry is not None
    return len(bson.encode(entry))


def test_a_save_behind_a_slow_handler_costs_what_has_finished_since(
    database: Db, client: Client
) -> None:
    """Written completely, the documents finished beyond it multiplied the oplog by four."""
    one = began(database)
    slow = one.tracker.take("slow", 1)
    one.finish(*(ObjectId() for _ in range(2000)))
    second = one.tracker.take("second", 1)
    assert one.save()
    one.finish(ObjectId())
    assert one.save()
    assert last_save_bytes(client, database) < 700
    # Documents that the position passes free their places, which the next ones take.
    assert slow is not None
    one.tracker.finish(slow)
    assert one.save()
    one.finish(ObjectId())
    assert one.save()
    assert last_save_bytes(client, database) < 700
    assert len(found(database)["finished"]) == 2
    assert second is not None
    one.tracker.finish(second)
    assert one.save()
    assert found(database)["finished"] == []


@pytest.mark.parametrize("another", [True, False], ids=["by another write", "by itself"])
def test_finished_places_lost_by_a_drop_are_written_again(database: Db, another: bool) -> None:
    """A save of changes only would leave holes, and a successor would decide those documents
    again.
    """
    one = began(database)
    assert one.tracker.take("slow", 1) is not None
    one.finish("a", "b")
    assert one.save()
    database["progress"].drop()
    if another:
        one.progress.note_starts(0)
    one.finish("c")
    assert one.save()
    assert found(database)["finished"] == ["a", "b", "c"]


def test_the_ring_comes_back_as_it_was_saved(database: Db) -> None:
    one = began(database)
    ids = [ObjectId() for _ in range(RING_SLOTS * 2 + 30)]
    for first in range(0, len(ids), 700):
        one.finish(*ids[first : first + 700])
        assert one.save()
    successor = began(database, 2).tracker
    known = [id_ for id_ in ids if successor.take(id_, None) is None]
    assert known == ids[-RING_SLOTS:]


def test_a_group_that_a_predecessor_began_before_the_take_over_is_not_committed_after_it(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sees `progress` as it was when it began, right after its session was ended."""
    first, second = began(database), Term(database, 2)
    send = first.committer._send
    another = Change("neighbour", {"_id": 1}, {"$set": {"n": 1}}, upsert=True)

    def take_over_before_the_fence(changes: Sequence[Change]) -> None:
        send(changes[:-1])
        second.progress._claim()
        send(changes[-1:])

    with monkeypatch.context() as patch:
        patch.setattr(first.committer, "_send", take_over_before_the_fence)
        with pytest.raises(StoreUnavailable):
            first.committer.commit(another)
    with pytest.raises(Replaced):
        first.committer.commit(another)
    assert database["neighbour"].find_one() is None
