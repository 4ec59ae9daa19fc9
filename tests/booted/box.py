"""linedesk as installed on the booted machine, and the users who write to it."""

import http.client
import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import linesim
from linesim.model.deliveries import HEADER, sign
from linesim.model.world import User
from tests.booted.booted_bot import FIRE_SECONDS, ring_text, sets_timer
from tests.booted.machine import Machine
from tests.waiting import eventually

Found = TypeVar("Found")

SIM_PORT = 9000
PORT = 8000
# The last one only if it is enabled.
SERVICES = ("frontdesk", "dispatcher", "console")
METRICS_PORTS = {"frontdesk": 9101, "dispatcher": 9102}
# Instead of two minutes, so that a run does not wait for so long.
WATCHDOG_SECONDS = 10
SETTLE_SECONDS = 90.0
LATE_SECONDS = 120.0

SETTINGS = {
    "BOT": "booted_bot:bot",
    "LINE_API_BASE": f"http://127.0.0.1:{SIM_PORT}",
    "LINE_API_DATA_BASE": f"http://127.0.0.1:{SIM_PORT}",
    "LINE_ACCESS_INTERVAL_MS": 5,
    **{f"{name.upper()}_METRICS_PORT": port for name, port in METRICS_PORTS.items()},
}


@dataclass
class Outcome:
    """The result of a load: the checker's report, and the requests without an answer 200."""

    events: int = 0
    failed: list[str] = field(default_factory=list)
    knocks: int = 0

    def __str__(self) -> str:
        return f"{self.events} events answered once, {self.knocks} checks"


