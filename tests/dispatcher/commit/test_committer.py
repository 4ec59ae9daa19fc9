"""The thread that commits a leader's writes: each caller learns the certain end of its own."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from pymongo.client_session import ClientSession

from dispatcher.commit import committer as module
from dispatcher.commit.committer import Change, Committer, Fence, Write
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import Saver
from linedesk.store.client import Client
from linedesk.store.documents import PROGRESS, Document
from linedesk.store.errors import Replaced, StoreUnavailable, WriteRefused
from tests.dispatcher.faults import failing
from tests.rows import Db
from tests.waiting import eventually

THINGS = "things"
WAIT_SECONDS = 15.0


class Held(Fence):
    """A leader's fence that holds a group until it may be committed, and counts the groups."""

    def __init__(self, fence: Fence) -> None:
        self._fence = fence
        self.go_on = threading.Event()
        self.go_on.set()
        self.reached = threading.Event()
        self.groups = 0

    def changes(self, *, alone: bool) -> Sequence[Change]:
        if not alone:
            self.groups += 1
            self.reached.set()
            assert self.go_on.wait(WAIT_SECONDS)
        return self._fence.changes(alone=alone)

    def written(self) -> None:
        self._fence.written()

    def not_written(self) -> None:
        self._fence.not_written()

    def refused(self) -> None:
        self._fence.refused()

    def seconds(self) -> float:
        return self._fence.seconds()


class Leader:
    """A committer of one epoch, which leads; without its thread until it is started."""

    def __init__(self, database: Db, epoch: int) -> None:
        self.database = database
        self.committer = Committer(database)
        progress = Progress(self.committer, feed="memory", epoch=epoch)
        progress.take_over()
        self.fence = Held(Saver(Mailboxes(ProgressTracker()), progress))
        self.committer.lead(self.fence)

    def adds(self, *ids: Any) -> Write:
        return self.committer.enter(*map(one_more, ids))

    def ends(self, *writes: Write) -> list[bool]:
        """The results of these writes, each waited for by a thread of its own."""
        with ThreadPoolExecutor(len(writes)) as threads:
            return list(threads.map(self.committer.result, writes))


Leaders = Callable[..., Leader]


def one_more(id_: Any) -> Change:
    return Change(THINGS, {"_id": id_}, {"$inc": {"n": 1}})


def numbers(database: Db, *ids: Any) -> list[int]:
    rows = {row["_id"]: row["n"] for row in database[THINGS].find()}
    return [rows[id_] for id_ in ids]


@pytest.fixture(autouse=True)
def _things(database: Db) -> None:
    database[THINGS].insert_many([{"_id": n, "n": 0, "text": "x"} for n in range(10)])


@pytest.fixture
def leaders(database: Db, deaths: list[BaseException | None]) -> Iterator[Leaders]:
    with ExitStack() as stack:

        def make(epoch: int = 1, *, starts: bool = True) -> Leader:
            leader = Leader(database, epoch)
            stack.callback(leader.committer.join)
            stack.callback(leader.committer.stop)
            stack.callback(leader.fence.go_on.set)
            if starts:
                leader.committer.start()
            return leader

        yield make


@pytest.fixture
def leader(leaders: Leaders) -> Leader:
    return leaders()


@contextmanager
def under_way(leader: Leader) -> Iterator[Write]:
    """A write of document 0 is being committed, and all others wait behind it."""
    leader.fence.reached.clear()
    leader.fence.go_on.clear()
    first = leader.adds(0)
    try:
        assert leader.fence.reached.wait(WAIT_SECONDS)
        yield first
    finally:
        leader.fence.go_on.set()


def test_writes_that_come_meanwhile_are_one_group(leader: Leader) -> None:
    with under_way(leader) as first:
        writes = [leader.adds(n) for n in range(1, 9)]
    assert leader.ends(first, *writes) == [True] * 9
    assert leader.fence.groups == 2
    assert numbers(leader.database, *range(10)) == [1] * 9 + [0]
    progress = leader.database[PROGRESS].find_one()
    assert progress is not None
    assert progress["saves"] == 2


