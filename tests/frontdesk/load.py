"""LINE's side under load: clients that post events and notice every single failure."""

from __future__ import annotations

import http.client
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing

from frontdesk.parsing import sign
from tests.frontdesk.desk import BROKEN_OFF, SECRET, text_event, webhook

# On a busy machine a start takes its time, and a test is no measurement.
PATIENCE_SECONDS = 60.0


def plain(port: int) -> http.client.HTTPConnection:
    return http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)


class Load:
    """Clients that post one event after the other until they have to end; a context manager.

    Half of them keep their connection for as long as the server lets them. With `killed` the server
    is killed meanwhile. It may then have sent only the head of an answer, which is all that LINE
    looks at.
    """

    def __init__(
        self,
        connection: Callable[[], http.client.HTTPConnection],
        *,
        clients: int = 8,
        killed: bool = False,
    ) -> None:
        self._connection = connection
        self._cut = http.client.IncompleteRead if killed else ()
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
        with closing(self._connection()) as line:
            while not self._end.is_set():
                self._post(line)
                if not keeps:
                    line.close()

    def _post(self, line: http.client.HTTPConnection) -> None:
        event_id, began = uuid.uuid4().hex, time.monotonic()
        try:
            status = post(line, event_id, cut=self._cut)
        except BROKEN_OFF as error:
            line.close()
            self.failed.append(repr(error))
            return
        self.seconds.append(time.monotonic() - began)
        if status == 200:
            self.accepted.append(event_id)
        else:
            self.failed.append(str(status))


def post(
    line: http.client.HTTPConnection,
    event_id: str,
    *,
    cut: type[Exception] | tuple[()] = (),
    **headers: str,
) -> int:
    """Post one signed event; returns the status."""
    body = webhook(text_event(event_id))
    signature = sign(body, SECRET.encode()).decode()
    line.request("POST", "/callback", body, {"X-Line-Signature": signature, **headers})
    answer = line.getresponse()
    try:
        answer.read()
    except cut:
        line.close()
    return answer.status
