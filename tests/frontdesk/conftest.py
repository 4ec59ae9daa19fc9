"""One front desk for all tests that only post to it."""

from collections.abc import Iterator
from typing import Any

import pytest

from linedesk.store.client import Client
from tests.frontdesk.desk import DeskProcess
from tests.rows import Db
from tests.servers import one_for_all


@pytest.fixture(scope="session")
def shared(client: Client, mongo_uri: str) -> Iterator[tuple[DeskProcess, Db]]:
    with (
        one_for_all(client, megabytes=256) as database,
        DeskProcess(uri=mongo_uri, database=database.name) as desk,
    ):
        yield desk, database


@pytest.fixture
def desk(shared: tuple[DeskProcess, Db]) -> DeskProcess:
    return shared[0]


@pytest.fixture
def recvq(shared: tuple[DeskProcess, Db]) -> Any:
    return shared[1]["recvq"]
