"""The demo's environment: mongod, simulator, front desk and dispatcher as real processes.

They run in their own folder, each on a free port with its log in a file. Every wait ends early,
with an exception, after a signal or the death of a process.
"""

from __future__ import annotations

import os
import queue
import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import requests
from pymongo.errors import PyMongoError

from linedesk.compose import children
from linedesk.compose.private_mongod import EmbeddedMongod, free_port
from linedesk.compose.supervisor import STOP_SIGNALS, Signals
from linedesk.settings.errors import DemoFailed, DemoInterrupted
from linedesk.settings.settings import Settings
from linedesk.setup.collections import create_collections
from linedesk.store.client import Client, connect
from linedesk.store.documents import Document

DATABASE = "line_bot"
START_SECONDS = 30.0
REQUEST_SECONDS = 10.0
PROBE_SECONDS = 1.0
LOOK_SECONDS = 0.02
# The environment's other sources of settings (linedesk.settings.sources, --config).
SOURCES = {"CREDENTIALS_DIRECTORY", "LINEDESK_CONFIG"}
# In the order of stopping: sources of new work first.
STOP_SECONDS = {"linesim": 5.0, "frontdesk": 10.0, "dispatcher": 20.0}
DISPATCHER_READY = "INFO dispatcher ready "

Found = TypeVar("Found")


class DemoEnvironment:
    """A context manager: everything runs inside it, and is removed at its end."""

    def __init__(
        self, folder: Path, *, bot: str, signals: Signals, chat_port: int | None = None
    ) -> None:
        self.folder = folder
        self._bot = bot
        self.linesim_url = f"http://127.0.0.1:{chat_port or free_port()}"
        self.frontdesk_url = f"http://127.0.0.1:{free_port()}"
        self.mongod = EmbeddedMongod(folder / "mongod")
        self._signals = signals
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._http = requests.Session()
        # No request leaves the machine, so proxies and .netrc are ignored.
        self._http.trust_env = False
        self._client: Client | None = None

    def __enter__(self) -> DemoEnvironment:
        return self

    def __exit__(self, *exception: object) -> None:
        self._http.close()
        if self._client is not None:
            self._client.close()
        for name, seconds in STOP_SECONDS.items():
            if name in self._processes:
                children.stop(self._processes.pop(name), timeout_seconds=seconds)
        self.mongod.stop()

    def require_port(self) -> None:
        """Raise DemoFailed if the chat page's port is in use, before anything starts."""
        port = int(self.linesim_url.rpartition(":")[2])
        with socket.socket() as tried:
            # Like a server: a port that was just closed counts as free.
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except OSError as error:
                raise DemoFailed(
                    f"cannot serve on 127.0.0.1:{port}: {error.strerror}; choose another --port"
                ) from error

    def start_mongod(self) -> None:
        """A private MongoDB with the collections of `linedesk init`."""
        self.mongod.start()
        self._client = connect(self.mongod.uri, app_name="linedesk-demo")
        create_collections(self._client[DATABASE])

    def start_rooms(self) -> None:
        """Start simulator, front desk and dispatcher together; returns when each is ready."""
        environ = self._environ()
        port = self.linesim_url.rpartition(":")[2]
        callback = f"{self.frontdesk_url}/callback"
        self._start("linesim", ["--port", port, "--webhook", callback], environ)
        self._start("frontdesk", ["--verbose"], environ)
        self._start("dispatcher", ["--verbose"], environ)
        self.wait_for(lambda: self._answers(f"{self.linesim_url}/sim/state"), "linesim")
        self.wait_for(lambda: self._answers(f"{self.frontdesk_url}/readyz"), "frontdesk")
        self.wait_for(lambda: DISPATCHER_READY in self.log_of("dispatcher"), "dispatcher")

    def get(self, path: str) -> Any:
        """Return the simulator's answer."""
        return self._asked("GET", path)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Any:
        """Return the simulator's answer."""
        return self._asked("POST", path, json=body or {})

    def documents(self, collection: str, query: Document) -> list[Document]:
        """The documents in natural order; raises DemoFailed if MongoDB cannot be read."""
        assert self._client is not None
        try:
            return list(self._client[DATABASE][collection].find(query))
        except PyMongoError as error:
            raise DemoFailed(f"reading {collection}: {error}") from error

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
                raise DemoFailed(self._with_log(f"no result within {seconds:.0f} s", concerned))
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

    def _environ(self) -> dict[str, str]:
        """The demo's own settings without the operator's, whose token must not be used here."""
        others = {
            name: value
            for name, value in os.environ.items()
            if name.lower() not in Settings.model_fields and name not in SOURCES
        }
        return others | {
            "LINE_CHANNEL_SECRET": secrets.token_hex(16),
            "LINE_CHANNEL_ACCESS_TOKEN": secrets.token_urlsafe(48),
            "LINE_API_BASE": self.linesim_url,
            "LINE_API_DATA_BASE": self.linesim_url,
            "MONGODB_URI": self.mongod.uri,
            "MONGODB_DATABASE": DATABASE,
            "BOT": self._bot,
            "SIM_CLOCK": f"{self.linesim_url}/sim/clock",
            "FRONTDESK_PORT": self.frontdesk_url.rpartition(":")[2],
            "SPOOL_PATH": str(self.folder / "spool.db"),
        }

    def _start(self, name: str, arguments: list[str], environ: Mapping[str, str]) -> None:
        with self._log_path(name).open("wb") as log:
            self._processes[name] = children.start(
                children.of_module(name, *arguments),
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _look_after_processes(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise DemoFailed(self._with_log(f"{name} ended by itself", name))

    def _answers(self, url: str) -> bool:
        try:
            return self._http.get(url, timeout=PROBE_SECONDS).ok
        except requests.RequestException:
            return False

    def _asked(self, method: str, path: str, **options: Any) -> Any:
        try:
            answer = self._http.request(
                method, self.linesim_url + path, timeout=REQUEST_SECONDS, **options
            )
            answer.raise_for_status()
        except requests.RequestException as error:
            raise DemoFailed(self._with_log(f"{method} {path}: {error}", "linesim")) from error
        return answer.json()

    def _with_log(self, what: str, name: str) -> str:
        lines = self.log_of(name).splitlines()[-15:]
        return "\n".join([what, f"the end of the log of {name}:", *(f"  {line}" for line in lines)])

    def _log_path(self, name: str) -> Path:
        return self.folder / f"{name}.log"
