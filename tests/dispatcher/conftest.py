"""A pool with everything around it in memory, and a whole dispatcher on the real MongoDB."""

import logging
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

import pytest

from dispatcher.commit.committer import Change
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import ProgressSnapshot, ProgressTracker
from dispatcher.conversations.mailbox import Job, JobResult
from dispatcher.feed.feed import Feed, feed_client
from dispatcher.feed.rescan import Rescan
from dispatcher.lease import RENEW_SECONDS, Lease
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.pool import Pool
from dispatcher.pool.saver import Saver
from dispatcher.pool.suspects import CrashSuspects
from dispatcher.process import Dispatcher, DispatcherLimits, ExitReason
from dispatcher.status import StatusReporter
from jobworker.assembly import BotWorker
from linedesk.launch.dispatcher import make_feed
from linedesk.runtime.service_manager import ServiceManager
from linedesk.runtime.thread import BackgroundThread
from linedesk.setup.neighbours import INDEXES, Neighbours
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client, connect
from linedesk.store.collections import DISPATCHER, EPOCHS, MEGABYTE
from linedesk.store.documents import LEASES, PROGRESS, RECVQ, Document
from linedesk.store.insert import insert_documents
from tests.dispatcher.fakes import Decide
from tests.dispatcher.leader_terms import Process
from tests.linedesk.store.conftest import lagging as lagging
from tests.rows import Db
from tests.servers import throwaway_mongod
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _own_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dispatcher sets threading.excepthook for its process; here it is given back."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)


