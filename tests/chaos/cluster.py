"""Everything that runs in a chaos run: servers, front desk, two dispatchers, and LINE's side."""

import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pymongo
import requests
from pymongo.errors import PyMongoError

import linesim
from linedesk.launch.stage import environ_of
from linedesk.operate.acts import OperatorControl
from linedesk.setup import children
from linedesk.store.documents import LEASES
from linedesk.store.errors import StoreUnavailable
from linesim.model.world import User
from tests.chaos.broker import Broker
from tests.chaos.points import FOLDER, Orders
from tests.chaos.servers import Servers
from tests.chaos.slipped import Freeze
from tests.fork_server import Child, nursery
from tests.rabbitmq import free_ports
from tests.waiting import eventually

DATABASE = "chaos"
INTERVAL_MS = 5
RESTART_SECONDS = 0.3
READY_SECONDS = 60.0
SPOOL_DISK = "4m"
ORDER_SECONDS = 1.0
TURN = re.compile(r"^(\S+Z) DEBUG jobworker turn since_last_access_ms=([\d.]+)", re.M)


class Kept:
    """One process that is started again whenever it has ended, as systemd would."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, environ: Mapping[str, str]
    ) -> None:
        self.name = name
        self.exits: list[int] = []
        self._command = command
        self._folder = folder
        self._environ = environ
        self._process: Child | None = None
        self._again_at = 0.0

    @property
    def pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        log = self._folder / f"{self.name}-{len(self.exits):03d}.log"
        with log.open("wb") as output:
            self._process = nursery.start(
                *self._command, env=self._environ, stdout=output.fileno(), stderr=output.fileno()
            )

    def look(self) -> None:
        """Start it again if it has ended some time ago."""
        if self._process is not None and self._process.poll() is not None:
            self.exits.append(self._process.returncode)
            self._process = None
            self._again_at = time.monotonic() + RESTART_SECONDS
        if self._process is None and time.monotonic() >= self._again_at:
            self.start()

    def send(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def stop(self) -> None:
        if self._process is not None:
            self.send(signal.SIGCONT)
            self.exits.append(children.stop(self._process, timeout_seconds=15))
            self._process = None


BOTS = "tests.chaos.chaos_bots"


class City:
    """See the module. Belongs to one thread, which has to `look` often.

    With `workers` handlers run in that many processes behind RabbitMQ.
    """

    def __init__(self, folder: Path, sim: linesim.Sim, *, nodes: int, workers: int = 0) -> None:
        self.folder = folder
        self.sim = sim
        self.servers = Servers(folder, nodes=nodes)
        self.spool = folder / "spool"
        self.spool.mkdir()
        self.spool_disk = _mount(self.spool)
        self.orders = Orders(folder / "points")
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        sim.webhook_url = f"{self.url}/callback"
        self.broker = Broker(folder, workers=workers) if workers else None
        environ = self._environ()
        self.frontdesk = Kept("frontdesk", ["frontdesk", "--verbose"], folder, environ)
        dispatcher = ["tests.chaos.dispatcher" if workers else "dispatcher", "--verbose"]
        self.dispatchers = [
            Kept(f"dispatcher-{letter}", dispatcher, folder, {**environ, "BOT": f"{BOTS}:{bot}"})
            for letter, bot in (("a", "bot"), ("b", "async_bot"))
        ]
        self.workers = [
            Kept(
                f"worker-{place}",
                ["linedesk", "worker", "--verbose"],
                folder,
                {**environ, "AMQP_URL": self.broker.url_of(place)},
            )
            for place in range(workers)
            if self.broker is not None
        ]
        self.kept = [self.frontdesk, *self.dispatchers, *self.workers]
        # The writing users, once they exist.
        self.users: list[User] = []
        # Of dispatchers; one of them may have been killed meanwhile.
        self.freezes: list[Freeze] = []

    def start(self) -> None:
        """Start everything, and wait until a message would be answered."""
        self.servers.start()
        if self.broker is not None:
            self.broker.start()
        made = nursery.run("linedesk", "init", "--capped-mb", "256", env=self._environ())
        assert made.returncode == 0, made.stderr
        for kept in self.kept:
            kept.start()
        eventually(self._is_ready, seconds=READY_SECONDS)

    def stop(self) -> None:
        for kept in self.kept:
            kept.stop()
        self.servers.stop()
        if self.broker is not None:
            self.broker.stop()
        if self.spool_disk:
            subprocess.run(["umount", str(self.spool)], check=False)

    def wait_until_whole(self) -> None:
        """Wait until stores and connections work again."""
        self.servers.wait_until_whole()
        if self.broker is not None:
            eventually(self.broker.node.answers, seconds=READY_SECONDS)

    def look(self) -> None:
        """Restart processes that have ended."""
        for kept in self.kept:
            kept.look()

    def active(self) -> Kept:
        """The dispatcher that holds the lease, if known; else the first."""
        node = self.servers.primary()
        try:
            row = node and node.client[DATABASE][LEASES].find_one({"_id": "dispatcher"})
        except PyMongoError:
            row = None
        owner = str((row or {}).get("owner"))
        return next((d for d in self.dispatchers if f"/{d.pid}/" in owner), self.dispatchers[0])

    def order(self, say: Callable[[OperatorControl], object]) -> bool:
        """An operator's write to `control`; False if MongoDB did not accept it."""
        node = self.servers.primary()
        if node is None:
            return False
        try:
            with pymongo.timeout(ORDER_SECONDS):
                say(OperatorControl(node.client[DATABASE]))
        except (PyMongoError, StoreUnavailable):
            return False
        return True

    def resume_all(self) -> None:
        """End every pause, also those whose end met servers that were away."""

        def resume(control: OperatorControl) -> None:
            for pause in control.read().rows:
                control.resume(pause.scope)

        eventually(lambda: self.order(resume), seconds=READY_SECONDS)

    def rows(self, collection: str, query: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Documents as the primary has them; the servers have to be whole."""
        node = self.servers.primary()
        assert node is not None, "no primary"
        return list(node.client[DATABASE][collection].find(query or {}))

    def readiness(self) -> dict[str, Any]:
        """The front desk's own report; empty if it does not answer."""
        try:
            answer: dict[str, Any] = requests.get(f"{self.url}/readyz", timeout=2).json()
        except (requests.RequestException, ValueError):
            return {}
        return answer

    def logs(self, name: str = "*") -> Iterator[str]:
        for path in sorted(self.folder.glob(f"{name}-*.log")):
            yield path.read_text("utf-8", "replace")

    def closest_turns_ms(self) -> float | None:
        """The two starts of calls closest together, by the dispatchers' own clocks."""
        within: list[float] = []
        at: list[float] = []
        for log in self.logs("dispatcher"):
            turns = TURN.findall(log)
            within += [float(ms) for _, ms in turns[1:]]
            at += [datetime.fromisoformat(turns[n][0]).timestamp() for n in (0, -1) if turns]
        # Between two processes only the first and last turn of each count; there is a restart
        # between them.
        between = [(b - a) * 1000 for a, b in pairwise(sorted(at)) if b > a]
        return min([*within, *between], default=None)

    def _is_ready(self) -> bool:
        ready = any("dispatcher ready " in log for log in self.logs("dispatcher"))
        return ready and self.readiness().get("status") == "ready"

    def _environ(self) -> dict[str, str]:
        settings = {
            "LINE_ACCESS_INTERVAL_MS": str(INTERVAL_MS),
            # Outages make many replies late, and none is to be given up for it.
            "LATE_REPLIES_A_DAY": "100000",
            "MONGODB_DATABASE": DATABASE,
            "SPOOL_MAX_MB": "2",
            "DRAIN_SECONDS": "5",
            "BOT": f"{BOTS}:async_bot",
            **(self.broker.settings if self.broker is not None else {}),
            FOLDER: str(self.orders.folder),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }
        return environ_of(
            self.sim,
            mongodb_uri=self.servers.uri,
            frontdesk_port=self._port,
            spool=self.spool / "spool.db",
            **settings,
        )


def _mount(folder: Path) -> bool:
    """A small separate disk for the spool, if permitted; returns whether it is."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={SPOOL_DISK}", "tmpfs", str(folder)]
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def running(folder: Path, *, nodes: int, workers: int = 0) -> Iterator[City]:
    """A city that is ready, gone when this ends."""
    with linesim.running(rate_limits=False) as sim:
        city = City(folder, sim, nodes=nodes, workers=workers)
        try:
            city.start()
            yield city
        finally:
            city.stop()
