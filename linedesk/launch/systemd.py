"""The address for reports, the sockets, the signals and the restarts that systemd gives a process.

systemd's variables are removed from the environment when they are read, so children do not report
or listen in this process's name. A process to which MongoDB refuses access exits slowly, so systemd
never reaches its start limit.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from queue import Empty, SimpleQueue

from linedesk.runtime.service_manager import MICROSECONDS, ServiceManager

# The name in the log, whatever the folder.
log = logging.getLogger("linedesk.runtime")

FIRST_FD = 3
# systemd restarts a dispatcher without limit, and each start costs MongoDB a log-in.
LEAST_SECONDS = 25.0


def service_from(environ: MutableMapping[str, str]) -> ServiceManager:
    """The service manager: systemd if NOTIFY_SOCKET names its socket, else none."""
    address = environ.pop("NOTIFY_SOCKET", "")
    watchdog_seconds = _watchdog_seconds(
        environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
    )
    if not address.startswith(("/", "@")):
        return ServiceManager()
    return ServiceManager(address, watchdog_seconds=watchdog_seconds)


def sockets_from(environ: MutableMapping[str, str]) -> list[socket.socket]:
    """The sockets that systemd opened (sd_listen_fds(3)); raises OSError if one is no socket."""
    number, pid = environ.pop("LISTEN_FDS", ""), environ.pop("LISTEN_PID", "")
    environ.pop("LISTEN_FDNAMES", None)
    if not number.isdigit() or pid != str(os.getpid()):
        return []
    sockets = [socket.socket(fileno=fd) for fd in range(FIRST_FD, FIRST_FD + int(number))]
    for one in sockets:
        one.set_inheritable(False)
    return sockets


def _watchdog_seconds(microseconds: str, pid: str) -> float | None:
    """See sd_watchdog_enabled(3): None without a watchdog, or if it is another process's."""
    if pid not in {"", str(os.getpid())}:
        return None
    if not microseconds.isdigit() or int(microseconds) == 0:
        return None
    return int(microseconds) / MICROSECONDS


def let_time_pass(
    began: float,
    inbox: SimpleQueue[int | BaseException],
    service: ServiceManager,
    *,
    why: str,
) -> None:
    """Wait until LEAST_SECONDS after `began` (a time of time.monotonic()), or until a signal.

    A process that has run for longer exits at once: the next start reads a new password.
    """
    until = began + LEAST_SECONDS
    left = until - time.monotonic()
    if left <= 0:
        return
    log.error('access refused, exiting later seconds=%.0f reason="%s"', left, why)
    service.unwell(why)
    while (left := until - time.monotonic()) > 0:
        with suppress(Empty):
            # Its other threads end with the same error, which arrives here, too.
            if isinstance(inbox.get(timeout=left), int):
                return


def take_signals(inbox: SimpleQueue[int | BaseException]) -> None:
    """Handle signals: the first SIGTERM or SIGINT begins a clean stop, the second exits at once."""
    came: list[int] = []

    def handle(number: int, frame: object) -> None:
        if came:
            os._exit(128 + number)
        came.append(number)
        # Only SimpleQueue.put is safe inside a signal handler.
        inbox.put(number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
