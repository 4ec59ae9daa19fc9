"""A front desk that is stopped and started again under load, on a socket that stays open."""

from __future__ import annotations

import http.client
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from frontdesk.signature import sign
from tests.frontdesk.desk import BROKEN_OFF, SECRET, DeskProcess, text_event, webhook

RESTARTS = 3


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """What systemd opens, and keeps while no front desk runs."""
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        yield listener


class Load:
    """Clients that post one event after the other until they are told to end.

    Half of them keep their connection for as long as the front desk lets them.
    """

    def __init__(self, port: int, *, clients: int = 8) -> None:
        self._port = port
        self._end = threading.Event()
        self.seconds: list[float] = []
        self.accepted: list[str] = []
        self.failed: list[str] = []
        self._threads = [
            threading.Thread(target=self._run, args=(number % 2 == 0,)) for number in range(clients)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, keeps: bool) -> None:
        with closing(http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)) as line:
            while not self._end.is_set():
                event_id, began = uuid.uuid4().hex, time.monotonic()
                try:
                    status = self._post(line, event_id)
                except BROKEN_OFF as error:
                    line.close()
                    self.failed.append(repr(error))
                    continue
                self.seconds.append(time.monotonic() - began)
                if status == 200:
                    self.accepted.append(event_id)
                else:
                    self.failed.append(str(status))
                if not keeps:
                    line.close()

    def _post(self, line: http.client.HTTPConnection, event_id: str) -> int:
        body = webhook(text_event(event_id))
        headers = {"X-Line-Signature": sign(body, SECRET.encode()).decode()}
        line.request("POST", "/callback", body, headers)
        answer = line.getresponse()
        answer.read()
        return answer.status


def test_restarts_under_load_on_a_socket_that_stays_open_fail_no_request(
    database: Database[Any], mongo_uri: str, listener: socket.socket, tmp_path: Path
) -> None:
    def desk() -> DeskProcess:
        settings = {"SPOOL_PATH": str(tmp_path / "spool.db")}
        return DeskProcess(
            uri=mongo_uri, database=database.name, listener=listener, **settings
        ).start()

    running = desk()
    running.wait_for_line("listening ")
    with Load(running.port) as load:
        for _ in range(RESTARTS):
            running.wait_for_line("accepted ", times=100)
            t0 = time.monotonic()
            assert running.stop() == 0
            t1 = time.monotonic()
            print(running.log.split("stopping conn")[1][:100], "stop", t1 - t0)
            running = desk()
            running.wait_for_line("listening ")
            print("start", time.monotonic() - t1)
        running.wait_for_line("accepted ", times=100)
    assert running.stop() == 0
    print(len(load.accepted), max(load.seconds), sorted(load.seconds)[-10:])
    print([l for l in running.lines if "accepted" not in l])
    assert load.failed == []
    stored = {document["eventId"] for document in database["recvq"].find({}, {"eventId": 1})}
    assert set(load.accepted) == stored
