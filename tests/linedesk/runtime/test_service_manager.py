"""The reports of a process to systemd, read from a real socket like systemd.

A process that MongoDB refuses exits late enough for systemd never to give it up.
"""

import os
import signal
import socket
from collections.abc import Iterator
from queue import SimpleQueue

import pytest

from linedesk.launch import systemd
from linedesk.launch.dispatcher import ExitReason, run_until_end
from linedesk.launch.systemd import service_from, sockets_from
from linedesk.runtime.service_manager import ServiceManager
from linedesk.store.errors import AccessRefused
from tests.acceptance.test_service import manager as manager
from tests.listener import Manager


@pytest.fixture
def service(manager: Manager) -> Iterator[ServiceManager]:
    service = ServiceManager(manager.address)
    yield service
    service.close()


def test_the_life_of_a_process_as_reported_to_systemd(
    manager: Manager, service: ServiceManager
) -> None:
    service.starting("waiting for MongoDB", seconds=30.0)
    service.ready("3 in hand")
    service.alive("2 in hand · 1.5 events/s")
    service.unwell("stalled: the feed brings nothing")
    service.stopping("1 under way", seconds=1.5)
    assert manager.heard() == [
        ["EXTEND_TIMEOUT_USEC=30000000", "STATUS=waiting for MongoDB"],
        ["READY=1", "WATCHDOG=1", "STATUS=3 in hand"],
        ["WATCHDOG=1", "STATUS=2 in hand · 1.5 events/s"],
        ["STATUS=stalled: the feed brings nothing"],
        ["STOPPING=1", "EXTEND_TIMEOUT_USEC=1500000", "STATUS=1 under way"],
    ]


def test_a_status_is_one_line_and_sets_nothing_else(
    manager: Manager, service: ServiceManager
) -> None:
    service.unwell("why\nWATCHDOG=1\u2028\ud800")
    service.ready("\U0001f41f" * 5000)
    first, long = manager.heard()
    assert first == ["STATUS=why WATCHDOG=1 ?"]
    # systemd ignores longer messages, including their READY and WATCHDOG.
    assert len("\n".join(long).encode()) < 4096


def test_a_full_socket_blocks_no_caller_and_loses_no_state(
    manager: Manager, service: ServiceManager
) -> None:
    for _ in range(10_000):
        service.unwell("x" * 1000)
    service.ready("at work")
    assert 0 < len(manager.heard()) < 10_000
    service.alive("on")
    assert manager.heard() == [["READY=1", "WATCHDOG=1", "STATUS=on"]]


@pytest.mark.parametrize(
    ("usec", "pid", "seconds"),
    [("30000000", "own", 30.0), ("30000000", "1", None), ("0", None, None), (None, None, None)],
)
def test_the_watchdog_is_that_of_this_very_process(
    manager: Manager, usec: str | None, pid: str | None, seconds: float | None
) -> None:
    environ = {"NOTIFY_SOCKET": manager.address, "PATH": "/bin"}
    if usec is not None:
        environ["WATCHDOG_USEC"] = usec
    if pid is not None:
        environ["WATCHDOG_PID"] = str(os.getpid()) if pid == "own" else pid
    service = service_from(environ)
    assert service.watchdog_seconds == seconds
    assert environ == {"PATH": "/bin"}, "no child is to speak in our name"
    service.close()


@pytest.fixture
def opened() -> Iterator[list[socket.socket]]:
    """Two listening sockets that were opened for this process, the first of them at 500."""
    here = ("127.0.0.1", 0)
    with socket.create_server(here) as one, socket.create_server(here) as two:
        for fd, each in enumerate((one, two), 500):
            os.dup2(each.fileno(), fd, inheritable=True)
        yield [one, two]


def test_the_sockets_that_systemd_opened(
    opened: list[socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(systemd, "FIRST_FD", 500)
    environ = {"LISTEN_FDS": "2", "LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "a:b"}
    sockets = sockets_from(environ)
    assert [one.getsockname() for one in sockets] == [one.getsockname() for one in opened]
    assert [one.fileno() for one in sockets] == [500, 501]
    assert not any(one.get_inheritable() for one in sockets)
    assert environ == {}, "no child is to listen in our name"
    for one in sockets:
        one.close()


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LISTEN_FDS": "2", "LISTEN_PID": "1"},
        {"LISTEN_FDS": "2"},
        {"LISTEN_FDS": "-1", "LISTEN_PID": str(os.getpid())},
    ],
)
def test_sockets_of_another_process_are_left_alone(environ: dict[str, str]) -> None:
    assert sockets_from(environ) == []
    assert environ == {}


class Told(ServiceManager):
    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []

    def unwell(self, status: str) -> None:
        self.words.append(status)


def inbox_with(*messages: int | BaseException) -> SimpleQueue[int | BaseException]:
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    for message in messages:
        inbox.put(message)
    return inbox


class Refused:
    """A dispatcher that MongoDB refuses before it begins, or at work."""

    def __init__(self, answer: ExitReason | AccessRefused) -> None:
        self._answer = answer

    def run(self) -> ExitReason:
        if isinstance(self._answer, AccessRefused):
            raise self._answer
        return self._answer


def test_a_dispatcher_waits_if_it_is_refused() -> None:
    error = AccessRefused(18)
    before, at_work = Told(), Told()
    with pytest.raises(AccessRefused):
        run(Refused(error), before)
    assert before.words == [str(error)]
    assert run(Refused(ExitReason.REFUSED), at_work) is ExitReason.REFUSED
    assert len(at_work.words) == 1


def test_a_dispatcher_that_is_stopped_does_not_wait() -> None:
    service = Told()
    assert run(Refused(ExitReason.STOPPED), service) is ExitReason.STOPPED
    assert service.words == []


def run(dispatcher: Refused, service: Told) -> ExitReason:
    inbox = inbox_with(signal.SIGTERM)
    return run_until_end(dispatcher, inbox, service)  # type: ignore[arg-type]
