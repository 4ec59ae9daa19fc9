"""A dispatcher and a worker as real processes over a real RabbitMQ, as an operator starts them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from linedesk.runtime.exit_codes import Exit
from tests.acceptance.conftest import House
from tests.conftest import missing
from tests.fork_server import Child, Written, nursery
from tests.rabbitmq import RabbitMQ, is_installed, throwaway_rabbitmq
from tests.waiting import eventually


@pytest.fixture(scope="module")
def rabbitmq() -> Iterator[RabbitMQ]:
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    with throwaway_rabbitmq() as node:
        yield node


def linedesk(house: House, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return nursery.run("linedesk", *arguments, env={**os.environ, **house.settings, **environ})


@pytest.mark.long
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