class Box:
    """Belongs to the thread that made it. `secrets` must be seen nowhere but in their files."""

    def __init__(
        self, machine: Machine, sim: linesim.Sim, work: Path, *, timeout_seconds: float
    ) -> None:
        self.machine = machine
        self.sim = sim
        self.work = work
        self.secrets = [sim.secret, sim.token]
        self._timeout_seconds = timeout_seconds
        self._drop_ins: list[Path] = []
        self._names = itertools.count()

    # Settings and units.

    def configure(self, **changes: object) -> None:
        """Lay linedesk.toml with the settings of the test and these."""
        lines = [f"{name} = {json.dumps(value)}" for name, value in (SETTINGS | changes).items()]
        path = self.machine.files / "etc/linedesk/linedesk.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(lines) + "\n")

    def shorten_watchdogs(self) -> None:
        """By drop-ins, as an operator would; the units stay as they are shipped."""
        for name in SERVICES:
            folder = self.machine.files / f"etc/systemd/system/linedesk-{name}.service.d"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "test.conf").write_text(f"[Service]\nWatchdogSec={WATCHDOG_SECONDS}\n")
        self.machine.systemctl("daemon-reload")

    @contextmanager
    def drop_in(self, unit: str, text: str) -> Iterator[None]:
        """Settings of a unit, until this ends, or a failure of the check is recovered from."""
        path = self.machine.files / f"etc/systemd/system/{unit}.d/check.conf"
        path.parent.mkdir(exist_ok=True)
        self._drop_ins.append(path)
        path.write_text(text)
        self.machine.systemctl("daemon-reload")
        yield
        path.unlink()
        self.machine.systemctl("daemon-reload")

    def show(self, name: str, what: str) -> str:
        """A property of the service."""
        return self.machine.show(f"linedesk-{name}.service", what)

    def recover(self) -> None:
        """After a check that failed: its settings are gone, and all runs as if it had not been."""
        self.configure()
        for path in self._drop_ins:
            path.unlink(missing_ok=True)
        self.machine.systemctl("daemon-reload")
        self.machine.systemctl("reset-failed")
        self.machine.systemctl("start", "mongod.service")
        units = [f"linedesk-{name}.service" for name in SERVICES]
        units += ["linedesk-frontdesk.socket", "linedesk.target"]
        self.machine.systemctl("restart", *units, check=False)

    def pid(self, name: str) -> int:
        """Its main process as the machine numbers it; 0 where none runs."""
        return int(self.show(name, "MainPID"))

    def restarts(self, name: str) -> int:
        """The number of restarts by systemd."""
        return int(self.show(name, "NRestarts"))

    def wait_until_active(self, *names: str, seconds: float = 60.0) -> None:
        """Until they have said that they are ready."""
        for name in names or SERVICES:
            wait_for(partial(self._is_active, name), f"{name} is active", seconds=seconds)

    def _is_active(self, name: str) -> bool:
        return self.show(name, "ActiveState") == "active"

    def wait_for_successor(self, name: str, pid: int, *, seconds: float = 60.0) -> float:
        """Until another process than this one is ready; in seconds."""
        began = time.monotonic()
        wait_for(lambda: self.pid(name) not in (0, pid), f"another {name}", seconds=seconds)
        self.wait_until_active(name, seconds=seconds)
        return time.monotonic() - began

    def status(self, name: str) -> str:
        """The text of its STATUS=."""
        return self.show(name, "StatusText")

    def signal(self, unit: str, number: str) -> None:
        """To its main process only."""
        self.machine.systemctl("kill", "--kill-whom=main", f"--signal={number}", unit)

    # People.

    def people(self, count: int) -> list[User]:
        """Users who have not written yet."""
        return [self.sim.add_user(f"u{next(self._names)}") for _ in range(count)]

    @contextmanager
    def load(self, *, rate: float = 40.0, users: int = 12) -> Iterator[Outcome]:
        """Users who write in the meantime, on kept connections, while LINE's check opens one each
        time.

        Afterwards all of it was answered once and in order, and every timer fired once.
        """
        outcome = Outcome()
        since = len(self.sim.deliveries)
        load = linesim.Load(self.sim, self.people(users), rate=rate)
        knocking = Knocking(self.sim.secret, self._timeout_seconds)
        load.start()
        knocking.start()
        try:
            yield outcome
        finally:
            knocking.stop()
            load.stop()
            assert load.join(30)
        assert load.counts.accepted, "no message was accepted"
        new = self.sim.deliveries[since:]
        outcome.events, outcome.knocks = load.counts.accepted, knocking.answered
        outcome.failed = knocking.failed + [
            f"{each.number}: {each.status or each.error}" for each in new if not each.delivered
        ]
        self.judge(since)

    def judge(self, since: int) -> None:
        """Wait until all is answered that was accepted after the delivery of this number."""
        deadline = time.monotonic() + SETTLE_SECONDS
        pause = threading.Event()
        while problems := self._report(since).problems():
            assert time.monotonic() < deadline, "; ".join(problems)
            pause.wait(0.5)
        # A repeated text is sent a moment later.
        pause.wait(1.0)
        problems = self._report(since).problems()
        assert not problems, "; ".join(problems)

    def _report(self, since: int) -> linesim.Report:
        return linesim.check(self.sim, since=since, expect_timers=self._timers(since))

    def _timers(self, since: int) -> list[linesim.Timer]:
        taken = {
            event["webhookEventId"]: event
            for delivery in self.sim.deliveries
            if delivery.number > since and delivery.delivered
            for event in delivery.events
        }
        return [
            linesim.Timer(event["source"]["userId"], ring_text(text), due, LATE_SECONDS)
            for event in taken.values()
            if sets_timer(text := event["message"]["text"])
            # Set when the handler ran, which was after the message was written.
            for due in [event["timestamp"] / 1000 + FIRE_SECONDS]
        ]


class Knocking:
    """LINE's connectivity check, repeatedly, each on a new connection."""

    PAUSE_SECONDS = 0.02

    def __init__(self, secret: str, timeout_seconds: float) -> None:
        self._timeout_seconds = timeout_seconds
        self._body = json.dumps({"destination": "U" + "0" * 32, "events": []}).encode()
        self._headers = {"content-type": "application/json", HEADER: sign(secret, self._body)}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="knocking", daemon=True)
        self.answered = 0
        self.failed: list[str] = []

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(10)

    def _run(self) -> None:
        while not self._stop.wait(self.PAUSE_SECONDS):
            connection = http.client.HTTPConnection(
                "127.0.0.1", PORT, timeout=self._timeout_seconds
            )
            try:
                connection.request("POST", "/callback", self._body, self._headers)
                status = connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(f"check: {type(error).__name__}")
            else:
                self.answered += status == 200
                if status != 200:
                    self.failed.append(f"check: {status}")
            finally:
                connection.close()


def wait_for(look: Callable[[], Found], what: str, *, seconds: float = 60.0) -> Found:
    """Like `eventually`, with a message for the missing condition."""
    try:
        return eventually(look, seconds=seconds)
    except AssertionError:
        raise AssertionError(f"not within {seconds:g} s: {what}") from None
