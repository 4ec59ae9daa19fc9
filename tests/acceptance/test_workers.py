"""A dispatcher and a worker as real processes over a real RabbitMQ, as an operator starts them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika
import pytest

from jobworker.remote.amqp import EXCHANGE
from jobworker.remote.values import to_line
from linedesk.operate.dead_letters import explained
from linedesk.runtime.exit_codes import Exit
from tests.acceptance.conftest import House
from tests.conftest import missing
from tests.fork_server import Child, Written, nursery
from tests.jobworker.remote.test_foreign_messages import BEAT
from tests.rabbitmq import RabbitMQ, is_installed, throwaway_rabbitmq
from tests.waiting import eventually

# Longer than a leader waits that knows nothing of DRAIN_SECONDS (`Workers`).
HANDLER_SECONDS = 5.0 + 1.0


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMQ]:
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    with throwaway_rabbitmq() as node:
        yield node


def linedesk(house: House, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return nursery.run("linedesk", *arguments, env={**os.environ, **house.settings, **environ})


def test_events_wait_for_a_worker_and_status_shows_it(
    house: House, rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    nodes = {"AMQP_URL": f"amqp://127.0.0.1:{rabbitmq.port}/bots"}
    made = linedesk(house, "init", "--amqp", str(tmp_path / "amqp"), **nodes)
    assert made.returncode == 0, made.stdout + made.stderr
    rabbitmq.control("import_definitions", str(tmp_path / "amqp" / "rabbitmq-definitions.json"))
    urls = {
        who: (tmp_path / "amqp" / who / "AMQP_URL").read_text() for who in ("dispatcher", "worker")
    }
    house.start_frontdesk()
    dispatcher = house.start_dispatcher(
        ready=False,
        DISPATCHER_WORKERS="amqp",
        AMQP_URL=urls["dispatcher"],
        # No code of the bot runs in the dispatcher, so none has to be there.
        BOT="not_here:bot",
    )
    user = house.sim.add_user("花子")
    house.sim.say(user, "やあ")

    def status() -> tuple[int, dict[str, Any]]:
        ran = linedesk(house, "status", "--json")
        return ran.returncode, json.loads(ran.stdout)

    def wrong() -> list[str]:
        return [one["saw"] for one in status()[1]["wrong"] if one["about"] == "workers"]

    house.wait_for(lambda: wrong() == ["no worker is connected: events wait"], dispatcher)
    assert status()[0] == Exit.FAILED
    with running_worker(AMQP_URL=urls["worker"], BOT="acceptance_bots:echo") as worker:
        eventually(lambda: status()[0] == Exit.OK, seconds=20)
        eventually(lambda: house.sim.answers(user), seconds=20)
        [one] = status()[1]["workers"]["processes"]
        assert one["name"].endswith(f"/{worker.pid}")
        worker.terminate()
        assert worker.wait(30) == Exit.OK
    house.wait_for(lambda: status()[0] == Exit.FAILED, dispatcher)
    assert house.stop(dispatcher) == Exit.OK


@pytest.mark.long
def test_a_stop_waits_for_a_handler_in_a_worker_as_long_as_for_one_of_its_own(
    house: House, rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    amqp = {"AMQP_URL": rabbitmq.url}
    answer_when = tmp_path / "now"
    house.start_frontdesk()
    bot = "tests.jobworker.remote.waiting_bot:bot"
    with running_worker(**amqp, BOT=bot, BOT_SETTINGS=f"answer_when={answer_when}") as worker:
        settings = {"DISPATCHER_WORKERS": "amqp", **amqp, "BOT": "not_here:bot"}
        dispatcher = house.start_dispatcher(DRAIN_SECONDS="20", **settings)
        user = house.sim.add_user("花子")
        house.sim.say(user, "やあ")
        house.wait_for(answer_when.with_suffix(".begun").exists, dispatcher)
        dispatcher.send_signal(signal.SIGTERM)
        until = time.monotonic() + HANDLER_SECONDS
        house.wait_for(lambda: time.monotonic() > until, dispatcher)
        answer_when.touch()
        assert dispatcher.wait(30) == Exit.OK
        worker.terminate()
        assert worker.wait(30) == Exit.OK
    # A process that stops calls LINE no more. The next one does, and has no worker that could run
    # the handler again.
    dispatcher = house.start_dispatcher(ready=False, **settings)
    house.wait_for(lambda: house.sim.answers(user), dispatcher)
    assert house.stop(dispatcher) == Exit.OK


@pytest.mark.long
def test_no_message_of_a_worker_makes_the_dispatcher_large(
    house: House, rabbitmq: RabbitMQ
) -> None:
    """Of 120 MB, of 16 MB of tiny values, and of 16 MB of text that needs four times as much."""
    house.start_frontdesk()
    settings = {"DISPATCHER_WORKERS": "amqp", "AMQP_URL": rabbitmq.url, "BOT": "not_here:bot"}
    # The memory of a process from the nursery includes its parent's.
    dispatcher = house.start_dispatcher(fresh=True, **settings)

    with HostileWorker(rabbitmq) as worker:
        worker.until_asked_for_its_rules()
        worker.decide("0" * 32, b'"' + b"a" * (120 << 20) + b'"')
        for data, cause in HOSTILE:
            attempt = worker.next_job(house)
            worker.decide("0" * 32, data)
            worker.decide(attempt, data)
            letter = worker.until(house.database.deadletters.find_one)
            assert cause in explained(letter)
            house.database.deadletters.delete_one(letter)
        attempt = worker.next_job(house)
        worker.decide(attempt, b"{}", {"do": "reply", "messages": ["はい"]})
        worker.until(lambda: house.sim.answers(worker.user))
    status = Path(f"/proc/{dispatcher.pid}/status").read_text()
    assert int(status.partition("VmHWM:")[2].split()[0]) < 300 * 1024


NEARLY = (16 << 20) - 500
HOSTILE = [
    (b'{"a":[%b{}]}' % (b"{}," * (NEARLY // 3)), "needs too much memory"),
    ('{"a":"😀%s"}'.encode() % (b"a" * NEARLY), "needs too much memory"),
    ('{"a":"あ%s"}'.encode() % (b"a" * NEARLY), "cannot be stored"),
]


class HostileWorker:
    """Any program with a worker's credential."""

    def __init__(self, node: RabbitMQ) -> None:
        self.user: Any = None
        self._attempts: list[str] = []
        self._connection = pika.BlockingConnection(pika.URLParameters(node.url))
        self._channel = self._connection.channel()
        self._queue = self._channel.queue_declare("", exclusive=True).method.queue

    def __enter__(self) -> HostileWorker:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def until(self, condition: Callable[[], Any]) -> Any:
        """Send beats until it holds."""
        return eventually(lambda: self._beat() or condition(), seconds=60)

    def until_asked_for_its_rules(self) -> None:
        self.until(lambda: self._received("introduce"))
        self._send({"type": "hello", "bot": BEAT["bot"], "rules": {"rules": [{"name": "all"}]}})

    def next_job(self, house: House) -> str:
        """A new user writes; returns the attempt with which the leader gives the job."""
        self.user = house.sim.add_user("花子")
        house.sim.say(self.user, "やあ")
        attempt: str = self.until(lambda: self._received("job"))[0]["attempt"]
        self._attempts = [attempt]
        return attempt

    def decide(self, attempt: str, data: bytes, *actions: dict[str, Any]) -> None:
        message = {"type": "decision", "attempt": attempt, "outcome": "decided"}
        message |= {"actions": actions, "data": "DATA", "address": self._queue}
        body = to_line(message).replace(b'"DATA"', data)
        self._channel.basic_publish(EXCHANGE, "", body)

    def _beat(self) -> None:
        self._send({**BEAT, "address": self._queue, "attempts": self._attempts})

    def _send(self, message: dict[str, Any]) -> None:
        self._channel.basic_publish(EXCHANGE, "", to_line(message))

    def _received(self, type_: str) -> list[dict[str, Any]]:
        messages = []
        while (body := self._channel.basic_get(self._queue, auto_ack=True)[2]) is not None:
            messages.append(json.loads(body))
        return [one for one in messages if one["type"] == type_]


@contextmanager
def running_worker(**environ: str) -> Iterator[Child]:
    """With the settings of a worker's machine: no MongoDB and no secrets of LINE."""
    path = str(Path(__file__).parent)
    given = {**os.environ, "PYTHONPATH": path, **environ}
    with Written() as log:
        worker = nursery.start("linedesk", "worker", env=given, stdout=log.fd, stderr=log.fd)
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait(10)
