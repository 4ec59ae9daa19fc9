"""The three forms in which handlers run, each for the same tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest
from pymongo.database import Database

from linesim import Sim
from tests.conftest import missing
from tests.jobworker.remote.house import House
from tests.jobworker.remote.memory_broker import MemoryHub
from tests.jobworker.remote.remote_room import a_room
from tests.jobworker.worker_harness import Room
from tests.rabbitmq import RabbitMQ, is_installed, throwaway_rabbitmq


@pytest.fixture(scope="session")
def shared_rabbitmq() -> Iterator[RabbitMQ]:
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    with throwaway_rabbitmq() as node:
        from jobworker.remote.amqp import declare

        declare([node.url])
        yield node


@pytest.fixture(params=["local", "memory", "amqp"])
def broker(request: pytest.FixtureRequest) -> MemoryHub | RabbitMQ | None:
    """Where handlers run: on the worker's threads, behind a fake, behind RabbitMQ."""
    if request.param == "local":
        return None
    if request.param == "memory":
        return MemoryHub()
    found: RabbitMQ = request.getfixturevalue("shared_rabbitmq")
    return found


@pytest.fixture
def room(
    broker: MemoryHub | RabbitMQ | None, database: Database[Any], sim: Sim
) -> Iterator[Callable[..., Room]]:
    """Makes rooms in that form, each ended after the test."""
    with ExitStack() as stack:
        make = partial(a_room, broker, database, sim)
        yield lambda *words, **options: stack.enter_context(make(*words, **options))


@pytest.fixture
def house(shared_rabbitmq: RabbitMQ, database: Database[Any], sim: Sim) -> Iterator[House]:
    """Leaders and workers on a real RabbitMQ, each ended after the test."""
    with ExitStack() as stack:
        yield House(shared_rabbitmq, database, sim, stack)
