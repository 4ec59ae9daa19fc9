"""A dispatcher's reports to the service manager: ready when it is, alive while it works or waits
for a known reason, unwell when it hangs.
"""

import re
import signal
import threading
from functools import partial
from typing import Any

import pytest

from dispatcher.conversations.mailbox import Job, JobResult
from dispatcher.process import ExitReason
from dispatcher.watchdog import FEED_SECONDS, WatchdogReporter
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import PROGRESS
from tests.dispatcher.conftest import Dispatch, Running, Store, Told
from tests.dispatcher.fakes import Holder, RecordingWorker, document
from tests.listener import Listener
from tests.rows import Db
from tests.servers import frozen
from tests.waiting import eventually

MUTE = "stalled: the feed delivers nothing, not even a heartbeat"


@pytest.fixture
def service() -> Listener:
    return Listener()


def test_it_is_ready_once_it_holds_the_lease_and_reports_its_drain(
    database: Db, dispatch: Dispatch, store: Store, service: Listener
) -> None:
    held = Holder("long")
    worker = RecordingWorker(held)
    running = dispatch(database, worker, service=service)
    at_work(running, service)
    store(database, document("long"), document("behind"))
    held.wait_until_held("long")
    eventually(lambda: service.says("alive", "2 in hand"))
    assert service.told[0] == ("starting", "asking for the replica set")
    assert re.fullmatch(
        r"holds the lease since [-\d]+ [:\d]+ UTC · \d+\.\d events/s · 2 in hand"
        r"( · oldest \d+\.\d s)? · nothing waits",
        service.told[-1][1],
    )
    running.inbox.put(signal.SIGTERM)
    eventually(lambda: service.says("stopping", "stopping, 1 still at work"))
    held.let_go()
    assert running.end(None) is ExitReason.STOPPED
    assert service.methods == ["starting", "ready", "alive", "stopping"]


