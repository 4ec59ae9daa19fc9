"""The separate process: it waits for its server, and ends by a signal or by a dead thread."""

from __future__ import annotations

import signal
import threading
from queue import SimpleQueue
from typing import Any

import pytest

from linedesk.scheduler import process
from linedesk.scheduler.listener import Trouble
from linedesk.scheduler.process import run
from linedesk.store.client import Client, connect
from linedesk.store.errors import AccessRefused
from tests.listener import Listener
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def _own_excepthook(monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets threading.excepthook for its process; here it is given back."""
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)


class Part:
    """Runs the given function when it is started."""

    def __init__(self, begin: Any) -> None:
        self.done: list[str] = []
        self.hangs: str | None = None
        self._begin = begin

    def start(self) -> None:
        self.done.append("started")
        self._begin()

    def stop(self) -> None:
        self.done.append("stopped")

    def join(self, timeout_seconds: float) -> bool:
        self.done.append("joined")
        return True

    def stalled(self) -> str | None:
        return self.hangs

    def status(self) -> str:
        return "all is well"


def test_a_signal_ends_its_parts(client: Client) -> None:
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    part = Part(lambda: inbox.put(signal.SIGTERM))
    assert run([part], client["nowhere"], inbox)
    assert part.done == ["started", "stopped", "joined"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_takes_the_process_along(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    def die() -> None:
        raise RuntimeError("planted")

    part = Part(lambda: threading.Thread(target=die, name="doomed").start())
    assert not run([part], client["nowhere"], SimpleQueue())
    assert part.done == ["started", "stopped", "joined"]
    assert "thread died thread=doomed" in caplog.text


def test_a_wrong_password_ends_the_process_since_only_a_new_one_reads_another(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = Trouble("timers cannot be fired", over="timers are fired again")
    assert trouble.met(AccessRefused(13)) > 0
    died = threading.Thread(target=trouble.met, args=(AccessRefused(18),))
    part = Part(died.start)
    with pytest.raises(AccessRefused):
        run([part], client["nowhere"], SimpleQueue())
    assert part.done == ["started", "stopped", "joined"]
    assert "thread died" not in caplog.text


def test_a_server_that_is_away_is_waited_for_until_a_signal_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "pause_seconds", lambda failures: 0.0 if failures < 3 else 20.0)
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    part = Part(lambda: None)
    with connect(
        "mongodb://127.0.0.1:1/?replicaSet=rs0", app_name="tests", server_selection_seconds=0.05
    ) as nowhere:
        timer = threading.Timer(0.4, inbox.put, [signal.SIGTERM])
        timer.start()
        assert run([part], nowhere["nowhere"], inbox)
        timer.join(5)
    assert "started" not in part.done
    assert "MongoDB cannot be reached, trying again" in caplog.text


def test_it_reports_its_state_and_hanging_threads(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    part, service = Part(lambda: None), Listener()
    running = threading.Thread(target=run, args=([part], client["nowhere"], inbox, service))
    running.start()
    eventually(lambda: service.says("alive", "all is well"))
    part.hangs = "the thread doorbell hangs"
    stalled = ("unwell", "stalled: the thread doorbell hangs")
    eventually(lambda: service.told[-3:] == [stalled] * 3)
    part.hangs = None
    eventually(lambda: service.says("alive", "all is well"))
    inbox.put(signal.SIGTERM)
    running.join(15)
    assert service.told[:2] == [
        ("starting", "asking for the replica set"),
        ("ready", "all is well"),
    ]
    assert service.told[-1] == ("stopping", "stopping")
    assert caplog.text.count("stalled: the thread doorbell hangs") == 1


def test_a_server_that_is_away_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    service = Listener()
    with connect(
        "mongodb://127.0.0.1:1/?replicaSet=rs0", app_name="tests", server_selection_seconds=0.05
    ) as nowhere:
        running = threading.Thread(target=run, args=([], nowhere["nowhere"], inbox, service))
        running.start()
        eventually(lambda: service.says("starting", "waiting for MongoDB since"))
        inbox.put(signal.SIGTERM)
        running.join(15)
    assert service.methods == ["starting", "stopping"]
