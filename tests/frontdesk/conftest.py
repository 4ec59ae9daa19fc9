"""One front desk for all tests that only post to it."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.store.client import Client
from tests.frontdesk.desk import DeskProcess
from tests.servers import one_for_all


@pytest.fixture(scope="session")
def shared(client: Client, mongo_uri: str) -> Iterator[tuple[DeskProcess, Database[Any]]]:
    with (
        one_for_all(client, megabytes=256) as database,
        DeskProcess(uri=mongo_uri, database=database.name) as desk,
    ):
        yield desk, database


@pytest.fixture
def desk(shared: tuple[DeskProcess, Database[Any]]) -> DeskProcess:
    return shared[0]


@pytest.fixture
def recvq(shared: tuple[DeskProcess, Database[Any]]) -> Any:
    return shared[1]["recvq"]
