"""The sockets on which one front desk takes connections: its own, or those it was handed.

A socket that systemd opened and keeps loses no connection while no front desk runs: who calls
then waits in the kernel's queue for the next one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import resource
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from frontdesk.errors import CannotListen
from frontdesk.overload import MOST_CONNECTIONS

log = logging.getLogger(__name__)

# As many connections as may be open come at once; the kernel takes 4,096 (net.core.somaxconn).
BACKLOG = 4096
EVERYWHERE = ("0.0.0.0", "::")


@dataclass(frozen=True)
class Address:
    """Where to listen. With `reuse_port` several processes share the port, each asking for it."""

    host: str = "127.0.0.1"
    port: int = 8000
    reuse_port: bool = False
    tls_cert: Path | None = None
    tls_key: Path | None = None


@contextlib.contextmanager
def listeners(
    address: Address, inherited: Sequence[socket.socket] = ()
) -> Iterator[Sequence[socket.socket]]:
    """The listening sockets, closed at the end; with inherited ones the address is not bound.

    To close one ends nothing for other processes that hold it. Raises CannotListen with what to
    change.
    """
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in inherited]
        for one in sockets:
            _check(one)
        if sockets:
            _compare(address, sockets)
        else:
            sockets = [stack.enter_context(_listen(address))]
        yield sockets


def allow_connections() -> int:
    """How many connections there may be at a time.

    Each takes a file descriptor, and as many are left for the stores and for what is being closed.
    The usual limit of 1,024 is raised as far as it may be.
    """
    wanted = 2 * MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    most = wanted // 2
    if most < MOST_CONNECTIONS:
        log.warning(
            "the limit of open files allows only few connections: raise it (ulimit -n %d, "
            "LimitNOFILE=) connections=%d",
            2 * MOST_CONNECTIONS,
            most,
        )
    return most


def _listen(address: Address) -> socket.socket:
    """Made here and not by uvicorn: it can share its port, and explain itself."""
    host, port = address.host, address.port
    try:
        family, _, _, _, target = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(
            target[:2], family=family, backlog=BACKLOG, reuse_port=address.reuse_port
        )
    except OSError as error:
        raise CannotListen(_explain(error, host, port)) from error


def _check(inherited: socket.socket) -> None:
    if (
        inherited.family not in (socket.AF_INET, socket.AF_INET6)
        or inherited.type != socket.SOCK_STREAM
        or not inherited.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    ):
        raise CannotListen(
            "the socket unit hands over a socket that does not listen for TCP: it must have "
            "ListenStream= with a port, and Accept=no"
        )


def _compare(address: Address, inherited: Sequence[socket.socket]) -> None:
    places = [one.getsockname()[:2] for one in inherited]
    if any(port == address.port and host in (address.host, *EVERYWHERE) for host, port in places):
        return
    log.warning(
        "inherited socket is not the one of the settings, which do not count "
        "host=%s port=%d FRONTDESK_HOST=%s FRONTDESK_PORT=%d",
        *places[0],
        address.host,
        address.port,
    )


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"{host} port {port} is in use: stop the process that has it or choose another "
            "FRONTDESK_PORT; front desks share a port only if each was started to share it"
        )
    if error.errno == errno.EACCES:
        return f"FRONTDESK_PORT {port} is not allowed: below 1024 it takes CAP_NET_BIND_SERVICE"
    return f"FRONTDESK_HOST {host} is not an address of this machine: {error.strerror}"
