"""`linedesk worker` as systemd runs it: readiness, a stop, and its exit codes."""

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linedesk.runtime.exit_codes import Exit
from linesim import Sim
from tests.acceptance.test_service import Said
from tests.fork_server import Child, Written, nursery
from tests.jobworker.remote.remote_room import amqp, are_working
from tests.jobworker.worker_harness import Room
from tests.listener import Manager
from tests.rabbitmq import RabbitMQ
from tests.rows import Db
from tests.waiting import eventually

BOT = "tests.jobworker.remote.waiting_bot:bot"
Start = Callable[..., Child]


@pytest.fixture
def said(tmp_path: Path) -> Iterator[Said]:
    manager = Manager(str(tmp_path / "notify"))
    yield Said(manager)
    manager.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts workers with a watchdog of 2 s; their output is shown if a test fails."""
    children: list[Child] = []
    with Written() as written:

        def make(url: str | None, **environ: str) -> Child:
            given = os.environ | {"BOT": BOT, "WORKER_THREADS": "3", **environ}
            given |= {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}
            given |= {"AMQP_URL": url} if url else {}
            child = nursery.start(
                "linedesk", "worker", env=given, stdout=written.fd, stderr=written.fd
            )
            children.append(child)
            return child

        yield make
        for child in children:
            child.kill()
            child.wait(10)
        sys.stdout.write(written.text)


def test_a_worker_is_ready_and_ends_what_it_has_before_it_stops(
    shared_rabbitmq: RabbitMQ, database: Db, sim: Sim, said: Said, start: Start, tmp_path: Path
) -> None:
    user, may_answer = sim.add_user("花子"), tmp_path / "may.answer"
    worker = start(shared_rabbitmq.url, BOT_SETTINGS=f"answer_when={may_answer}")
    eventually(lambda: said.has("READY=1"), seconds=30)
    with Room(database, sim, None, connect=amqp(shared_rabbitmq, "test")) as room:
        eventually(lambda: are_working(room, 1), seconds=15)
        [row] = room.desk.workers()
        assert (row["threads"], row["name"].endswith(f"/{worker.pid}")) == (3, True)
        room.says(user, "やあ")
        eventually(may_answer.with_suffix(".begun").exists, seconds=15)
        eventually(lambda: said.has("WATCHDOG=1") and "1 of 3 threads at work" in said.status())
        worker.terminate()
        eventually(lambda: said.has("STOPPING=1"), seconds=15)
        assert worker.poll() is None
        may_answer.touch()
        assert worker.wait(30) == Exit.OK
        room.until_quiet()
        eventually(lambda: not room.desk.workers())
    assert [bubble.text for bubble in sim.answers(user)] == ["はい"]


def test_a_worker_without_rabbitmq_is_ready_and_says_what_it_waits_for(
    said: Said, start: Start
) -> None:
    worker = start("amqp://guest:s3cret-word@127.0.0.1:1/")
    eventually(lambda: said.has("READY=1"), seconds=30)
    eventually(lambda: said.has("WATCHDOG=1") and "broker lost" in said.status(), seconds=15)
    assert "s3cret-word" not in str(said.messages)
    worker.terminate()
    assert worker.wait(30) == Exit.OK


@pytest.mark.parametrize(
    ("url", "environ"),
    [
        (None, {}),
        ("http://127.0.0.1/", {}),
        ("amqp://127.0.0.1:1/", {"BOT": "tests.jobworker.remote.waiting_bot:none"}),
        ("amqp://127.0.0.1:1/", {"WORKER_THREADS": "0"}),
    ],
)
def test_an_error_that_no_restart_fixes_ends_with_config(
    start: Start, url: str | None, environ: dict[str, str]
) -> None:
    assert start(url, **environ).wait(30) == Exit.CONFIG
