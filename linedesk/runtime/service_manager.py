"""How a process reports to its service manager, in systemd's protocol, and takes its sockets.

`Systemd` speaks sd_notify(3); without systemd `NoServiceManager` takes its place. Both take their
variables out of the environment, so that no child reports or listens in their name. A process that
MongoDB refuses ends slowly enough that systemd never stops starting it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import MutableMapping
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Protocol


class ServiceManager(Protocol):
    """Who runs this process. Every method may be called from any thread, and never raises."""

    @property
    def watchdog_seconds(self) -> float | None:
        """How long the process may go without a word before it is ended; None: for ever."""

    def starting(self, status: str, *, seconds: float) -> None:
        """Not ready yet, for a reason; it will say more within so many seconds."""

    def ready(self, status: str) -> None:
        """The process does its work from now on; said once."""

    def alive(self, status: str) -> None:
        """It still makes progress, or waits for something that has a name."""

    def unwell(self, status: str) -> None:
        """It hangs: the words are shown, the watchdog is not fed."""

    def reloading(self) -> None:
        """It reads something anew; `ready` or `alive` follows."""

    def stopping(self, status: str, *, seconds: float) -> None:
        """It ends in an orderly way, and will say more within so many seconds."""


class NoServiceManager:
    """A process that somebody started by hand: nobody listens."""

    watchdog_seconds: float | None = None

    def starting(self, status: str, *, seconds: float) -> None:
        """Nobody waits for it."""

    def ready(self, status: str) -> None:
        """Nobody waits for it."""

    def alive(self, status: str) -> None:
        """Nobody watches it."""

    def unwell(self, status: str) -> None:
        """Nobody watches it."""

    def reloading(self) -> None:
        """Nobody asked for it."""

    def stopping(self, status: str, *, seconds: float) -> None:
        """Nobody waits for it."""


def word_seconds(service: ServiceManager) -> float:
    """How often to say a word: once a second, or twice in the watchdog's time if that is short."""
    watchdog_seconds = service.watchdog_seconds
    return 1.0 if watchdog_seconds is None else min(1.0, watchdog_seconds / 2)


FIRST_FD = 3
MICROSECONDS = 1_000_000
# Of up to four bytes each: systemd passes over a whole message of 4,096 bytes (PIPE_BUF) or more,
# the watchdog's word in it included.
STATUS_CHARACTERS = 900


def service_from(environ: MutableMapping[str, str]) -> ServiceManager:
    """Who runs this process: systemd where NOTIFY_SOCKET names its socket, else nobody."""
    address = environ.pop("NOTIFY_SOCKET", "")
    watchdog_seconds = _watchdog_seconds(
        environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    )
    if not address.startswith(("/", "@")):
        return NoServiceManager()
    return Systemd(address, watchdog_seconds=watchdog_seconds)


def sockets_from(
    environ: MutableMapping[str, str], *, first_fd: int = FIRST_FD
) -> list[socket.socket]:
    """The sockets that systemd opened for this very process, in the unit's order.

    As sd_listen_fds(3) has it; raises OSError if one of them is no socket.
    """
    number, pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not number.isdigit() or pid != str(os.getpid()):
        return []
    sockets = [socket.socket(fileno=fd) for fd in range(first_fd, first_fd + int(number))]
    for one in sockets:
        one.set_inheritable(False)
    return sockets


class Systemd:
    """Reports to systemd. What systemd has no room for is dropped, and no caller waits."""

    def __init__(self, address: str, *, watchdog_seconds: float | None = None) -> None:
        self._watchdog_seconds = watchdog_seconds
        # A name that begins with @ is an abstract one (unix(7)).
        self._address = "\0" + address[1:] if address.startswith("@") else address
        # Held open, since a process that is out of descriptors has to be heard, too.
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._lock = threading.Lock()
        # All below under _lock. What systemd has to know and was not told yet.
        self._owed: tuple[str, ...] = ()
        self._reloads = False

    @property
    def watchdog_seconds(self) -> float | None:
        """How long the process may go without `alive`; speak twice as often, at the least."""
        return self._watchdog_seconds

    def starting(self, status: str, *, seconds: float) -> None:
        """Not ready yet, for a reason; it will say more within so many seconds."""
        self._tell(_extension(seconds), _status(status))

    def ready(self, status: str) -> None:
        """The process does its work from now on."""
        self._turn_to("READY=1")
        self._tell("WATCHDOG=1", _status(status))

    def alive(self, status: str) -> None:
        """It still makes progress, or waits for something that has a name."""
        if self._reloads:
            self._turn_to("READY=1")
        self._tell("WATCHDOG=1", _status(status))

    def unwell(self, status: str) -> None:
        """It hangs: the words are shown, the watchdog is not fed."""
        self._tell(_status(status))

    def reloading(self) -> None:
        """It reads something anew; `ready` or `alive` follows."""
        self._turn_to("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        self._tell()

    def stopping(self, status: str, *, seconds: float) -> None:
        """It ends in an orderly way, and will say more within so many seconds."""
        self._turn_to("STOPPING=1")
        self._tell(_extension(seconds), _status(status))

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _turn_to(self, *state: str) -> None:
        """Of several states that systemd missed, only the last one counts."""
        with self._lock:
            self._owed = state
            self._reloads = state[0] == "RELOADING=1"

    def _tell(self, *lines: str) -> None:
        with self._lock:
            message = "\n".join([*self._owed, *lines]).encode("utf-8", "replace")
            try:
                self._socket.sendto(message, socket.MSG_NOSIGNAL, self._address)
            except OSError:
                # No room, or systemd is being replaced: the state goes along with what comes next.
                return
            self._owed = ()


def _status(text: str) -> str:
    """One line, not too long: what follows a line's end would be read as a variable of its own."""
    return "STATUS=" + " ".join(text.split())[:STATUS_CHARACTERS]


def _extension(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={max(0, int(seconds * MICROSECONDS))}"


def _watchdog_seconds(microseconds: str, pid: str) -> float | None:
    """As sd_watchdog_enabled(3): None without one, or where it is another process's."""
    if pid not in {"", str(os.getpid())}:
        return None
    if not microseconds.isdigit() or int(microseconds) == 0:
        return None
    return int(microseconds) / MICROSECONDS


log = logging.getLogger(__name__)

# The scheduler's unit allows 30 starts in 10 minutes; the dispatcher's has no limit.
LEAST_SECONDS = 25.0


def let_time_pass(
    began: float,
    inbox: SimpleQueue[int | BaseException],
    service: ServiceManager,
    *,
    why: str,
    least_seconds: float = LEAST_SECONDS,
) -> None:
    """Wait until `least_seconds` after `began` (a time of time.monotonic()), or until a signal.

    A process that has run for longer ends at once, since the next start reads a new password.
    """
    until = began + least_seconds
    left = until - time.monotonic()
    if left <= 0:
        return
    log.error('refused, ending in a while seconds=%.0f reason="%s"', left, why)
    service.unwell(why)
    while (left := until - time.monotonic()) > 0:
        with suppress(Empty):
            # Its other threads die of the same, and say so here, too.
            if isinstance(inbox.get(timeout=left), int):
                return
