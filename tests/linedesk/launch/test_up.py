"""`linedesk up` with the real processes, on the tests' MongoDB and on its own mongod."""

import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

import linesim
from linedesk.bots import parrot
from linedesk.bots.load import MOVED, load_bot
from linedesk.launch.up import room_programs
from linedesk.launch.worker import END_SECONDS
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.errors import DataInUse, SettingsError
from linedesk.settings.settings import load_settings
from linedesk.setup import database as opening
from linedesk.setup.database import open_database, with_server
from linedesk.setup.init import init_database
from linedesk.setup.kept_mongod import KeptMongod, beside_up
from linedesk.setup.private_mongod import free_port
from linedesk.store.client import connect
from linedesk.store.documents import SCHEMA
from linedesk.store.errors import StoreUnavailable
from linesim import Sim
from tests.conftest import need_mongod
from tests.linedesk.processes import child_of, children_of, is_alive
from tests.rows import Db
from tests.waiting import Ended, eventually, ran

ROOT = Path(__file__).parents[3]
DISPATCHER, MONGOD = "-m dispatcher", "--dbpath"
SECRETS = {
    "LINE_CHANNEL_SECRET": "8c570fa6dd201bb328f1c1eac23a96d8",
    "LINE_CHANNEL_ACCESS_TOKEN": "token-of-the-channel",
}


class Up:
    """A running `linedesk up` with its log."""

    def __init__(
        self, log: Path, environ: dict[str, str], *options: str, folder: Path = ROOT
    ) -> None:
        self._log = log
        self.url = f"http://127.0.0.1:{environ['FRONTDESK_PORT']}"
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "linedesk", "up", *options],
                cwd=folder,
                env=os.environ | SECRETS | environ,
                stderr=stderr,
                start_new_session=True,
            )

    def child(self, words: str) -> int:
        return eventually(lambda: child_of(self.process.pid, words), seconds=40) or 0

    def wait_until_ready(self) -> None:
        eventually(self._is_ready, seconds=40)
        eventually(lambda: "INFO dispatcher ready" in self.log(), seconds=40)

    def log(self) -> str:
        return self._log.read_text("utf-8")

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(60)

    def _is_ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/readyz", timeout=5).ok
        except requests.ConnectionError:
            return False


def beside_of(environ: dict[str, str], *arguments: str) -> Ended:
    """Another command in a separate process."""
    return ran([sys.executable, "-m", "linedesk", *arguments], env=os.environ | environ)


Start = Callable[..., Up]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Up] = []

    def start(environ: dict[str, str], *options: str, folder: Path = ROOT) -> Up:
        port = {"FRONTDESK_PORT": str(free_port()), "LINE_API_BASE": "http://127.0.0.1:1"}
        log = tmp_path / f"up-{len(made)}.log"
        made.append(Up(log, port | environ, *options, folder=folder))
        return made[-1]

    yield start
    for up in made:
        left = children_of(up.process.pid)
        up.process.kill()
        up.process.wait()
        eventually(lambda left=left: not any(is_alive(pid) for pid in left), seconds=40)


@pytest.fixture
def on_the_tests_mongodb(mongo_uri: str, database: Db) -> dict[str, str]:
    return {"MONGODB_URI": mongo_uri, "MONGODB_DATABASE": database.name}


def test_front_desk_and_dispatcher_run_are_restarted_and_stop_in_order(
    start: Start, on_the_tests_mongodb: dict[str, str], tmp_path: Path, database: Db
) -> None:
    config = tmp_path / "line.toml"
    config.write_text("LOG_LEVEL = 'warning'\nDISPATCHER_FEED = 'oplog'\n")
    systemd = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    systemd.bind(str(tmp_path / "notify"))
    notify = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    up = start(on_the_tests_mongodb | notify, "--config", str(config), "-v")
    up.wait_until_ready()
    assert "ready feed=oplog" in up.log()
    # So that advice names this command, and not systemd.
    rows = {"startedBy": "up", "role": {"$in": ["frontdesk", "dispatcher"]}}
    eventually(lambda: database.status.count_documents(rows) == 2)
    first = up.child(DISPATCHER)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: up.log().count("INFO dispatcher ready") == 2, seconds=40)
    assert up.child(DISPATCHER) != first
    assert "restarting process=dispatcher exit=-9" in up.log()
    pids = list(children_of(up.process.pid))
    assert len(pids) == 2
    assert up.stop() == 0
    assert not any(is_alive(pid) for pid in pids)
    last = up.log()
    assert last.rindex("frontdesk") < last.rindex("INFO dispatcher stopping")
    with systemd, pytest.raises(BlockingIOError):
        systemd.recv(1)  # No child spoke in the name of `up`.


EDITED = """
from linebot.v3.webhooks import MessageEvent

from linedesk import Bot, Talk

bot = Bot()


@bot.add(MessageEvent)
def answer(event: MessageEvent, talk: Talk) -> None:
    talk.reply(f"{words} {event.message.text}")
"""


