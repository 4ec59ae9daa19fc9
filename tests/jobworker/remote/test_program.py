"""Programs that end, hang, or write invalid lines: they harm no other job.

The leader and the worker are real, and so is the RabbitMQ between them.
"""

import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from jobworker.remote.program import ProgramBot
from jobworker.remote.worker import WorkerProcess
from linedesk.operate.dead_letters import explained
from linesim import Sim
from tests.jobworker.remote.remote_room import amqp, are_working, leave
from tests.jobworker.worker_harness import Room, texts
from tests.linedesk.processes import is_alive
from tests.rabbitmq import RabbitMQ
from tests.rows import Db
from tests.waiting import eventually

ODD = shlex.join([sys.executable, "-I", str(Path(__file__).with_name("odd_program.py"))])


def a_program(how: str = "", **options: Any) -> ProgramBot:
    given = {"settings": {}, "secrets": {}, "environ": {}} | options
    return ProgramBot(f"{ODD} {how}", **given)


@contextmanager
def a_worker(bot: ProgramBot, node: RabbitMQ) -> Iterator[WorkerProcess]:
    """A worker with one thread, so that one program gets everybody's jobs."""
    worker = WorkerProcess(bot, amqp(node, "test"), threads=1, name="box/1", release="1")
    worker.start()
    try:
        yield worker
    finally:
        leave(worker)


@pytest.fixture
def room(shared_rabbitmq: RabbitMQ, database: Db, sim: Sim) -> Iterator[Callable[..., Room]]:
    with ExitStack() as stack:

        def make(bot: ProgramBot | None = None, **options: Any) -> Room:
            connect = amqp(shared_rabbitmq, "test")
            desk = stack.enter_context(Room(database, sim, None, connect=connect, **options))
            stack.enter_context(a_worker(bot or a_program(), shared_rabbitmq))
            eventually(lambda: are_working(desk, 1), seconds=15)
            return desk

        yield make


@pytest.mark.parametrize(
    ("word", "cause", "attempts"),
    [
        ("exit", "program ended with exit code 3", 2),
        ("garbage", "program wrote a line of 11 bytes that is no JSON object", 2),
        ("large", "program wrote a line of more than 16777216 bytes", 2),
        ("deep", "program wrote a line of", 2),
        ("earlier", "program answered something else than a decision of this job", 2),
        ("half", "BotError", 2),
        ("nested 190", "BotError: cannot be stored", 2),
        ("action", "BotError: invalid decision", 2),
    ],
)
def test_an_invalid_line_of_a_program_is_a_failed_try_of_that_job_only(
    room: Callable[..., Room], sim: Sim, word: str, cause: str, attempts: int
) -> None:
    alice, bob = sim.add_user("花子"), sim.add_user("太郎")
    desk = room(tries=2)
    desk.says(alice, "a secret")
    desk.until_quiet()
    odd = desk.says(bob, word)
    desk.says(bob, "b")
    desk.until_quiet()
    desk.says(alice, "a")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert letter["_id"] == odd["eventId"]
    assert explained(letter).startswith(f"handler: {cause}")
    assert letter["attempts"] == attempts
    assert texts(sim, bob) == ["b"]
    assert texts(sim, alice) == ["a secret", "a"]
    assert desk.conversation(bob.user_id)["data"] == {"seen": "b"}


def test_a_program_that_hangs_is_killed_with_what_it_started(
    room: Callable[..., Room], sim: Sim, tmp_path: Path
) -> None:
    user, pids = sim.add_user("花子"), tmp_path / "pids"
    desk = room(a_program("short"), tries=1)
    desk.says(user, f"hang {pids}")
    desk.says(user, "b")
    desk.until_quiet()
    (letter,) = desk.letters()
    assert explained(letter) == "handler: did not return"
    assert texts(sim, user) == ["b"]
    for pid in map(int, pids.read_text().split()):
        eventually(lambda pid=pid: not is_alive(pid))


def test_a_program_that_starts_for_a_job_given_up_meanwhile_is_killed(
    room: Callable[..., Room], sim: Sim, tmp_path: Path
) -> None:
    user, started = sim.add_user("花子"), tmp_path / "started"
    desk = room(a_program(f"late:{started}"), tries=2)
    # The first one is killed for it; the next one is given up before it has said hello.
    desk.says(user, f"hang {tmp_path / 'pids'}")
    pid = int(eventually(started.read_text))
    desk.until_quiet()
    (letter,) = desk.letters()
    assert explained(letter) == "handler: did not return"
    eventually(lambda: not is_alive(pid))


@pytest.mark.parametrize("word", ["twice", "afterwards"])
def test_a_program_s_fault_between_jobs_costs_no_try(
    room: Callable[..., Room], sim: Sim, word: str, tmp_path: Path
) -> None:
    pid = tmp_path / "pid"
    alice, bob = sim.add_user("花子"), sim.add_user("太郎")
    desk = room(tries=1)
    desk.says(alice, f"{word} {pid}")
    desk.until_quiet()
    if word == "afterwards":
        eventually(lambda: not is_alive(int(pid.read_text())))
    desk.says(bob, "b")
    desk.until_quiet()
    assert texts(sim, alice) == [f"{word} {pid}"]
    assert texts(sim, bob) == ["b"]
    assert desk.letters() == []


def test_a_program_that_was_exchanged_costs_no_try_and_ends_the_worker(
    shared_rabbitmq: RabbitMQ, database: Db, sim: Sim
) -> None:
    user, connect = sim.add_user("花子"), amqp(shared_rabbitmq, "test")
    with Room(database, sim, None, connect=connect, tries=1) as desk:
        with a_worker(a_program("versions"), shared_rabbitmq) as worker:
            eventually(lambda: are_working(desk, 1), seconds=15)
            desk.says(user, "exit")
            eventually(lambda: len(desk.letters()) == 1)
            assert not worker.is_outdated
            desk.says(user, "b")
            eventually(lambda: worker.is_outdated)
        with a_worker(a_program(), shared_rabbitmq):
            desk.until_quiet()
        assert texts(sim, user) == ["b"]
