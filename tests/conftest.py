"""A real replica set for the whole run, and a fresh database for each test."""

import gc
import os
import random
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linedesk.runtime.outage import MONGODB
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod, MongodNotFound, find_mongod
from linedesk.store.client import Client, connect
from linedesk.store.collections import MEGABYTE
from tests.fork_server import nursery
from tests.rows import Db
from tests.servers import one_for_all, throwaway_mongod
from tests.waiting import Now

if threading.current_thread() is threading.main_thread():
    # In a shell's background job Ctrl-C is ignored, also by the commands that tests start.
    signal.signal(signal.SIGINT, signal.default_int_handler)

IN_CI = os.environ.get("CI") == "true"
# Threads that end by themselves have so long for it.
LEFT_SECONDS = 5.0
# Threads of the driver, and of fixtures for several tests: a gate, a simulator, an event loop.
OTHERS = ("pymongo", "gate", "linesim-server", "asyncio")

CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing(reason: str) -> None:
    """Skip where something is absent; fail in CI, where everything has to be there."""
    if IN_CI:
        pytest.fail(reason)
    pytest.skip(reason)


def need_mongod() -> Path:
    """Its program."""
    try:
        return find_mongod()
    except MongodNotFound as error:
        missing(str(error))
        raise


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With TEST_ORDER=7 the files, and the tests of each, run in the order of that seed."""
    if seed := os.environ.get("TEST_ORDER"):

        def place(item: pytest.Item) -> list[float]:
            names = item.nodeid.partition("::")[0], item.nodeid
            return [random.Random(f"{seed} {name}").random() for name in names]

        items.sort(key=place)


def pytest_collection_finish() -> None:
    """Collected objects live to the end: the garbage collector need not scan them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _nursery_ends() -> Iterator[None]:
    yield
    nursery.close()


@pytest.fixture(scope="session")
def mongod() -> Iterator[EmbeddedMongod]:
    """One server; its answers can be made to fail by failpoints."""
    need_mongod()
    options = ("--oplogSize", "200", "--setParameter", "enableTestCommands=1")
    with throwaway_mongod(*options) as server:
        yield server


@pytest.fixture(scope="session")
def mongo_uri(mongod: EmbeddedMongod) -> str:
    return mongod.uri


@pytest.fixture(scope="session")
def client(mongo_uri: str) -> Iterator[Client]:
    with connect(mongo_uri, app_name="tests") as client:
        yield client


@pytest.fixture
def database(client: Client) -> Iterator[Db]:
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=16 * MEGABYTE)
    yield database
    # A drop would wait a minute for the transaction that a killed leader has left open.
    for row in database.progress.find({"session": {"$ne": None}}):
        client.admin.command("killSessions", [{"id": row["session"]}])
    # Dropping the database itself waits 100 ms for a journal flush.
    for name in database.list_collection_names():
        database.drop_collection(name)


@pytest.fixture(scope="module")
def module_database(client: Client) -> Iterator[Db]:
    with one_for_all(client) as database:
        yield database


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium. Its driver's event loop runs in this thread, so it ends with the module."""
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        missing("no chromium on this machine (apt install chromium)")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch) -> list[BaseException | None]:
    """The errors that ended threads, for a test in which that is expected."""
    died: list[BaseException | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: died.append(args.exc_value))
    return died


@pytest.fixture(autouse=True)
def _no_outage() -> None:
    """An outage of an earlier test has no part in the log of this one."""
    MONGODB.__init__()  # type: ignore[misc]


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """Fail a test that leaves a thread behind, daemons too.

    Later errors of such a thread fail no other test.
    """
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and not t.name.startswith(OTHERS)]
    until = time.monotonic() + LEFT_SECONDS
    for thread in left:
        thread.join(max(0.0, until - time.monotonic()))
    left = [thread for thread in left if thread.is_alive()]
    for thread in left:
        # Private, but threading.excepthook is the next test's, or a dispatcher's that it runs.
        thread._invoke_excepthook = lambda _: None  # type: ignore[attr-defined]
    assert not [thread.name for thread in left]


@pytest.fixture
def now() -> Now:
    return Now()
