"""The real processes on a real mongod against linesim, ended by SIGTERM and by SIGKILL."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

import linesim
from linedesk.setup import children
from linedesk.setup.private_mongod import free_port
from tests.fork_server import Child, nursery
from tests.rows import Db

Process = subprocess.Popen[bytes] | Child
READY_SECONDS = 20.0
BOTS = Path(__file__).parent / "acceptance_bots.py"


class House:
    """One front desk and any number of dispatchers, with their logs in files.

    The fork server starts them; one that is started `fresh` has its own Python.
    """

    def __init__(self, folder: Path, mongo_uri: str, database: Db, sim: linesim.Sim) -> None:
        self.folder = folder
        self.database = database
        self.sim = sim
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/callback"
        sim.webhook_url = self.url
        self.settings = {
            "LINE_CHANNEL_SECRET": sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
            "LINE_API_BASE": sim.url,
            "LINE_API_DATA_BASE": sim.url,
            "LINE_ACCESS_INTERVAL_MS": "5",
            "MONGODB_URI": mongo_uri,
            "MONGODB_DATABASE": database.name,
            "FRONTDESK_PORT": str(self.port),
            "SPOOL_PATH": str(folder / "spool.db"),
            "DRAIN_SECONDS": "5",
            "PYTHONPATH": f"{BOTS.parent}{os.pathsep}{Path.cwd()}",
        }
        self._processes: list[Process] = []
        self._logs: dict[int, Path] = {}

    def start_frontdesk(self, *, fresh: bool = False, **settings: str) -> Process:
        process = self._start("frontdesk", settings, fresh=fresh)
        self.wait_for(self._frontdesk_is_ready, process)
        return process

    def start_dispatcher(
        self, *, ready: bool = True, fresh: bool = False, **settings: str
    ) -> Process:
        process = self._start("dispatcher", settings, fresh=fresh)
        if ready:
            self.wait_for(lambda: "dispatcher ready " in self.log_of(process), process)
        return process

    def stop(self, process: Process, number: int = signal.SIGTERM) -> int:
        """Send the signal and wait for the end; returns the exit status."""
        process.send_signal(number)
        return process.wait(30)

    def log_of(self, process: Process) -> str:
        return self._logs[process.pid].read_text("utf-8", "replace")

    def wait_for(
        self,
        condition: Callable[[], Any],
        process: Process | None = None,
        *,
        seconds: float = READY_SECONDS,
    ) -> Any:
        """The condition's first true value; fails with the logs when the time is up."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while not (value := condition()):
            if process is not None and process.poll() is not None:
                pytest.fail(f"ended with {process.returncode}:\n{self.log_of(process)[-3000:]}")
            if time.monotonic() > deadline:
                logs = "\n".join(path.read_text()[-3000:] for path in self._logs.values())
                pytest.fail(f"not within {seconds} s\n{logs}")
            pause.wait(0.01)
        return value

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(10)

    def _frontdesk_is_ready(self) -> bool:
        try:
            return requests.get(self.url.replace("/callback", "/readyz"), timeout=5).ok
        except requests.ConnectionError:
            return False

    def _start(self, name: str, settings: dict[str, str], *, fresh: bool) -> Process:
        path = self.folder / f"{name}-{len(self._processes)}.log"
        environ = {**os.environ, **self.settings, **settings}
        with path.open("wb") as log:
            process = (_fresh if fresh else _from_the_nursery)(name, environ, log.fileno())
        self._processes.append(process)
        self._logs[process.pid] = path
        return process


def _from_the_nursery(name: str, environ: dict[str, str], log: int) -> Process:
    return nursery.start(name, "--verbose", env=environ, stdout=log, stderr=log)


def _fresh(name: str, environ: dict[str, str], log: int) -> Process:
    return children.start(
        [sys.executable, "-m", name, "--verbose"],
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )


@pytest.fixture
def sim() -> Iterator[linesim.Sim]:
    with linesim.running(rate_limits=False) as sim:
        yield sim


@pytest.fixture
def house(tmp_path: Path, mongo_uri: str, database: Db, sim: linesim.Sim) -> Iterator[House]:
    house = House(tmp_path, mongo_uri, database, sim)
    yield house
    house.close()
