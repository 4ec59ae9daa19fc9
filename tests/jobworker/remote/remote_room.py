"""A jobworker whose handlers run on its own threads, or in workers behind a broker.

`local` has the bot in the worker, `amqp` workers behind a real RabbitMQ.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry

from jobworker.remote.amqp import AmqpBroker
from jobworker.remote.python_bot import PythonBot
from jobworker.remote.worker import WorkerProcess
from linedesk import Bot
from linesim import Sim
from tests.jobworker.worker_harness import Room
from tests.rabbitmq import RabbitMQ
from tests.rows import Db
from tests.waiting import eventually


def a_worker(
    bot: Bot,
    connect: Callable[..., Any],
    *,
    threads: int = 4,
    name: str = "box/1",
    settings: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    registry: CollectorRegistry | None = None,
) -> WorkerProcess:
    """A worker of this process, not started."""
    remote = PythonBot(bot, settings=settings or bot.settings, secrets=secrets or {})
    return WorkerProcess(
        remote, connect, threads=threads, name=name, release="1", registry=registry
    )


def amqp(node: RabbitMQ, name: str) -> Callable[..., Any]:
    """Connections to a RabbitMQ."""
    return partial(AmqpBroker, [node.url], name=name)


@contextmanager
def a_room(
    broker: RabbitMQ | None,
    database: Db,
    sim: Sim,
    bot: Bot,
    *,
    workers: int = 1,
    settings: Mapping[str, Any] | None = None,
    secrets: Mapping[str, str] | None = None,
    **options: Any,
) -> Iterator[Room]:
    """A room with the bot in it, or with workers behind the broker that have said hello."""
    with ExitStack() as stack:
        if broker is None:
            yield stack.enter_context(
                Room(database, sim, bot, secrets=secrets or {}, settings=settings, **options)
            )
            return
        connect = amqp(broker, "test")
        room = stack.enter_context(Room(database, sim, None, connect=connect, **options))
        for number in range(workers):
            worker = a_worker(
                bot, connect, name=f"box/{number}", settings=settings, secrets=secrets
            )
            worker.start()
            stack.callback(leave, worker)
        eventually(lambda: are_working(room, workers), seconds=15)
        yield room


def are_working(room: Room, number: int) -> bool:
    """Whether this many workers get jobs."""
    return sum(one["state"] == "working" for one in room.desk.workers()) == number


def leave(worker: WorkerProcess) -> None:
    """The worker ends in order."""
    worker.leave(time.monotonic() + 5)
