"""Reports of a process to its service manager by systemd's protocol.

`ServiceManager` implements sd_notify(3). `started_by` says which one a process has, and
`signals_taken` takes its signals.
"""

from __future__ import annotations

import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any


def word_seconds(service: ServiceManager) -> float:
    """The interval of reports: 1 s, or half of the watchdog's time if that is shorter."""
    return min(1.0, (service.watchdog_seconds or 2.0) / 2)


# Set by `linedesk up` for its children.
STARTED_BY_VARIABLE = "LINEDESK_STARTED_BY"
SYSTEMD, UP, HAND = "systemd", "up", "hand"
INIT_PID = 1


def started_by(environ: Mapping[str, str], *, parent: int) -> str:
    """The origin of a process: up, systemd (its parent is process 1), or hand."""
    if environ.get(STARTED_BY_VARIABLE) == UP:
        return UP
    # Shells inherit INVOCATION_ID from the service in which they run.
    return SYSTEMD if environ.get("INVOCATION_ID") and parent == INIT_PID else HAND


@contextmanager
def signals_taken(server: Any) -> Iterator[None]:
    """The method of a uvicorn.Server, whose own would raise them again: a SIGTERM would end it."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = {number: signal.signal(number, server.handle_exit) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


MICROSECONDS = 1_000_000
# Characters of up to four bytes each: systemd ignores a message of 4,096 bytes (PIPE_BUF) or more,
# including its WATCHDOG=1.
STATUS_CHARACTERS = 900


class ServiceManager:
    """Reports to systemd. Without an address, as in a process started by hand, it does nothing.

    Every method is thread-safe and never raises. Messages are dropped if systemd's queue is full;
    no caller waits.
    """

    def __init__(self, address: str = "", *, watchdog_seconds: float | None = None) -> None:
        self.watchdog_seconds = watchdog_seconds
        """The longest time between two calls of `alive` before the process is killed; call it at
        least twice as often. None: no limit."""
        # A name that begins with @ is an abstract one (unix(7)).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        # Kept open: a process without free descriptors must still report.
        kind = socket.SOCK_DGRAM | socket.SOCK_NONBLOCK
        self._socket = socket.socket(socket.AF_UNIX, kind) if address else None
        self._lock = threading.Lock()
        # Under _lock: the last state change, if it could not be sent yet.
        self._owed: tuple[str, ...] = ()

    def starting(self, status: str, *, seconds: float) -> None:
        """Report why the process is not ready; the next report follows within `seconds`."""
        self._tell(status, _extension(seconds))

    def ready(self, status: str) -> None:
        """Report that the process is ready; called once."""
        self._tell(status, "WATCHDOG=1", state="READY=1")

    def alive(self, status: str) -> None:
        """Report that the process makes progress, or waits for a known reason."""
        self._tell(status, "WATCHDOG=1")

    def unwell(self, status: str) -> None:
        """Report that a thread hangs: the status is shown, and the watchdog is not fed."""
        self._tell(status)

    def stopping(self, status: str, *, seconds: float) -> None:
        """Report a clean shutdown; the next report follows within `seconds`."""
        self._tell(status, _extension(seconds), state="STOPPING=1")

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()

    def _tell(self, status: str, *lines: str, state: str = "") -> None:
        if self._socket is None:
            return
        # One line: systemd would read text after a line break as another variable.
        shown = "STATUS=" + " ".join(status.split())[:STATUS_CHARACTERS]
        with self._lock:
            if state:
                self._owed = (state,)
            message = "\n".join([*self._owed, *lines, shown]).encode("utf-8", "replace")
            try:
                self._socket.sendto(message, socket.MSG_NOSIGNAL, self._address)
            except OSError:
                # The queue is full, or systemd restarts: the next message includes the state.
                return
            self._owed = ()


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={max(0, int(seconds * MICROSECONDS))}"
