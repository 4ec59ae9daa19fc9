"""A front desk that is stopped and started again under load, on a socket that stays open."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest

from tests.frontdesk.desk import DeskProcess
from tests.frontdesk.load import Load, plain
from tests.listener import Manager
from tests.rows import Db


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A socket that systemd opens, and keeps while no front desk runs."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        yield listener


def test_restarts_under_load_on_a_socket_that_stays_open_fail_no_request(
    database: Db, mongo_uri: str, listener: socket.socket, tmp_path: Path
) -> None:
    def started() -> DeskProcess:
        desk = DeskProcess(
            uri=mongo_uri,
            database=database.name,
            listener=listener,
            FRONTDESK_PORT="8000",
            SPOOL_PATH=str(tmp_path / "spool.db"),
            NOTIFY_SOCKET=str(tmp_path / "notify"),
        )
        stack.callback(desk.start().stop)
        desk.wait_for_line("listening ")
        return desk

    manager = Manager(str(tmp_path / "notify"))
    with closing(manager), ExitStack() as stack:
        with Load(partial(plain, listener.getsockname()[1])) as load:
            desk = started()
            desk.wait_for_line("accepted ", times=20)
            assert desk.stop() == 0
            words = [word for message in manager.heard() for word in message]
            assert {"READY=1", "STOPPING=1"} <= set(words)
            desk = started()
            desk.wait_for_line("accepted ", times=20)
        assert desk.stop() == 0
    print(f"requests={len(load.seconds)} slowest_seconds={max(load.seconds):.3f}")
    assert load.failed == []
    stored = {document["eventId"] for document in database["recvq"].find({}, {"eventId": 1})}
    assert set(load.accepted) == stored
    assert "inherited socket differs from the settings" in desk.log
