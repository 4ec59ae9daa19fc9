"""One front desk for all tests that only post to it."""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.setup.collections import create_collections
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from tests.frontdesk.desk import DeskProcess


@pytest.fixture(scope="session")
def shared(client: Client, mongo_uri: str) -> Iterator[tuple[DeskProcess, Database[Any]]]:
    database = client[f"desk_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=256 * MEGABYTE)
    with DeskProcess(uri=mongo_uri, database=database.name) as desk:
        yield desk, database
    client.drop_database(database.name)


@pytest.fixture
def desk(shared: tuple[DeskProcess, Database[Any]]) -> DeskProcess:
    return shared[0]


@pytest.fixture
def recvq(shared: tuple[DeskProcess, Database[Any]]) -> Any:
    return shared[1]["recvq"]
