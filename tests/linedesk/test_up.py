"""`linedesk up` with the real processes, on the tests' MongoDB and on a mongod of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from pymongo.database import Database

from linedesk.embedded import MongodNotFound, find_mongod, free_port
from linedesk.settings import load_settings
from linedesk.up import room_programs
from recvq.connect import connect
from tests.conftest import missing
from tests.linedesk.processes import child_of, children_of, is_alive
from tests.waiting import eventually

ROOT = Path(__file__).parents[2]
DISPATCHER, MONGOD = "-m dispatcher", "--dbpath"
SECRETS = {
    "LINE_CHANNEL_SECRET": "8c570fa6dd201bb328f1c1eac23a96d8",
    "LINE_CHANNEL_ACCESS_TOKEN": "token-of-the-channel",
}


class Up:
    """A running `linedesk up` with its log."""

    def __init__(self, log: Path, environ: dict[str, str], *options: str) -> None:
        self._log = log
        self._url = f"http://127.0.0.1:{environ['FRONTDESK_PORT']}"
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "linedesk", "up", *options],
                cwd=ROOT,
                env=os.environ | SECRETS | environ,
                stderr=stderr,
                start_new_session=True,
            )

    def child(self, words: str) -> int:
        return eventually(lambda: child_of(self.process.pid, words), seconds=40) or 0

    def wait_until_ready(self) -> None:
        eventually(self._is_ready, seconds=40)
        eventually(lambda: "INFO dispatcher.process ready" in self.log(), seconds=40)

    def log(self) -> str:
        return self._log.read_text("utf-8")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def _is_ready(self) -> bool:
        try:
            return requests.get(f"{self._url}/readyz", timeout=5).ok
        except requests.ConnectionError:
            return False


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Up] = []

    def start(environ: dict[str, str], *options: str) -> Up:
        port = {"FRONTDESK_PORT": str(free_port()), "LINE_API_BASE": "http://127.0.0.1:1"}
        made.append(Up(tmp_path / f"up-{len(made)}.log", port | environ, *options))
        return made[-1]

    yield start
    for up in made:
        left = children_of(up.process.pid)
        up.process.kill()
        up.process.wait()
        eventually(lambda left=left: not any(is_alive(pid) for pid in left), seconds=40)


@pytest.fixture
def on_the_tests_mongodb(mongo_uri: str, database: Database[Any]) -> dict[str, str]:
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name}


def test_front_desk_and_dispatcher_run_are_restarted_and_stop_in_order(
    start: Start, on_the_tests_mongodb: dict[str, str], tmp_path: Path
) -> None:
    config = tmp_path / "line.toml"
    config.write_text("LOG_LEVEL = 'warning'\nDISPATCHER_FEED = 'oplog'\n")
    up = start(on_the_tests_mongodb, "--config", str(config), "-v")
    up.wait_until_ready()
    assert "ready feed=oplog" in up.log()
    first = up.child(DISPATCHER)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: up.log().count("INFO dispatcher.process ready") == 2, seconds=40)
    assert up.child(DISPATCHER) != first
    assert "restarting room=dispatcher exit=-9" in up.log()
    pids = list(children_of(up.process.pid))
    assert len(pids) == 2
    assert up.stop() == 0
    assert not any(is_alive(pid) for pid in pids)
    last = up.log()
    assert last.rindex("frontdesk") < last.rindex("INFO dispatcher.ending stopping")


@pytest.mark.parametrize(
    ("scheduler", "rooms"),
    [
        ("dispatcher", ["frontdesk", "dispatcher"]),
        ("process", ["frontdesk", "scheduler", "dispatcher"]),
    ],
)
def test_a_scheduler_runs_by_itself_only_where_it_is_asked_for(
    scheduler: str, rooms: list[str]
) -> None:
    settings = load_settings({"SCHEDULER": scheduler})
    programs = room_programs(settings, config_path=None, verbose=False)
    assert [program.name for program in programs] == rooms


def test_a_setting_that_only_a_child_can_refuse_ends_everything_with_config(
    start: Start, on_the_tests_mongodb: dict[str, str]
) -> None:
    up = start(on_the_tests_mongodb | {"BOT": "no_such_module:bot"})
    assert up.process.wait(60) == 78
    assert "BOT names the module 'no_such_module'" in up.log()


def test_embedded_prepares_a_mongod_keeps_it_running_and_keeps_its_data(
    start: Start, tmp_path: Path
) -> None:
    try:
        find_mongod()
    except MongodNotFound as error:
        missing(str(error))
    environ = {"MONGODB_URI": "embedded", "XDG_STATE_HOME": str(tmp_path)}

    first = start(environ)
    first.wait_until_ready()
    assert (tmp_path / "linedesk" / "spool.db").exists()
    port = int((tmp_path / "linedesk" / "mongod" / "port").read_text())
    with connect(f"mongodb://127.0.0.1:{port}/?replicaSet=rs0", app_name="tests") as client:
        client.line_bot.progress.insert_one({"_id": "kept"})
    mongod = first.child(MONGOD)
    os.kill(mongod, signal.SIGKILL)
    eventually(lambda: "restarting room=mongod" in first.log())
    assert eventually(lambda: child_of(first.process.pid, MONGOD), seconds=40) != mongod
    first.wait_until_ready()
    assert first.stop() == 0

    second = start(environ)
    second.wait_until_ready()
    with connect(f"mongodb://127.0.0.1:{port}/?replicaSet=rs0", app_name="tests") as client:
        assert client.line_bot.progress.find_one({"_id": "kept"})
    assert second.stop() == 0
