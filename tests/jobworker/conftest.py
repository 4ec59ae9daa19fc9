"""LINE's side for the jobworker's tests, its database, and rooms of both."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import linesim
from linedesk import Bot
from linedesk.store.client import Client
from linedesk.store.errors import Replaced
from linesim import Sim
from tests.conftest import missing
from tests.jobworker.worker_harness import Room
from tests.rows import Db
from tests.servers import one_for_all
from tests.waiting import eventually


@pytest.fixture(scope="session")
def shared_sim() -> Iterator[Sim]:
    with linesim.running(rate_limits=False) as sim:
        yield sim


@pytest.fixture
def sim(shared_sim: Sim) -> Iterator[Sim]:
    """One simulator for all; each test makes its own users, and its faults end with it."""
    yield shared_sim
    shared_sim.clear_faults()


@pytest.fixture(scope="session")
def shared_database(client: Client) -> Iterator[Db]:
    with one_for_all(client) as database:
        yield database


@pytest.fixture
def database(shared_database: Db) -> Db:
    """As good as a fresh one to the jobworker, and made in a hundredth of the time."""
    names = ("conversations", "deadletters", "calls", "jobs", "schedule", "batches", "control")
    for name in (*names, "held", "progress"):
        shared_database[name].delete_many({})
    shared_database.leases.delete_many({"_id": {"$regex": "^sent/"}})
    return shared_database


@pytest.fixture
def room(
    database: Db, sim: Sim, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Room]]:
    """Makes rooms with a bot, each ended after the test."""
    if "deaths" in request.fixturenames:
        # Threads may also die while a room ends.
        request.getfixturevalue("deaths")
    else:
        known = threading.excepthook

        def died(args: threading.ExceptHookArgs) -> None:
            # As is right for a room beside one of a later epoch.
            if not isinstance(args.exc_value, Replaced):
                known(args)

        monkeypatch.setattr(threading, "excepthook", died)
    with ExitStack() as stack:

        def make(bot: Bot, **options: Any) -> Room:
            made = stack.enter_context(Room(database, options.pop("sim", sim), bot, **options))
            if made.epoch == 1:
                # Otherwise its search for outboxes may meet a successor's, and end it.
                eventually(lambda: not made.desk.outbox.boxes.unloaded)
            return made

        yield make


@pytest.fixture(scope="session")
def nursery() -> Iterator[subprocess.Popen[str]]:
    """The parent of those that are killed (see `tests.jobworker.dying_worker`)."""
    script = Path(__file__).with_name("dying_worker.py")
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(script.parents[2])},
        text=True,
    ) as parent:
        yield parent
        assert parent.stdin is not None
        parent.stdin.close()


@pytest.fixture
def dies(
    nursery: subprocess.Popen[str], database: Db, mongo_uri: str, sim: Sim
) -> Callable[..., dict[str, Any]]:
    """A process answers a user's message in some way and is killed at a point of it; returns the
    event. With `event` it answers that one, which another process had.
    """

    def die(
        point: str,
        user: Any,
        *,
        way: str = "reply",
        sends: int = 1,
        event: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        again = event is not None
        if event is None:
            event = sim.drafts.text(user, "?")
            sim.deliver(event)
        told = {
            "uri": mongo_uri,
            "database": database.name,
            "url": sim.url,
            "token": sim.token,
            "event": event,
            "again": again,
            "point": point,
            "way": way,
            "sends": sends,
        }
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        print(json.dumps(told), file=nursery.stdin, flush=True)
        os.kill(int(nursery.stdout.readline()), signal.SIGKILL)
        return event

    return die


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    options = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    try:
        subprocess.run(
            [*command, *options, "-out", files[0], "-keyout", files[1]],
            check=True,
            capture_output=True,
            timeout=30,
        )
    except FileNotFoundError:
        missing("openssl, which makes the certificate for this test, is not installed")
    return files