def test_one_that_does_not_match_costs_itself_only(leader: Leader) -> None:
    with under_way(leader):
        writes = [leader.adds(*ids) for ids in ([1], ["none"], [2, "none"], [3], [4])]
    assert leader.ends(*writes) == [True, False, False, True, True]
    assert numbers(leader.database, *range(5)) == [1, 1, 0, 1, 1]


def test_one_that_would_make_a_document_too_large_costs_itself_only(leader: Leader) -> None:
    large = "x" * 9_000_000
    assert leader.committer.commit(Change(THINGS, {"_id": 2}, {"$set": {"text": large}}))
    with under_way(leader):
        refused = leader.committer.enter(Change(THINGS, {"_id": 2}, {"$set": {"more": large}}))
        others = [leader.adds(1), leader.adds(2)]
    assert leader.ends(*others) == [True, True]
    with pytest.raises(WriteRefused) as error:
        leader.committer.result(refused)
    assert error.value.is_too_large
    assert numbers(leader.database, 1, 2) == [1, 1]


@pytest.mark.parametrize("value", [object(), "x" * 17_000_000, 2**64])
def test_one_that_cannot_be_encoded_is_refused_before_it_waits(value: Any) -> None:
    with pytest.raises(WriteRefused):
        Change(THINGS, {"_id": 1}, {"$set": {"text": value}})


def test_one_that_a_unique_index_refuses_does_not_match(leader: Leader) -> None:
    leader.database[THINGS].create_index("name", unique=True, sparse=True)
    leader.database[THINGS].update_one({"_id": 1}, {"$set": {"name": "taken"}})
    with under_way(leader):
        taken = leader.committer.enter(Change(THINGS, {"_id": 2}, {"$set": {"name": "taken"}}))
        other = leader.adds(3)
    assert leader.ends(taken, other) == [False, True]
    assert numbers(leader.database, 3) == [1]


def test_an_insert_leaves_what_is_there_and_a_removal_may_find_nothing(leader: Leader) -> None:
    inserts = [Change.insert(THINGS, {"_id": id_, "n": 5}) for id_ in (1, "new")]
    removals = [Change(THINGS, {"_id": id_}, None) for id_ in (2, "none")]
    assert leader.committer.commit(*inserts, *removals)
    assert numbers(leader.database, 1, "new") == [0, 5]
    assert leader.database[THINGS].find_one({"_id": 2}) is None