@pytest.fixture(autouse=True)
def _no_neighbours(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Most tests need none of the twelve other collections, and are sooner there without them."""
    if "neighbours" not in request.fixturenames:
        monkeypatch.setattr(Neighbours, "look", lambda self: None)


@pytest.fixture
def neighbours() -> None:
    """Makes the dispatchers of this test check all collections, as in production."""


class Unwritten(Progress):
    """Progress that is written nowhere."""

    def __init__(self) -> None: ...

    def changes(self, snapshot: ProgressSnapshot | None) -> list[Change]:
        return []


class DeskOfPool:
    """A pool under test."""

    def __init__(
        self, decide: Decide, *, threads: int, bound: int, suspects: CrashSuspects | None = None
    ) -> None:
        self.tracker = ProgressTracker()
        self.laters: list[tuple[float, Callable[[], None]]] = []
        mailboxes = Mailboxes(self.tracker, suspects=suspects, bound=bound)
        self.pool = Pool(
            decide,
            mailboxes,
            threads=threads,
            later=lambda seconds, function: self.laters.append((seconds, function)),
        )
        self.saver = Saver(mailboxes, Unwritten())

    def put(self, *documents: Document, again: bool = False) -> None:
        for one in documents:
            assert self.pool.put(one, None, again=again)

    def save(self) -> None:
        """The committing thread's work, done at once."""
        self.saver.changes(alone=True)
        self.saver.written()

    def wait_until_idle(self) -> None:
        eventually(lambda: len(self.tracker) == 0)


@pytest.fixture
def pool_of(nothing_left: None) -> Iterator[Callable[..., DeskOfPool]]:
    """Makes a started pool; it has to end within the test's time."""
    made: list[DeskOfPool] = []

    def make(
        decide: Decide,
        *,
        threads: int = 4,
        bound: int = 10_000,
        suspects: CrashSuspects | None = None,
    ) -> DeskOfPool:
        desk = DeskOfPool(decide, threads=threads, bound=bound, suspects=suspects)
        made.append(desk)
        desk.pool.start()
        return desk

    yield make
    for desk in made:
        desk.pool.stop()
    for desk in made:
        assert desk.pool.threads.join(_soon()) == []


def _soon() -> float:
    return time.monotonic() + 15


class Running:
    """One dispatcher on a thread of its own, as a process would run it."""

    def __init__(
        self,
        uri: str,
        name: str,
        worker: BotWorker,
        *,
        feed: str,
        limits: DispatcherLimits,
        server_selection_seconds: float,
        renew_seconds: float = RENEW_SECONDS,
        components: Sequence[BackgroundThread] = (),
        service: ServiceManager | None = None,
        feed_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.inbox: SimpleQueue[int | BaseException] = SimpleQueue()
        self._client = connect(
            uri, app_name="dispatcher", server_selection_seconds=server_selection_seconds
        )
        self._feed_client = feed_client(uri, app_name="feed", **(feed_options or {}))
        self.feed: Feed = make_feed(feed, self._feed_client, name)
        self.endings: list[ExitReason] = []
        self.errors: list[BaseException] = []
        # In one process every dispatcher would be the same owner.
        lease = Lease(
            self._client[name], owner=f"elsewhere/{id(self)}/0", renew_seconds=renew_seconds
        )
        repair = Neighbours(self._client[name]).look
        self.dispatcher = Dispatcher(
            self.feed,
            Rescan(self._client[name][RECVQ]),
            lambda leader: worker,
            limits=limits,
            lease=lease,
            reporter=StatusReporter(lease, service, repair=repair),
            inbox=self.inbox,
            components=components,
        )
        self._thread = threading.Thread(target=self._run, name="dispatcher")
        self._thread.start()

    def _run(self) -> None:
        try:
            self.endings.append(self.dispatcher.run())
        except BaseException as error:  # noqa: BLE001  # told by `end`
            self.errors.append(error)

    def end(self, message: int | None = signal.SIGTERM) -> ExitReason:
        """Stop it by a signal, or with None wait for its own end; how it ended."""
        if message is not None:
            self.inbox.put(message)
        self._thread.join(40)
        assert not self._thread.is_alive(), "the dispatcher did not end"
        self._client.close()
        self._feed_client.close()
        if self.errors:
            raise self.errors[0]
        return self.endings[0]

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()


@pytest.fixture(autouse=True)
def short_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that no test waits half a second for the feed to see its stop."""
    for feed in ("change_stream", "oplog"):
        monkeypatch.setattr(f"dispatcher.feed.{feed}.STEP_SECONDS", 0.05)


Dispatch = Callable[..., Running]
MakePool = Callable[..., DeskOfPool]
Store = Callable[..., None]
Told = Callable[[str], list[str]]
FEEDS = ("changestream", "oplog")


@pytest.fixture
def short_limits() -> dict[str, Any]:
    """Limits of all dispatchers of a test, but for those that it names itself."""
    return {}


# Those of the limits of a dispatcher that are constants.
CONSTANTS = {
    "pace_seconds": "dispatcher.pool.saver.PACE_SECONDS",
    "quiet_seconds": "dispatcher.pool.saver.QUIET_SECONDS",
    "held_after_seconds": "dispatcher.pool.saver.HELD_AFTER_SECONDS",
    "paused_after_seconds": "dispatcher.pool.saver.PAUSED_AFTER_SECONDS",
    "look_seconds": "dispatcher.pool.saver.LOOK_SECONDS",
    "step_seconds": "dispatcher.watchdog.STEP_SECONDS",
    "supervise_seconds": "dispatcher.process.SUPERVISE_SECONDS",
    "feed_seconds": "dispatcher.watchdog.FEED_SECONDS",
    "control_seconds": "dispatcher.control.CONTROL_SECONDS",
}


def limit_feed(monkeypatch: pytest.MonkeyPatch, **limits: Any) -> None:
    """Set limits of the feed's reader and of its heartbeat until the end of the test."""
    for name, limit in limits.items():
        constant = name if name == "pause_seconds" else name.upper()
        module = (
            "linedesk.runtime.liveness" if name == "renew_seconds" else "dispatcher.feed.reader"
        )
        monkeypatch.setattr(f"{module}.{constant}", limit)


@pytest.fixture
def dispatch(
    mongo_uri: str,
    nothing_left: None,
    short_limits: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Dispatch]:
    """Starts a dispatcher for a worker on a database; stops those that still run at the end."""
    running: list[Running] = []

    def start(
        database: Db,
        worker: BotWorker,
        *,
        uri: str = mongo_uri,
        feed: str = "changestream",
        server_selection_seconds: float = 5.0,
        renew_seconds: float = RENEW_SECONDS,
        components: Sequence[BackgroundThread] = (),
        service: ServiceManager | None = None,
        feed_options: Mapping[str, Any] | None = None,
        reading: Mapping[str, Any] | None = None,
        **limits: Any,
    ) -> Running:
        limit_feed(monkeypatch, **(reading or {}))
        given = {"threads": 4, "drain_seconds": 10.0, **short_limits, **limits}
        if given.get("held_after_seconds", 60.0) < 60.0:
            given.setdefault("look_seconds", 0.01)
        for name in CONSTANTS.keys() & given.keys():
            monkeypatch.setattr(CONSTANTS[name], given.pop(name))
        one = Running(
            uri,
            database.name,
            worker,
            feed=feed,
            limits=DispatcherLimits(**given),
            server_selection_seconds=server_selection_seconds,
            renew_seconds=renew_seconds,
            components=components,
            service=service,
            feed_options=feed_options,
        )
        running.append(one)
        return one

    yield start
    for one in running:
        if one.alive:
            one.end()


Begin = Callable[..., Process]


@pytest.fixture
def begin(nothing_left: None) -> Iterator[Begin]:
    """Starts a process on a database; all of them end with the test."""
    made: list[Process] = []

    def start(database: Db, decide: Callable[[Job], JobResult], **kw: Any) -> Process:
        made.append(Process(database, decide, **kw))
        return made[-1]

    yield start
    for one in made:
        one.kill()
    for one in made:
        assert eventually(lambda one=one: one.pool.threads.join(0.0) == [])  # type: ignore[misc]


@pytest.fixture
def database(client: Client) -> Iterator[Db]:
    """Of the collections of `linedesk init` only those a dispatcher needs, which is faster."""
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    database.create_collection(RECVQ, capped=True, size=MEGABYTE, check_exists=False)
    index = INDEXES[RECVQ][0]
    database[RECVQ].create_index(index.keys, **index.options)
    vacant = {"_id": DISPATCHER, "owner": None, "epoch": 0, "until": None}
    database[LEASES].insert_many([{"_id": EPOCHS, "epoch": 0}, vacant])
    yield database
    # Dropping the database itself waits 100 ms for a journal flush.
    for name in database.list_collection_names():
        database.drop_collection(name)


@pytest.fixture
def store() -> Callable[..., None]:
    """Inserts documents as the front desk does."""

    def insert(database: Db, *documents: Document) -> None:
        insert_documents(database[RECVQ], documents, timeout_seconds=20)

    return insert


@pytest.fixture
def saved_up_to() -> Callable[[Db, Any], None]:
    """Waits until progress shows that all documents up to one are finished."""

    def wait(database: Db, id_: Any) -> None:
        eventually(lambda: (database[PROGRESS].find_one() or {}).get("after") == id_)

    return wait


@pytest.fixture
def own_mongod(mongod: EmbeddedMongod) -> Iterator[EmbeddedMongod]:
    """A server of the test's own, to be stopped under it."""
    with throwaway_mongod() as server:
        yield server


@pytest.fixture
def tiny(mongod: EmbeddedMongod) -> Iterator[EmbeddedMongod]:
    """A server whose oplog holds one megabyte and is truncated within seconds."""
    options = ["--oplogSize", "1", "--syncdelay", "1"]
    options += ["--setParameter", "minSnapshotHistoryWindowInSeconds=0"]
    with throwaway_mongod(*options) as server:
        yield server


@pytest.fixture
def told(caplog: pytest.LogCaptureFixture) -> Callable[[str], list[str]]:
    """The dispatcher's log lines that hold a text."""
    caplog.set_level(logging.INFO)
    for name in ("dispatcher", "jobworker", "linedesk"):
        caplog.set_level(logging.DEBUG, logger=name)

    def find(text: str) -> list[str]:
        return [r.getMessage() for r in caplog.records if text in r.getMessage()]

    return find
