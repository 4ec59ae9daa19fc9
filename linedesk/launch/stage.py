"""Each real part on this machine: mongod, linesim, front desk and dispatcher, from settings.

The processes have a folder of their own, each a free port, and a file for its log; linesim runs in
this process. Every wait ends early, with an exception, after a signal or the death of a process.
"""

from __future__ import annotations

import os
import queue
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

from pymongo.database import Database

from linedesk.launch.supervisor import STOP_SIGNALS, Signals
from linedesk.settings.errors import DemoFailed, DemoInterrupted
from linedesk.settings.settings import Settings
from linedesk.setup import children
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod, free_port
from linedesk.store.client import Client, connect
from linesim import Sim
from linesim.model.deliveries import Delivery, Event

DATABASE = "line_bot"
START_SECONDS = 30.0
LOOK_SECONDS = 0.02
# The environment's other sources of settings (linedesk.settings.sources, --config).
SOURCES = {"CREDENTIALS_DIRECTORY", "LINEDESK_CONFIG"}
# In the order of stopping: sources of new work first.
STOP_SECONDS = {"frontdesk": 10.0, "dispatcher": 20.0}
READY = {"frontdesk": " listening host=", "dispatcher": "INFO dispatcher ready "}

Found = TypeVar("Found")


def environ_of(
    sim: Sim, *, mongodb_uri: str, frontdesk_port: int, spool: Path, **settings: str
) -> dict[str, str]:
    """The environment of front desk and dispatcher of this LINE, with these settings.

    None of the operator's settings is in it: their token must not be used here.
    """
    others = {
        name: value
        for name, value in os.environ.items()
        if name.lower() not in Settings.model_fields and name not in SOURCES
    }
    return {
        **others,
        "LINE_CHANNEL_SECRET": sim.secret,
        "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
        "LINE_API_BASE": sim.url,
        "LINE_API_DATA_BASE": sim.url,
        "MONGODB_URI": mongodb_uri,
        "MONGODB_DATABASE": DATABASE,
        "FRONTDESK_PORT": str(frontdesk_port),
        "SPOOL_PATH": str(spool),
        **settings,
    }


class Stage:
    """A context manager: everything runs inside it, and is removed at its end.

    `settings` are those of all processes. The webhooks of `sim` go to the front desk.
    """

    def __init__(
        self,
        folder: Path,
        sim: Sim,
        *,
        signals: Signals | None = None,
        settings: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.sim = sim
        self.mongod = EmbeddedMongod(folder / "mongod")
        self._port = free_port()
        sim.webhook_url = f"http://127.0.0.1:{self._port}/callback"
        self._settings = settings
        self._signals = Signals() if signals is None else signals
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._playing: Mapping[str, str] | None = None
        self._client: Client | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._client is not None:
            self._client.close()
        for name in STOP_SECONDS:
            self._stop(name)
        self.mongod.stop()

    def start_mongod(self) -> None:
        """A private MongoDB with the collections of `linedesk init`."""
        self.mongod.start()
        self._client = connect(self.mongod.uri, app_name="linedesk-stage")
        create_collections(self.database)

    def play(self, bot: str, **settings: str) -> None:
        """Run this bot (`module:name`) with these settings; returns when all processes are ready.

        The dispatcher of another bot, or of other settings, ends first.
        """
        wanted = {"BOT": bot, **settings}
        if self._playing == wanted:
            return
        self._playing = None
        if "frontdesk" not in self._processes:
            self._start("frontdesk", {})
        self._stop("dispatcher")
        self._start("dispatcher", wanted)
        for name, ready in READY.items():
            self.wait_for(partial(self._has_logged, name, ready), name)
        self._playing = wanted

    def deliver(self, *events: Event) -> Delivery:
        """Send the events as LINE in one webhook; raises DemoFailed if they are not stored."""
        delivery = self.sim.deliver(*events)
        if delivery.status != 200:
            said = delivery.status or delivery.error
            raise DemoFailed(self.with_log(f"a webhook was not stored: {said}", "frontdesk"))
        return delivery

    def now(self) -> datetime:
        """The time of LINE and of the bot."""
        return datetime.fromtimestamp(self.sim.platform.read(lambda p: p.clock.time()), UTC)

    @property
    def database(self) -> Database[Any]:
        assert self._client is not None, "start_mongod comes first"
        return self._client[DATABASE]

    def log_of(self, name: str) -> str:
        """The whole log of this process."""
        return self._log_path(name).read_text("utf-8", "replace")

    def wait_for(
        self, look: Callable[[], Found | None], concerned: str, *, seconds: float = START_SECONDS
    ) -> Found:
        """Return the first true value of `look`.

        Raises DemoFailed, with the end of the log of the process concerned, after a time-out or the
        end of a process; DemoInterrupted after SIGTERM or SIGINT.
        """
        deadline = time.monotonic() + seconds
        while not (found := look()):
            self._look_after_processes()
            if time.monotonic() > deadline:
                raise DemoFailed(self.with_log(f"no result within {seconds:.0f} s", concerned))
            self.stay(LOOK_SECONDS)
        return found

    def stay(self, seconds: float | None = None) -> None:
        """Wait, at most until the next signal; raises DemoFailed if a process has ended."""
        try:
            number = self._signals.get(timeout=seconds)
        except queue.Empty:
            return
        if number in STOP_SIGNALS:
            raise DemoInterrupted(number)
        self._look_after_processes()

    def with_log(self, what: str, name: str) -> str:
        """The text, with the end of the log of this process."""
        lines = self.log_of(name).splitlines()[-15:]
        return "\n".join([what, f"the end of the log of {name}:", *(f"  {line}" for line in lines)])

    def _start(self, name: str, settings: Mapping[str, str]) -> None:
        own = {"SIM_CLOCK": f"{self.sim.url}/sim/clock", **self._settings, **settings}
        environ = environ_of(
            self.sim,
            mongodb_uri=self.mongod.uri,
            frontdesk_port=self._port,
            spool=self.folder / "spool.db",
            **own,
        )
        with self._log_path(name).open("wb") as log:
            self._processes[name] = children.start(
                children.of_module(name, "--verbose"),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _stop(self, name: str) -> None:
        if name in self._processes:
            children.stop(self._processes.pop(name), timeout_seconds=STOP_SECONDS[name])

    def _look_after_processes(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise DemoFailed(self.with_log(f"{name} ended by itself", name))

    def _has_logged(self, name: str, words: str) -> bool:
        return words in self.log_of(name)

    def _log_path(self, name: str) -> Path:
        return self.folder / f"{name}.log"