def test_an_edit_replaces_the_bot_and_loses_no_message(
    start: Start, on_the_tests_mongodb: dict[str, str], tmp_path: Path
) -> None:
    with linesim.running() as sim:
        chat = Chat(sim, tmp_path / "shop.py")
        chat.saves(words="'one'")
        environ = on_the_tests_mongodb | {
            "BOT": "shop:bot",
            "LINE_CHANNEL_SECRET": sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
            "LINE_API_BASE": sim.url,
            "LINE_ACCESS_INTERVAL_MS": "0",
        }
        up = start(environ, "--reload", folder=tmp_path)
        sim.webhook_url = f"{up.url}/callback"
        up.wait_until_ready()
        chat.goes_on_until(lambda: chat.answers_begin_with("one"))
        chat.saves(words="'two'")
        chat.goes_on_until(lambda: chat.answers_begin_with("two"))
        # What cannot be imported replaces nothing.
        chat.saves(words="'three'", end="raise ValueError('no price list')\n")
        chat.goes_on_until(lambda: "not reloaded, the bot runs as before the edit" in up.log())
        assert f"ValueError: no price list at {chat.file}:12\n" in up.log()
        before = len(chat.answers())
        chat.goes_on_until(lambda: len(chat.answers()) > before + 5)
        assert not chat.answers_begin_with("three")
        # A message whose handler fails gets the answer of its repair, too.
        chat.saves(words="1 / 0")
        chat.goes_on_until(lambda: "  | ZeroDivisionError: division by zero" in up.log())
        assert f'  |   File "{chat.file}", line 11, in answer' in up.log()
        chat.saves(words="'four'")
        chat.goes_on_until(lambda: chat.answers_begin_with("four"))
        eventually(chat.is_answered)
        assert [one.split()[1] for one in chat.answers()] == [str(n) for n in range(chat.sent)]
        left = [one for pid in children_of(up.process.pid) for one in (pid, *children_of(pid))]
        assert up.stop(signal.SIGINT) == 0
        assert not any(is_alive(pid) for pid in left)


class Chat:
    """A user who writes on while the bot's file is edited."""

    def __init__(self, sim: Sim, file: Path) -> None:
        self._sim, self.file, self.sent = sim, file, 0
        self._user = sim.add_user("花子")

    def saves(self, *, words: str, end: str = "") -> None:
        self.file.write_text(EDITED.replace("words", words) + end)

    def answers(self) -> list[str]:
        return [one.text for one in self._sim.answers(self._user.user_id)]

    def answers_begin_with(self, words: str) -> bool:
        return any(one.startswith(f"{words} ") for one in self.answers())

    def is_answered(self) -> bool:
        return len(self.answers()) == self.sent

    def goes_on_until(self, seen: Callable[[], bool]) -> None:
        """Some messages are always on their way."""

        def look() -> bool:
            if self.sent < len(self.answers()) + 5:
                said = self._sim.deliver(self._sim.drafts.text(self._user, str(self.sent)))
                assert said.status == 200
                self.sent += 1
            return seen()

        eventually(look, seconds=40)


def test_a_worker_runs_beside_and_stops_last_where_handlers_run_in_workers() -> None:
    given = {"dispatcher_workers": "amqp", "amqp_url": "amqp://127.0.0.1/"}
    settings = load_settings({name.upper(): value for name, value in given.items()})
    programs = room_programs(settings, config_path=Path("line.toml"), verbose=False)
    assert [one.name for one in programs] == ["frontdesk", "dispatcher", "worker"]
    assert programs[-1].command[-5:] == ["-m", "linedesk", "worker", "--config", "line.toml"]
    assert programs[-1].stop_seconds > settings.drain_seconds + END_SECONDS


@pytest.mark.long
def test_embedded_prepares_a_mongod_keeps_it_running_and_keeps_its_data(
    start: Start, tmp_path: Path
) -> None:
    need_mongod()
    environ = {"MONGODB_URI": "embedded", "XDG_STATE_HOME": str(tmp_path)}

    first = start(environ)
    first.wait_until_ready()
    for own in (environ, {"XDG_STATE_HOME": str(tmp_path)}):
        beside = beside_of(own, "status", "--json")
        assert json.loads(beside.stdout)["processes"], beside.stderr
    assert eventually(lambda: "Page:       run `linedesk console`" in first.log())
    assert f"Webhook:    {first.url}/callback\n" in first.log()
    assert "Simulator:  http://127.0.0.1:1/\n" in first.log()
    assert (tmp_path / "linedesk" / "spool.db").exists()
    port = int((tmp_path / "linedesk" / "mongod" / "port").read_text())
    with connect(f"mongodb://127.0.0.1:{port}/?replicaSet=rs0", app_name="tests") as client:
        client.line_bot.progress.insert_one({"_id": "kept"})
    mongod = first.child(MONGOD)
    os.kill(mongod, signal.SIGKILL)
    eventually(lambda: "restarting process=mongod" in first.log())
    assert eventually(lambda: child_of(first.process.pid, MONGOD), seconds=40) != mongod
    first.wait_until_ready()
    assert first.stop() == 0

    second = start(environ)
    second.wait_until_ready()
    with connect(f"mongodb://127.0.0.1:{port}/?replicaSet=rs0", app_name="tests") as client:
        assert client.line_bot.progress.find_one({"_id": "kept"})
        newer = {"$set": {"schema": SCHEMA + 1}}
        client.line_bot.progress.update_one({"_id": "dispatcher"}, newer)
    # Its mongod may end a moment later. The next one waits for it.
    assert second.stop(signal.SIGINT) == 0

    # Before it changes anything, and without a restart that would change nothing.
    third = start(environ)
    assert third.process.wait(60) == Exit.SCHEMA
    assert "was written by a newer release" in third.log()
    assert "Webhook:" not in third.log()


