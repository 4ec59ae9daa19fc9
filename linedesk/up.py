"""`linedesk up`: every process of a small box under one supervisor, with a mongod if asked for."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import IO

from linedesk.embedded import STOP_SECONDS, EmbeddedMongod, free_port, state_dir
from linedesk.errors import DataInUse
from linedesk.settings import EMBEDDED, Settings, require
from linedesk.supervisor import Program, Signals, Supervisor, signals_on
from linedesk.systemd import service_from
from recvq.collections import create_collections
from recvq.connect import connect
from recvq.views import ensure_views

FRONTDESK_STOP_SECONDS = 10.0
SCHEDULER_STOP_SECONDS = 25.0
# Beyond its drain the dispatcher joins threads, saves its progress and gives back the lease.
DISPATCHER_MARGIN_SECONDS = 15.0


def run_all(settings: Settings, *, config_path: Path | None, verbose: bool) -> int:
    """Run all processes until SIGTERM or SIGINT; returns the exit code.

    The dispatcher stops last, so that nothing new comes in while it drains.
    """
    require(settings, "line_channel_secret", "line_channel_access_token")
    signals, service = Signals(), service_from(os.environ)
    with signals_on(signals):
        programs = room_programs(settings, config_path=config_path, verbose=verbose)
        # So that what a bot prints is seen at once.
        environ = {**os.environ, "PYTHONUNBUFFERED": "1"}
        if settings.mongodb_uri == EMBEDDED:
            mongod = KeptMongod(state_dir())
            mongod.prepare(settings.mongodb_database)
            programs.append(mongod.program())
            environ["MONGODB_URI"] = mongod.uri
            if "spool_path" not in settings.model_fields_set:
                # Beside the data, since a small box has no folder of the service's own.
                environ["SPOOL_PATH"] = str(state_dir().parent / "spool.db")
        return Supervisor(programs, environ, signals, service).run()


def room_programs(settings: Settings, *, config_path: Path | None, verbose: bool) -> list[Program]:
    """The rooms that run, in the order in which they stop."""
    options = ["--config", str(config_path)] if config_path else []
    options += ["--verbose"] if verbose else []

    def program(room: str, stop_seconds: float) -> Program:
        return Program(room, [sys.executable, "-m", room, *options], stop_seconds)

    programs = [
        program("frontdesk", FRONTDESK_STOP_SECONDS),
        program("dispatcher", settings.drain_seconds + DISPATCHER_MARGIN_SECONDS),
    ]
    if settings.scheduler == "process":
        programs.insert(1, program("scheduler", SCHEDULER_STOP_SECONDS))
    return programs


class KeptMongod(EmbeddedMongod):
    """An embedded mongod whose data stays, and which the supervisor keeps running."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, port=_kept_port(data_dir))
        self._lock = _locked(data_dir)

    def prepare(self, database: str) -> None:
        """Start it once, to do what `linedesk init` does."""
        with self, connect(self.uri, app_name="linedesk-init") as client:
            create_collections(client[database])
            ensure_views(client[database])

    def program(self) -> Program:
        """What the supervisor runs."""
        return Program("mongod", self.command(), STOP_SECONDS, quiet=True)


def _locked(data_dir: Path) -> IO[str]:
    """The data folder's lock, held as long as this process lives. Raises DataInUse."""
    lock = (data_dir / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise DataInUse(f"the data in {data_dir} is in use by another `linedesk up`") from None
    return lock


def _kept_port(data_dir: Path) -> int:
    """Always the same port: the replica set's configuration in the kept data names it."""
    kept = data_dir / "port"
    if not kept.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{free_port()}\n", encoding="ascii")
    return int(kept.read_text(encoding="ascii"))
