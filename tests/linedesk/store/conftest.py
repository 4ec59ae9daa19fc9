"""Servers of other kinds than the shared one, and documents as the front desk makes them."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from subprocess import Popen
from typing import Any

import pytest

from linedesk.setup import children
from linedesk.setup.private_mongod import EmbeddedMongod, find_mongod, free_port
from linedesk.store.client import connect
from linedesk.store.documents import Document, make_document
from tests.linedesk.store.lagging import LaggingSet, lagging_set
from tests.servers import data_folder
from tests.waiting import eventually

MakeDocument = Callable[..., Document]


@pytest.fixture
def document() -> MakeDocument:
    """Makes the document of an event; without a name, of an event that has none."""

    def make(name: str | None = None, user: str = "U1", **more: Any) -> Document:
        event: Document = {"type": "message", "source": {"type": "user", "userId": user}, **more}
        if name is not None:
            event["webhookEventId"] = name
        return make_document(event, channel="main", accept_time=datetime.now(UTC))

    return make


@pytest.fixture(scope="session")
def lagging(mongod: EmbeddedMongod, request: pytest.FixtureRequest) -> LaggingSet:
    """Three nodes of which the secondaries can be made to lag."""
    return lagging_set(request.config)


@pytest.fixture
def raw_mongod(mongod: EmbeddedMongod) -> Iterator[Callable[..., str]]:
    """Starts a mongod with the options given and nothing done to it; returns host:port."""
    started: list[Popen[bytes]] = []
    with data_folder("raw") as folder:

        def start(*options: str) -> str:
            port = free_port()
            own = folder / str(port)
            own.mkdir()
            command = [
                *(str(find_mongod()), "--dbpath", str(own), "--port", str(port)),
                *("--bind_ip", "127.0.0.1", "--nounixsocket", "--logpath", str(own / "log")),
                *("--setParameter", "diagnosticDataCollectionEnabled=false", *options),
            ]
            started.append(children.start(command))
            where = f"127.0.0.1:{port}"
            with connect(f"mongodb://{where}/", app_name="tests", directConnection=True) as client:
                eventually(lambda: client.admin.command("ping"))
            return where

        yield start
        for process in started:
            process.kill()
            process.wait(10)