# Commands beside an `up` with its own mongod. tests/docs/test_readme.py has the real ones.

OF_UP = "mongodb://127.0.0.1:27999/?replicaSet=rs0"


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KeptMongod]:
    """The lock of an `up` that wrote its settings."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = KeptMongod(tmp_path / "linedesk" / "mongod")
    settings = load_settings(
        SECRETS | {"MONGODB_URI": OF_UP, "SPOOL_PATH": "/of/up", "BOT_SETTINGS": "code=planted"}
    )
    kept.note(settings.model_copy(update={"mongodb_database": "of_up"}))
    yield kept
    kept.lock.close()


def test_where_no_server_is_set_a_command_takes_what_up_runs_with(kept: KeptMongod) -> None:
    given = load_settings({"MONGODB_URI": "mongodb://elsewhere/?replicaSet=rs0"})
    assert beside_up(given) is given
    assert beside_up(load_settings({"MONGODB_URI": "embedded"})).mongodb_uri == OF_UP
    found = beside_up(load_settings({}))
    assert found.mongodb_uri == OF_UP
    assert (found.mongodb_database, found.spool_path) == ("of_up", Path("/of/up"))
    assert (found.line_channel_secret, found.bot_settings) == ((), {})
    own = beside_up(load_settings({"MONGODB_DATABASE": "own"}))
    assert (own.mongodb_database, own.mongodb_uri) == ("own", OF_UP)


def test_nothing_secret_is_written_down(kept: KeptMongod, tmp_path: Path) -> None:
    text = (tmp_path / "linedesk" / "mongod" / "lock").read_text()
    assert "/of/up" in text
    assert not any(secret in text for secret in (*SECRETS.values(), "planted"))


def test_without_an_up_settings_stay_as_they_are(kept: KeptMongod) -> None:
    kept.lock.close()
    given = load_settings({})
    assert beside_up(given) is given


def test_a_command_says_at_once_that_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def refuse(*_: object) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(opening.socket, "create_connection", refuse)
    with (
        pytest.raises(StoreUnavailable, match=r"nothing listens at 127.0.0.1:27017, and no `lined"),
        open_database(load_settings({}), app_name="tests"),
    ):
        pass
    with pytest.raises(StoreUnavailable, match=r"nothing listens at 127.0.0.1:27017"):
        init_database(with_server(load_settings({})), capped_mb=1)


def test_an_up_starts_although_a_command_looks_at_its_lock(
    kept: KeptMongod, tmp_path: Path
) -> None:
    folder = tmp_path / "linedesk" / "mongod"
    with pytest.raises(DataInUse):
        KeptMongod(folder)
    kept.lock.close()
    with (folder / "lock").open() as looking:
        fcntl.flock(looking, fcntl.LOCK_SH)
        done = threading.Timer(0.1, lambda: fcntl.flock(looking, fcntl.LOCK_UN))
        done.start()
        KeptMongod(folder).lock.close()
        done.join()
        assert looking.read() == "", "what the one before noted"


# Files of a bot's folder that have the names of our packages.


def test_a_command_by_python_m_imports_ours(tmp_path: Path) -> None:
    for name in ("frontdesk", "dispatcher", "jobworker"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('imported in place of ours')\n")
    command = [sys.executable, "-m", "linedesk", "status", "--help"]
    ended = ran(command, cwd=tmp_path)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_bot_with_a_used_name_has_to_be_renamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "dispatcher.py").write_text("from linedesk import Bot\n\nbot = Bot()\n")
    with pytest.raises(SettingsError, match=r"dispatcher/__init__.py hides .*/dispatcher.py"):
        load_bot("dispatcher:bot")


def test_the_old_name_of_a_shipped_bot_works_unless_an_authors_own_module_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("bots", *MOVED):
        # Set first, so that the test's imports are dropped at its end.
        monkeypatch.setitem(sys.modules, name, None)  # type: ignore[arg-type]
    assert load_bot("bots.parrot:bot") is parrot.bot
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path), *sys.path])
    for name in ("bots", *MOVED):
        monkeypatch.delitem(sys.modules, name, raising=False)
    own = tmp_path / "bots" / "parrot.py"
    own.parent.mkdir()
    own.with_name("__init__.py").touch()
    own.write_text("from linedesk import Bot\n\nbot = Bot()\n")
    load_bot("bots.parrot:bot")
    assert sys.modules["bots.parrot"].__file__ == str(own)
    assert len(caplog.records) == 1
