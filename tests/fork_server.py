"""Real processes without the time for their imports, which take most of a start.

One process imports everything and does nothing else; each process of a test is forked from it. From
then on it is like one of `python -m`: its own pid, environment, standard streams, process group,
signals, exit status and end of the interpreter. Properties of the interpreter's start (its command
line in `ps`, PYTHON... variables, the processor time of a start) differ: tests of those start a
separate Python.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from linedesk.setup import children

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = (
    *(
        "linedesk.launch.main",
        "linedesk.launch.frontdesk",
        "linedesk.launch.dispatcher",
        "linedesk.launch.worker",
    ),
    *(
        "linedesk.setup.init",
        "linedesk.operate.acts",
        "linedesk.doctor.doctor",
        "linedesk.launch.demo",
    ),
    *("frontdesk.process", "linesim.http.server", "linedesk.bots.parrot"),
)
START_SECONDS = 60.0
LARGEST_ORDER = 128 * 1024


class Child:
    """One of them, with the part of subprocess.Popen that tests use."""

    def __init__(self, told: int) -> None:
        self._told = open(told, "rb", buffering=0)  # noqa: SIM115
        self._lock = threading.Lock()
        self.returncode: int | None = None
        number = self._next(START_SECONDS)
        assert number is not None, "no process within a minute"
        self.pid = number

    def poll(self) -> int | None:
        """The exit status as Popen has it, None while it runs."""
        with self._lock:
            if self.returncode is None:
                self.returncode = self._next(0)
            if self.returncode is not None:
                self._told.close()
            return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit status; raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            select.select([self._told], [], [], timeout)
        if (status := self.poll()) is None:
            raise subprocess.TimeoutExpired([f"process {self.pid}"], timeout or 0)
        return status

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _next(self, timeout: float) -> int | None:
        if not select.select([self._told], [], [], timeout)[0]:
            return None
        if not (line := self._told.readline()):
            self._told.close()
            raise RuntimeError("the nursery has ended")
        return int(line)


class Nursery:
    """The process that the others are forked from, started by the first of them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Both under the lock.
        self._process: subprocess.Popen[bytes] | None = None
        self._orders: socket.socket | None = None

    def start(
        self, module: str, *arguments: str, env: Mapping[str, str], stdout: int, stderr: int
    ) -> Child:
        """`python -m module arguments` in this environment, writing to open files."""
        order = json.dumps({"argv": [module, *arguments], "env": dict(env)}).encode()
        told, status_line = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._line(), [order], [stdout, stderr, status_line])
        finally:
            os.close(status_line)
        return Child(told)

    def run(
        self, module: str, *arguments: str, env: Mapping[str, str], timeout: float = 60.0
    ) -> subprocess.CompletedProcess[str]:
        """The ended process with its output."""
        with Written() as out, Written() as err:
            child = self.start(module, *arguments, env=env, stdout=out.fd, stderr=err.fd)
            try:
                status = child.wait(timeout)
            finally:
                child.kill()
            return subprocess.CompletedProcess([module, *arguments], status, out.text, err.text)

    def close(self) -> None:
        """End it, and with it all that were left to run."""
        with self._lock:
            if self._process is not None and self._orders is not None:
                self._orders.close()
                self._process.wait(10)
                self._process = self._orders = None

    def _line(self) -> socket.socket:
        if self._orders is None:
            self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", __name__, str(theirs.fileno())],
                    cwd=ROOT,
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
        return self._orders


class Written:
    """The output of a process, in memory."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("written")

    @property
    def text(self) -> str:
        return os.pread(self.fd, os.fstat(self.fd).st_size, 0).decode()

    def __enter__(self) -> Written:
        return self

    def __exit__(self, *error: object) -> None:
        os.close(self.fd)


nursery = Nursery()


def main() -> None:
    """Fork the requested processes until the tests disconnect."""
    for name in IMPORTED:
        importlib.import_module(name)
    # It would keep this one's TMPDIR.
    assert tempfile.tempdir is None
    gc.freeze()
    with socket.socket(fileno=int(sys.argv[1])) as orders:
        while order := socket.recv_fds(orders, LARGEST_ORDER, 3):
            message, fds, _, _ = order
            _bury()
            if not message:
                return
            born = children.dying_with(os.getpid())
            if os.fork() == 0:
                born()
                orders.close()
                _bear(json.loads(message), *fds)
            for fd in fds:
                os.close(fd)


def _bury() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _bear(order: Mapping[str, Any], stdout: int, stderr: int, status_line: int) -> None:
    """Run it in a child, whose parent waits for it and reports its pid and its end."""
    born = children.dying_with(os.getpid())
    child = os.fork()
    if child != 0:
        for fd in (1, 2, stdout, stderr):
            os.close(fd)
        os.write(status_line, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(status_line, f"{os.waitstatus_to_exitcode(status)}\n".encode())
        os._exit(0)
    born()
    os.setpgid(0, 0)
    for fd, place in ((stdout, 1), (stderr, 2)):
        os.dup2(fd, place)
    for fd in (stdout, stderr, status_line):
        os.close(fd)
    # Whether they can seek, they ask once.
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", 1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    _become(order["argv"], order["env"])


def _become(argv: Sequence[str], env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)
    sys.path[1:1] = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each]
    sys.argv = list(argv)
    runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    sys.exit()


if __name__ == "__main__":
    main()
