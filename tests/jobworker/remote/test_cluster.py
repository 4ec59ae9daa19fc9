"""A RabbitMQ cluster of three nodes, reached by TLS, of which any one dies."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from linesim import Sim
from tests.conftest import missing
from tests.frontdesk.authority import Authority
from tests.frontdesk.authority import authority as authority
from tests.jobworker.remote.house import House, until_working
from tests.jobworker.remote.test_broker_outages import SECONDS, Counting
from tests.jobworker.remote.wire import Wire
from tests.rabbitmq import RabbitMQ, is_installed, throwaway_cluster
from tests.rows import Db


@pytest.fixture(scope="module")
def cluster(authority: Authority) -> Iterator[Sequence[RabbitMQ]]:
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    with pytest.MonkeyPatch.context() as patch:
        # A machine that trusts this authority.
        patch.setenv("SSL_CERT_FILE", str(authority.root))
        with throwaway_cluster(authority.issue(serial=1)) as nodes:
            yield nodes


@pytest.mark.long
def test_any_node_that_is_killed_delays_and_loses_nothing(
    cluster: Sequence[RabbitMQ], database: Db, sim: Sim
) -> None:
    with ExitStack() as stack:
        house = House(cluster[0], database, sim, stack)
        users = [sim.add_user(str(n)) for n in range(4)]
        counting, room = Counting(house.gate()), house.leader(Wire(*cluster))
        # One on the leader's node, one on another.
        house.worker(counting.bot, Wire(*cluster), name="beside")
        house.worker(counting.bot, Wire(*cluster[1:], cluster[0]), name="away")
        said: list[str | None] = []
        for number, node in enumerate(cluster[:2]):
            until_working(room, "beside", "away")
            said += [f"{number} before", f"{number} after"]
            for user in users:
                room.says(user, f"{number} before")
            node.kill()
            for user in users:
                room.says(user, f"{number} after")
            room.until_quiet(seconds=SECONDS)
            for user in users:
                assert house.texts(user) == said
            node.start()
        assert room.letters() == []
