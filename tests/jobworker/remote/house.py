"""Leaders, and workers of this process, on one real RabbitMQ."""

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from jobworker.remote.worker import WorkerProcess
from linedesk import Bot
from linesim import Sim
from tests.jobworker.remote.remote_room import a_worker, leave
from tests.jobworker.remote.wire import Gate, Wire
from tests.jobworker.worker_harness import Room
from tests.rabbitmq import RabbitMQ
from tests.rows import Db
from tests.waiting import eventually

# With beats each tenth of a second.
SHORT = {
    "jobworker.remote.leader.UNNAMED_SECONDS": 1.0,
    "jobworker.remote.leader.SILENT_SECONDS": 2.0,
    "jobworker.remote.leader.LOOK_SECONDS": 0.1,
    "jobworker.remote.seen.ASK_AGAIN_SECONDS": 0.1,
    "jobworker.remote.runner.GRACE_SECONDS": 0.5,
}


class House:
    """Makes leaders and workers, which end with it."""

    def __init__(self, node: RabbitMQ, database: Db, sim: Sim, stack: ExitStack) -> None:
        self.node = node
        self.database = database
        self.sim = sim
        self._stack = stack

    def leader(
        self, wire: Wire | None = None, *, limits: Mapping[str, float] = SHORT, **options: Any
    ) -> Room:
        """A leader that has begun its term, and receives messages from now on."""
        room = Room(
            self.database,
            self.sim,
            None,
            connect=wire or Wire(self.node),
            line=limits,
            **{"stop_seconds": 0.5, **options},
        )
        self._stack.enter_context(room)
        workers = room.desk._workers
        assert workers is not None
        eventually(lambda: workers.broker.up_since())
        return room

    def worker(self, bot: Bot, wire: Wire | None = None, **options: Any) -> WorkerProcess:
        """A worker that runs."""
        worker = a_worker(bot, wire or Wire(self.node), **options)
        worker.start()
        self._stack.callback(leave, worker)
        return worker

    def gate(self) -> Gate:
        """One that is open at the end of the test."""
        gate = Gate()
        self._stack.callback(gate.open)
        return gate

    def texts(self, chat: Any) -> list[str | None]:
        """The bot's messages there."""
        return [bubble.text for bubble in self.sim.answers(chat)]


def states(room: Room) -> dict[str, str]:
    """The state of each worker, by its name."""
    return {one["name"]: one["state"] for one in room.desk.workers()}


def until_working(room: Room, *names: str) -> None:
    """Until these workers get jobs, and no others do."""
    eventually(
        lambda: (
            sorted(name for name, state in states(room).items() if state == "working")
            == sorted(names)
        )
    )
