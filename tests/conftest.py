"""A real replica set for the whole run, and a fresh database for each test."""

from __future__ import annotations

import os
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.embedded import EmbeddedMongod, MongodNotFound, find_mongod
from recvq.collections import MEGABYTE, create_collections
from recvq.connect import Client, connect

IN_CI = os.environ.get("CI") == "true"


def missing(reason: str) -> None:
    """Skip where something is absent; fail in CI, where everything has to be there."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def mongod(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedMongod]:
    try:
        find_mongod()
    except MongodNotFound as error:
        missing(str(error))
    folder: Path = tmp_path_factory.mktemp("mongod")
    with EmbeddedMongod(folder, extra=["--oplogSize", "200"]) as server:
        yield server


@pytest.fixture(scope="session")
def mongo_uri(mongod: EmbeddedMongod) -> str:
    return mongod.uri


@pytest.fixture(scope="session")
def client(mongo_uri: str) -> Iterator[Client]:
    with connect(mongo_uri, app_name="tests") as client:
        yield client


@pytest.fixture
def database(client: Client) -> Iterator[Database[dict[str, Any]]]:
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=16 * MEGABYTE)
    yield database
    client.drop_database(database.name)


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    """Fails a test that leaves a thread of ours behind."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and not t.daemon]
    for thread in left:
        thread.join(5)
    assert not [t.name for t in left if t.is_alive()]