@pytest.mark.parametrize("bound", ["MOST_BYTES", "MOST_TOGETHER"])
def test_large_groups_are_divided(
    leader: Leader, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(module, bound, {"MOST_BYTES": 1_000, "MOST_TOGETHER": 2}[bound])
    text = {"$set": {"text": "x" * 400}, "$inc": {"n": 1}}
    with under_way(leader) as first:
        writes = [leader.committer.enter(Change(THINGS, {"_id": n}, text)) for n in range(1, 6)]
    assert leader.ends(first, *writes) == [True] * 6
    assert leader.fence.groups == 4
    assert numbers(leader.database, *range(6)) == [1] * 6


@contextmanager
def foreign_transaction(leader: Leader, client: Client, id_: int) -> Iterator[ClientSession]:
    """Another client's transaction that has changed this document, and is still open."""
    with client.start_session() as session, session.start_transaction():
        ten_more = {"$inc": {"n": 10}}
        leader.database[THINGS].update_one({"_id": id_}, ten_more, session=session)
        yield session


def test_a_long_transaction_of_another_delays_only_the_writes_of_its_document(
    leader: Leader, client: Client
) -> None:
    after_ten = Change(THINGS, {"_id": 1, "n": 11}, {"$set": {"n": 0}})
    with foreign_transaction(leader, client, 1):
        with under_way(leader):
            delayed, others = leader.adds(1), [leader.adds(n) for n in range(2, 6)]
        assert leader.ends(*others) == [True] * 4
        # It stays behind the first one of its document.
        behind = leader.committer.enter(after_ten)
        assert leader.committer.commit_later(one_more(7))
        assert leader.committer.commit(one_more(6))
        eventually(lambda: numbers(leader.database, 7) == [1])
        assert (delayed.is_ended, behind.is_ended) == (False, False)
    assert leader.ends(delayed, behind) == [True, True]
    assert numbers(leader.database, *range(1, 8)) == [0, 1, 1, 1, 1, 1, 1]


def test_a_write_that_was_put_off_is_made_before_a_later_one_of_its_document(
    leader: Leader, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the other's transaction ends between the tries of the two."""
    put_off = Committer._put_off
    with foreign_transaction(leader, client, 1) as session:

        def then_over(committer: Committer, *writes: Any) -> None:
            put_off(committer, *writes)
            if session.in_transaction:
                session.abort_transaction()

        monkeypatch.setattr(Committer, "_put_off", then_over)
        with under_way(leader):
            first = leader.committer.enter(Change(THINGS, {"_id": 1}, {"$set": {"text": "a"}}))
            second = leader.committer.enter(Change(THINGS, {"_id": 1}, {"$set": {"text": "b"}}))
        assert leader.ends(first, second) == [True, True]
    found = leader.database[THINGS].find_one({"_id": 1})
    assert found is not None
    assert found["text"] == "b"


UNHEARD = {
    "the connection broken": {"closeConnection": True},
    "no longer primary": {"errorCode": 10107, "errorLabels": ["RetryableWriteError"]},
    "a majority not heard of in time": {
        "writeConcernError": {"code": 64, "errmsg": "?", "errInfo": {"wtimeout": True}}
    },
    "its wait for a majority interrupted": {"writeConcernError": {"code": 11601, "errmsg": "?"}},
    "too few nodes for a majority": {"writeConcernError": {"code": 100, "errmsg": "?"}},
    "not known on a majority": {"errorCode": 251, "errorLabels": []},
}


@pytest.mark.parametrize("fault", UNHEARD.values(), ids=UNHEARD.keys())
def test_a_commit_of_unknown_outcome_is_repeated_and_made_once(
    leader: Leader, client: Client, fault: Document
) -> None:
    # The driver itself repeats a commit once.
    with failing(client, ["commitTransaction"], times=3, **fault) as has_failed:
        with under_way(leader) as first:
            writes = [leader.adds(n) for n in (1, 2)]
        assert leader.ends(first, *writes) == [True] * 3
        assert has_failed()
    assert numbers(leader.database, 0, 1, 2) == [1, 1, 1]
    assert leader.ends(leader.adds(1)) == [True]
    assert numbers(leader.database, 1) == [2]


def test_a_commit_that_has_failed_for_certain_is_made_again_as_a_whole(
    leader: Leader, client: Client
) -> None:
    session = leader.committer.session.session_id
    with failing_once_late(client) as is_late:
        write = leader.adds(1, 2)
        eventually(is_late)
        client.admin.command("killSessions", [session])
        assert leader.ends(write) == [True]
    assert numbers(leader.database, 1, 2) == [1, 1]


@contextmanager
def failing_once_late(client: Client) -> Iterator[Callable[[], bool]]:
    """The next commit reaches MongoDB a second late."""
    late = {"blockConnection": True, "blockTimeMS": 1_000}
    with failing(client, ["commitTransaction"], times=1, **late) as is_late:
        yield is_late


@pytest.mark.parametrize("fault", [{"closeConnection": True}, {"errorCode": 11601}])
def test_a_write_without_an_answer_is_made_again_and_once(
    leader: Leader, client: Client, fault: Document
) -> None:
    with failing(client, ["update"], times=3, **fault) as has_failed:
        assert leader.ends(leader.adds(1), leader.adds(2)) == [True, True]
        assert has_failed()
    assert numbers(leader.database, 1, 2) == [1, 1]


def replaced(leader: Leader, epoch: int = 2) -> Committer:
    successor = Committer(leader.database)
    Progress(successor, feed="memory", epoch=epoch).take_over()
    return successor


def test_a_replaced_leader_s_writes_are_refused_and_its_thread_ends(
    leader: Leader, deaths: list[BaseException | None]
) -> None:
    with under_way(leader) as first:
        writes = [leader.adds(n) for n in (1, 2)]
        replaced(leader)
    for one in (first, *writes):
        with pytest.raises(Replaced):
            leader.committer.result(one)
    eventually(lambda: leader.committer.dead)
    assert [type(one) for one in deaths] == [Replaced]
    with pytest.raises(Replaced):
        leader.adds(3)
    assert not leader.committer.commit_later(one_more(4))
    assert numbers(leader.database, *range(5)) == [0] * 5


def test_a_write_that_does_not_match_tells_nothing_to_a_replaced_leader(leader: Leader) -> None:
    """A successor may have written the documents that it reads."""
    with under_way(leader):
        writes = [leader.adds("none"), leader.adds(1)]
        replaced(leader)
    for one in writes:
        with pytest.raises(Replaced):
            leader.committer.result(one)


def test_a_leader_that_froze_between_its_writes_and_its_commit_writes_nothing(
    leader: Leader, client: Client, deaths: list[BaseException | None]
) -> None:
    """The take-over does not wait for its transaction."""
    with failing_once_late(client) as is_late:
        write = leader.adds(1, 2)
        eventually(is_late)
        replaced(leader)
        assert not write.is_ended
        with pytest.raises(Replaced):
            leader.committer.result(write)
    assert numbers(leader.database, 1, 2) == [0, 0]
    eventually(lambda: deaths)


# Writes that no thread waits for.


def test_writes_that_are_left_are_made_soon_without_another(leader: Leader) -> None:
    assert all(leader.committer.commit_later(one_more(n)) for n in range(5))
    eventually(lambda: numbers(leader.database, *range(5)) == [1] * 5, seconds=5)
    assert leader.fence.groups < 5


def test_only_so_many_are_left(leader: Leader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_LATER", 3)
    with under_way(leader):
        assert [leader.committer.commit_later(one_more(1)) for _ in range(5)] == [True] * 3 + [
            False
        ] * 2
    eventually(lambda: numbers(leader.database, 1) == [3])
    assert leader.committer.commit_later(one_more(1))


def test_a_write_whose_time_is_over_before_its_group_begins_is_never_made(leader: Leader) -> None:
    with under_way(leader) as first:
        withdrawn, patient = leader.adds(1), leader.adds(2)
        with pytest.raises(StoreUnavailable):
            leader.committer.result(withdrawn, 0.01)
        assert withdrawn.is_ended
    assert leader.ends(first, patient) == [True, True]
    assert leader.committer.commit(one_more(3))
    assert numbers(leader.database, 1, 2, 3) == [0, 1, 1]


def test_a_stop_commits_what_waits(leader: Leader) -> None:
    with under_way(leader):
        write = leader.adds(1)
        leader.committer.commit_later(one_more(2))
        leader.committer.stop()
    assert leader.committer.join()
    assert leader.committer.result(write)
    assert numbers(leader.database, 0, 1, 2) == [1, 1, 1]
    # A later write is committed by the thread that waits for it.
    assert leader.committer.commit(one_more(1))


def test_a_stop_does_not_wait_for_a_mongodb_that_is_away(
    leader: Leader, client: Client, deaths: list[BaseException | None]
) -> None:
    with failing(client, ["update"], errorCode=11601) as has_failed:
        writes = [leader.adds(1), leader.adds(2)]
        eventually(has_failed)
        leader.committer.stop()
        assert leader.committer.join()
        for one in writes:
            with pytest.raises(StoreUnavailable):
                leader.committer.result(one)
    assert deaths == []
    assert numbers(leader.database, 1, 2) == [0, 0]


def test_a_read_sees_all_that_was_committed_and_the_take_over(leaders: Leaders) -> None:
    """Also on a primary that was elected since."""
    leader = leaders()
    for n in range(3):
        at = leader.committer.session.operation_time
        assert at is not None
        with leader.committer.reading() as session:
            assert session.operation_time == at
            found = leader.database[THINGS].find_one({"_id": 1}, session=session)
            assert found is not None
            assert found["n"] == n
        assert leader.committer.commit(one_more(1))
        assert leader.committer.session.operation_time > at


def test_a_write_that_comes_while_the_thread_ends_is_made(
    leader: Leader, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_waiting, late = leader.committer.commit_waiting, list[Write]()

    def then_one_comes() -> bool:
        done = commit_waiting()
        if leader.committer.stop_asked.is_set() and not late:
            late.append(leader.adds(1))
        return done

    monkeypatch.setattr(leader.committer, "commit_waiting", then_one_comes)
    leader.committer.stop()
    assert leader.committer.join(WAIT_SECONDS)
    # Also for a thread that waits for it already.
    assert late[0].is_ended
    assert late[0].matched
    assert leader.committer.commit(one_more(2))
