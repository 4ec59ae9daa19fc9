"""The bots of docs/examples at work: `linedesk worker --command` as a process, over RabbitMQ."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from linedesk.runtime.exit_codes import Exit
from linedesk.store.timers import make_timer_document
from linesim import Sim
from tests.fork_server import Child, Written, nursery
from tests.jobworker.remote.remote_room import amqp, are_working
from tests.jobworker.remote.test_program import ODD
from tests.jobworker.worker_harness import Room, texts
from tests.linedesk.processes import children_of, is_alive
from tests.rabbitmq import RabbitMQ
from tests.rows import Db
from tests.waiting import eventually


class Worker:
    """`linedesk worker --command`."""

    def __init__(self, node: RabbitMQ, command: str, **more: str) -> None:
        names = ("PATH", "HOME", "LANG", "TMPDIR")
        environ = {name: os.environ[name] for name in names if name in os.environ}
        environ |= {"AMQP_URL": node.url, "WORKER_THREADS": "1"} | more
        self.written = Written()
        self.process: Child = nursery.start(
            *("linedesk", "worker", "--command", command),
            env=environ,
            stdout=self.written.fd,
            stderr=self.written.fd,
        )

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.terminate()
        self.process.wait(30)
        with self.written:
            pass


@pytest.fixture
def room(shared_rabbitmq: RabbitMQ, database: Db, sim: Sim) -> Iterator[Room]:
    with Room(database, sim, None, connect=amqp(shared_rabbitmq, "test"), tries=3) as room:
        yield room


@contextmanager
def at_work(room: Room, node: RabbitMQ, command: str, **more: str) -> Iterator[Worker]:
    with Worker(node, command, **more) as worker:
        eventually(lambda: are_working(room, 1) or worker.process.poll() is not None, seconds=30)
        assert worker.process.poll() is None, worker.written.text
        yield worker


def ring(room: Room, name: str) -> dict[str, Any]:
    """The conversation's timer whose name begins so is due; returns its row."""
    rows = [row for row in room.database.schedule.find() if row["name"].startswith(name)]
    (row,) = rows
    room.put_document(make_timer_document(row, accept_time=datetime.now(UTC)))
    room.until_quiet()
    return row


def test_a_bot_of_another_language_has_what_a_python_one_has(
    room: Room, shared_rabbitmq: RabbitMQ, sim: Sim, command: str
) -> None:
    user, other = sim.add_user("花子"), sim.add_user("太郎")
    with at_work(room, shared_rabbitmq, command):
        began = datetime.now(UTC)
        for words in ("やあ\u2028\u2029😀", "名前", "花子", "やあ", "混雑", "180"):
            room.says(user, words)
        room.until_quiet()
        assert texts(sim, user) == [
            "お客さん、1回目の「やあ\u2028\u2029😀」ですね。",
            "お名前は？",
            "花子さん、はじめまして。",
            "花子さん、2回目の「やあ」ですね。",
            "お待たせしました",
            "180秒後にお知らせします",
        ]
        row = ring(room, "ring:")
        assert 175 < (row["runAt"] - began).total_seconds() < 240
        assert texts(sim, user)[-1] == "180秒経ちました"
        assert room.letters() == []

        room.says(other, "名前")
        room.until_quiet()
        assert room.conversation(other.user_id)["state"] == "name"
        (row,) = room.database.schedule.find({"data.state": "name", "key": other.user_id})
        room.put_document(make_timer_document(row, accept_time=datetime.now(UTC)))
        room.until_quiet()
        assert texts(sim, other) == ["お名前は？", "お名前はまた今度。"]
        assert room.conversation(other.user_id).get("state") is None

        for _ in range(3):
            room.send(sim.drafts.medium("image", other))
        room.until_quiet()
        assert texts(sim, other)[-1] == "写真3枚ですね。"


def test_sigterm_drains_and_leaves_no_program_behind(
    room: Room, shared_rabbitmq: RabbitMQ, sim: Sim, tmp_path: Path
) -> None:
    user, begun = sim.add_user("花子"), tmp_path / "begun"
    with at_work(room, shared_rabbitmq, ODD) as worker:
        programs = children_of(worker.process.pid)
        assert programs
        room.says(user, f"slow {begun}")
        eventually(begun.exists)
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(30) == Exit.OK, worker.written.text
        room.until_quiet()
        assert texts(sim, user) == [f"slow {begun}"]
        assert not any(is_alive(pid) for pid in programs)


@pytest.mark.parametrize(
    ("command", "code"),
    [("/nowhere/bot", Exit.CONFIG), (f"{ODD} contract", Exit.CONFIG), (f"{ODD} exit", Exit.STUCK)],
)
def test_a_program_that_does_not_begin_is_a_wrong_setting_or_started_again(
    command: str, code: Exit
) -> None:
    environ = {"PATH": os.environ["PATH"], "AMQP_URL": "amqp://127.0.0.1:1/"}
    done = nursery.run("linedesk", "worker", "--command", command, env=environ)
    assert done.returncode == code


def test_a_program_gets_settings_and_secrets_of_the_bot_and_no_others(
    room: Room, shared_rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    seen, program = tmp_path / "seen", tmp_path / "program.py"
    program.write_text(
        "import json, os, pathlib, sys\n"
        "told = json.loads(sys.stdin.readline())\n"
        f"seen = pathlib.Path({str(seen)!r})\n"
        "seen.write_text(json.dumps([told['settings'], told['secrets'], dict(os.environ)]))\n"
        "print(json.dumps({'type': 'hello', 'contract': 1}), flush=True)\n"
        "sys.stdin.read()\n"
    )
    command = shlex.join([sys.executable, "-I", str(program)])
    more = {"BOT_SETTINGS": "GREETING=やあ", "BOT_SECRETS": "KEY=secret-key"}
    more |= {
        "LINE_CHANNEL_SECRET": "0" * 32,
        "LINE_CHANNEL_ACCESS_TOKEN": "a-token",
        "MONGODB_URI": "mongodb://user:word@127.0.0.1:1/",
        "CONSOLE_PASSWORD": "a-long-password",
        "CONSOLE_TOKEN": "another-token-of-the-console",
        "CREDENTIALS_DIRECTORY": str(tmp_path),
    }
    with at_work(room, shared_rabbitmq, command, **more):
        told = seen.read_text()
    assert '[{"GREETING": "\\u3084\\u3042"}, {"KEY": "secret-key"}, {' in told
    for name in ("AMQP_URL", *more.keys() - {"BOT_SETTINGS"}):
        assert name not in told
    assert "LANG" in told or "PATH" in told
