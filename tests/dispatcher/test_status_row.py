"""A dispatcher's row in `status` and its rows of `history`, on the real MongoDB."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pymongo.collection import Collection

from dispatcher.pool.saver import Saver
from linedesk.operate.acts import OperatorControl
from linedesk.runtime.status_row import WRITE_SECONDS
from linedesk.store.control import Scope
from linedesk.store.documents import CALLS, CONVERSATIONS, HISTORY, JOBS, STATUS, Document
from tests.dispatcher.conftest import Dispatch, Running, Store
from tests.dispatcher.fakes import Holder, RecordingWorker, document, numbered
from tests.dispatcher.faults import failing
from tests.listener import Listener
from tests.rows import Db
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no test waits for the next second."""
    for module in ("dispatcher.status", "linedesk.runtime.status_row"):
        monkeypatch.setattr(f"{module}.EVERY_SECONDS", 0.02)
    monkeypatch.setattr("dispatcher.status.HISTORY_SECONDS", 0.1)


def row_of(database: Db) -> Document:
    return database[STATUS].find_one({"role": "dispatcher"}) or {"figures": {}}


def figures(database: Db, *names: str) -> tuple[Any, ...]:
    found = row_of(database)["figures"]
    return tuple(found.get(name) for name in names)


class HeldFeed:
    """Lets the feed bring nothing while it is shut."""

    def __init__(self, running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open, self._waits = threading.Event(), threading.Event()
        self._read = running.feed.read
        self._open.set()
        monkeypatch.setattr(running.feed, "read", self._held)

    def _held(self) -> Any:
        if not self._open.is_set():
            self._waits.set()
            assert self._open.wait(30)
        return self._read()

    def shut(self) -> None:
        self._waits.clear()
        self._open.clear()
        assert self._waits.wait(15)

    def let_go(self) -> None:
        self._open.set()


def test_the_backlog_is_exact_to_the_document(
    database: Db, dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three in memory and held, four in memory, and five that the feed has not delivered."""
    held = Holder("e0", "slow0")
    running = dispatch(
        database, RecordingWorker(held), service=Listener(), held_after_seconds=0.2, threads=5
    )
    eventually(lambda: row_of(database).get("state") == "working")
    feed = HeldFeed(running, monkeypatch)
    store(database, *numbered(4, keys=1))
    held.wait_until_held("e0")
    eventually(lambda: figures(database, "heldDocuments") == (4,))
    # Nothing more is held.
    monkeypatch.setattr(Saver, "plan_moves", lambda self: None)
    store(database, *numbered(4, keys=1, prefix="slow"))
    # Behind a key of which `held` has documents.
    eventually(lambda: figures(database, "inHandDocuments", "heldDocuments") == (4, 4))
    feed.shut()
    store(database, *numbered(5, keys=5, prefix="unread"))
    names = ("lagDocuments", "inHandDocuments", "heldDocuments", "heldKeys", "queueDocuments")
    eventually(lambda: figures(database, *names) == (5, 4, 4, 1, 13))
    row = row_of(database)
    assert 0 < row["figures"]["lagSeconds"] < row["figures"]["oldestUnfinishedSeconds"] < 30
    assert row["figures"]["leading"] == 1
    assert (row["figures"]["threads"], row["figures"]["busyThreads"]) == (5, 1)
    [thread] = row["threads"]
    assert (thread["eventId"], thread["key"]) == ("e0", "U0")
    assert (row["feed"], row["epoch"], row["paused"]) == ("changestream", 1, [])
    assert row["_id"] == f"dispatcher/{row['host']}/{row['pid']}"

    told = eventually(lambda: list(database[HISTORY].find({"queueDocuments": 13}, {"_id": 0})))
    assert (told[0]["lagDocuments"], told[0]["inHandDocuments"], told[0]["busyThreads"]) == (
        5,
        4,
        1,
    )
    assert told[0]["waitP50"] is None

    feed.let_go()
    held.let_go()
    eventually(lambda: figures(database, *names) == (0, 0, 0, 0, 0))
    eventually(lambda: figures(database, "oldestUnfinishedSeconds", "lagSeconds") == (0, 0))
    assert figures(database, "readDocuments", "finishedDocuments") == (13, 13)
    assert row_of(database)["figures"]["saveSeconds"]["count"] > 0
    running.end()
    eventually(lambda: row_of(database)["state"] == "ended")
    assert figures(database, "leading") == (0,)


def test_what_is_paused_hides_no_conversation_that_hangs(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    given = [document("paused", "U0"), document("hangs"), document("behind it")]
    for one, age in zip(given, (3_000, 2_000, 1_000), strict=True):
        one["acceptTime"] -= timedelta(seconds=age)
    control = OperatorControl(database)
    control.pause(Scope("main", "U0"), by="taro")
    held = Holder("hangs")
    limits = {"threads": 2, "held_after_seconds": 0.1, "paused_after_seconds": 0.0}
    running = dispatch(database, RecordingWorker(held), **limits)
    store(database, *given)
    eventually(lambda: figures(database, "heldDocuments") == (3,))
    names = ("queueDocuments", "unpausedDocuments")
    eventually(lambda: figures(database, *names) == (3, 2))
    now = figures(database, "oldestUnfinishedSeconds", "unpausedOldestSeconds", "behindSeconds")
    assert now == pytest.approx((3_000, 2_000, 0), abs=300)
    row = row_of(database)["figures"]
    assert row["pauses"] == {"everything": 0, "channel": 0, "conversation": 1}
    assert 0 < row["oldestPauseSeconds"]["conversation"] < 300
    control.pause(Scope("main"), by="taro")
    eventually(lambda: figures(database, *names)[1] == 0)
    assert figures(database, "unpausedOldestSeconds") == (0,)
    held.let_go()
    running.end()


def test_systemds_line_the_row_and_the_metrics_are_one(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    service, worker = Listener(), RecordingWorker()
    dispatch(database, worker, service=service)
    store(database, *numbered(20, keys=5))
    eventually(lambda: figures(database, "finishedDocuments") == (20,))
    # Also while they change from one look to the next.
    for n in range(20):
        store(database, *numbered(30, keys=5, prefix=f"{n}-"))
        row = row_of(database)
        rate = row["perSecond"]["finishedDocuments"]
        told = f"{rate:.1f} events/s · {row['figures']['inHandDocuments']} in hand"
        eventually(lambda told=told: any(told in words for _, words in service.told))  # type: ignore[misc]


def test_a_right_that_is_missing_ends_nothing(
    database: Db, dispatch: Dispatch, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    worker = RecordingWorker()
    where = f"{database.name}.{HISTORY}"
    with failing(database.client, ["insert"], namespace=where, errorCode=13):
        running = dispatch(database, worker, service=Listener())
        store(database, document("one"))
        eventually(lambda: worker.decided == ["one"])
        eventually(lambda: "history not written" in caplog.text)
        eventually(lambda: figures(database, "lagDocuments", "queueDocuments") == (0, 0))
        assert running.alive
    assert caplog.text.count("history not written") == 1


def test_a_frozen_write_of_the_row_holds_up_neither_work_nor_end(
    database: Db, dispatch: Dispatch, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen, go = threading.Event(), threading.Event()
    update_one = Collection.update_one

    def hang(rows: Collection[Any], *args: Any, **options: Any) -> Any:
        if rows.name == STATUS:
            frozen.set()
            go.wait(WRITE_SECONDS)
        return update_one(rows, *args, **options)

    worker = RecordingWorker()
    dispatch(database, worker, service=Listener())
    eventually(lambda: row_of(database).get("state") == "working")
    monkeypatch.setattr(Collection, "update_one", hang)
    assert frozen.wait(15)
    store(database, document("one"))
    eventually(lambda: worker.decided == ["one"], seconds=WRITE_SECONDS)
    go.set()


@pytest.mark.usefixtures("neighbours")
def test_collections_that_were_dropped_by_hand_are_made_right_at_the_start_and_while_it_runs(
    database: Db, dispatch: Dispatch, told: Callable[[str], list[str]]
) -> None:
    """An insert brings them back without indexes, and `calls`, `jobs`, `history` uncapped."""
    for name in (CONVERSATIONS, CALLS):
        database[name].insert_one({"_id": "came back"})
    indexes: list[set[str]] = []

    class Worker(RecordingWorker):
        def take_over(self, epoch: int) -> None:
            indexes.append(set(database[CONVERSATIONS].index_information()))

    dispatch(database, Worker())
    eventually(lambda: told("ready"))
    assert "outbox" in indexes[0]
    assert database[CALLS].options()["capped"]
    assert database[CALLS].find_one() == {"_id": "came back"}
    assert "eventId" in database[CALLS].index_information()

    database.drop_collection(JOBS)
    database[JOBS].insert_one({"_id": "came back"})
    database.drop_collection(CONVERSATIONS)
    eventually(lambda: "eventId" in database[JOBS].index_information())
    assert database[JOBS].options()["capped"]
    eventually(lambda: "unsentAt" in database[CONVERSATIONS].index_information())
    eventually(lambda: told("collections repaired")[1:])