def test_a_wait_for_mongodb_is_reported_by_name_and_restarts_no_process(
    own_mongod: EmbeddedMongod,
    dispatch: Dispatch,
    service: Listener,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before it is ready, and later; killed, and frozen; and when it is back.

    No earlier figures are reported meanwhile, and the row is written again afterwards.
    """
    monkeypatch.setattr("linedesk.store.queue.usage.READ_SECONDS", 0.2)
    for module in ("dispatcher.status", "linedesk.runtime.status_row"):
        monkeypatch.setattr(f"{module}.EVERY_SECONDS", 0.05)
        monkeypatch.setattr(f"{module}.WRITE_SECONDS", 0.2)
    with connect(own_mongod.uri, app_name="tests") as client:
        database = client.line_bot
        create_collections(database, capped_bytes=MEGABYTE)
        own_mongod.kill()
        running = dispatch(
            database,
            RecordingWorker(),
            uri=own_mongod.uri,
            server_selection_seconds=0.2,
            service=service,
            feed_options={"socket_seconds": 0.5, "server_selection_seconds": 0.2},
        )
        eventually(lambda: service.says("starting", "waiting for MongoDB since"))
        own_mongod.start()
        at_work(running, service)
        # Nothing but a reason keeps it alive from now on.
        monkeypatch.setattr("dispatcher.watchdog.FEED_SECONDS", -1.0)
        eventually(lambda: service.says("unwell", MUTE))
        reporter = running.dispatcher.reporter
        eventually(lambda: "lagDocuments" in reporter.figures.snapshots.latest.figures)
        reader, open_ = running.dispatcher.reader, running.feed.open

        def open_slowly(token: Any) -> None:
            open_(token)
            reader.reason.renewed_at -= 1000.0

        monkeypatch.setattr(running.feed, "open", open_slowly)
        with frozen(own_mongod.pid):
            eventually(lambda: service.says("alive", "waiting for MongoDB since"))
            assert reporter.report.told.state == "waiting"
            eventually(lambda: "lagDocuments" not in reporter.figures.snapshots.latest.figures)
            assert reporter.figures.snapshots.latest.figures["inHandDocuments"] == 0
            told = len(service.told)
            eventually(lambda: len(service.told) > told + 10)
            assert {method for method, _ in service.told[told:]} == {"alive"}
            reader.delivered_at -= 1000.0
            monkeypatch.setattr("dispatcher.watchdog.FEED_SECONDS", FEED_SECONDS)
        # The silence while it was away is no stall either.
        at_work(running, service)
        assert running.dispatcher.watchdog.stalled() is None
        eventually(lambda: "lagDocuments" in reporter.figures.snapshots.latest.figures)
        again = reporter.figures.snapshots.latest.at
        eventually(lambda: database.status.find_one({"state": "working", "at": {"$gte": again}}))
        assert running.end() is ExitReason.STOPPED


SOON = {"pause_seconds": lambda failures: 0.02, "renew_seconds": 0.3}
BEATS = {**SOON, "heartbeat_after_seconds": 0.02, "heartbeat_back_seconds": 0.05}


@pytest.fixture
def impatient(short_limits: dict[str, Any]) -> None:
    """Steps that may take minutes may also take moments, and are checked as often."""
    short_limits.update(supervise_seconds=0.05, feed_seconds=0.3)


def at_work(running: Running, service: Listener) -> None:
    """Wait until the feed was opened and brings nothing, since there is nothing."""
    eventually(lambda: service.says("alive", "holds the lease"))
    reader = running.dispatcher.reader
    eventually(lambda: reader.opened_at is not None and reader.reason.text is None)


def test_a_read_that_never_ends_is_a_stall(
    database: Db,
    dispatch: Dispatch,
    service: Listener,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
    told: Told,
) -> None:
    ends = threading.Event()

    def never_returns() -> None:
        assert ends.wait(30)

    running = dispatch(database, RecordingWorker(), service=service, reading=SOON)
    at_work(running, service)
    monkeypatch.setattr(running.feed, "read", never_returns)
    eventually(lambda: service.says("unwell", MUTE))
    eventually(lambda: told(MUTE))
    ends.set()
    running.end()


def test_a_feed_that_opens_and_stays_mute_is_a_stall_however_often_it_is_opened(
    database: Db,
    dispatch: Dispatch,
    service: Listener,
    monkeypatch: pytest.MonkeyPatch,
    impatient: None,
    told: Told,
) -> None:
    create_collections(database, capped_bytes=MEGABYTE)
    running = dispatch(database, RecordingWorker(), service=service, reading=BEATS)
    at_work(running, service)
    read, pause = running.feed.read, threading.Event()

    def bring_nothing() -> None:
        pause.wait(0.01)

    monkeypatch.setattr(running.feed, "read", bring_nothing)
    eventually(lambda: service.says("unwell", MUTE))
    before, opened = len(service.told), len(told("feed unavailable"))
    eventually(lambda: len(told("feed unavailable")) > opened + 2)
    assert {method for method, _ in service.told[before:]} == {"unwell"}
    monkeypatch.setattr(running.feed, "read", read)
    eventually(lambda: service.says("alive", "holds the lease"))
    running.end()


def test_any_thread_that_hangs_is_a_stall(
    database: Db, dispatch: Dispatch, service: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    component = Hanging()
    running = dispatch(
        database, RecordingWorker(), service=service, components=[component], renew_seconds=0.02
    )
    at_work(running, service)
    parts: list[Any] = list(running.dispatcher.watchdog.parts)
    lease, clock, committer = parts[:3]
    for part in (lease, clock, committer):
        monkeypatch.setattr(part.activity, "limit_seconds", 0.1)
    for name in ("lease", "clock", "committer", "component"):
        ends, words = threading.Event(), f"stalled: the thread {name} hangs"

        def hang(*_: Any, ends: threading.Event = ends) -> bool:
            return ends.wait(30)

        with monkeypatch.context() as patched:
            if name == "lease":
                patched.setattr(lease, "renew", hang)
            elif name == "clock":
                clock.later(0, hang)
            elif name == "committer":
                patched.setattr(committer, "_commit_group", hang)
                committer.enter()
            else:
                component.hangs = "the thread component hangs"
            eventually(partial(service.says, "unwell", words))
        ends.set()
        component.hangs = None
        eventually(lambda: service.says("alive", " the lease"))
    running.end()


class Hanging:
    """A component that says so."""

    hangs: str | None = None

    def start(self) -> None: ...

    def stop(self) -> None: ...

    def join(self, timeout_seconds: float) -> bool:
        return True

    def stalled(self) -> str | None:
        return self.hangs

    def status(self) -> str:
        return "component"


def test_a_supervising_thread_that_hangs_is_a_stall(
    service: Listener, nothing_left: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dispatcher.watchdog.STEP_SECONDS", 0.2)
    report = WatchdogReporter(service)
    report.start()
    try:
        report.working(lambda: "3 in hand", lambda: "working", stalled=lambda: None)
        eventually(lambda: service.says("unwell", "stalled: the thread main hangs"))
        assert report.told.state == "stalled"
        report.beat()
        eventually(lambda: service.says("alive", "3 in hand"))
    finally:
        report.stop()
        assert report.join(5)


@pytest.mark.parametrize("hangs", ["a part", "a job"])
def test_only_a_job_that_hangs_makes_suspects(
    database: Db, dispatch: Dispatch, store: Store, told: Told, hangs: str
) -> None:
    """The service manager ends either process; no job is the cause of a part that hangs."""
    ends = threading.Event()

    def act(job: Job) -> JobResult:
        assert ends.wait(30)
        return JobResult.DONE

    store(database, document("slow"))
    seconds = 0.1 if hangs == "a job" else 60.0
    running = dispatch(
        database,
        RecordingWorker(act),
        handler_seconds=seconds,
        step_seconds=seconds,
        supervise_seconds=0.05,
    )
    eventually(lambda: (database[PROGRESS].find_one() or {}).get("starts") == 1)
    if hangs == "a part":
        part = Hanging()
        part.hangs = "a part hangs"
        running.dispatcher.watchdog.parts = [part]
        eventually(lambda: (database[PROGRESS].find_one() or {})["starts"] == 0)
    eventually(lambda: told("stalled: "))
    counts = iter(range(20))
    eventually(lambda: next(counts) > 10)
    assert (database[PROGRESS].find_one() or {})["starts"] == (hangs == "a job")
    ends.set()
