"""A real front desk process for the tests, and LINE's side of the connection to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from frontdesk.parsing import sign
from linedesk.setup.private_mongod import free_port
from tests.fork_server import Child, nursery

# The form of every channel secret.
SECRET = "0123456789abcdef0123456789abcdef"
OLD_SECRET = "fedcba9876543210fedcba9876543210"
WAIT_SECONDS = 20.0
# The client's view of a connection that ends before its answer is complete.
BROKEN_OFF = (OSError, http.client.HTTPException)
ROOT = Path(__file__).resolve().parents[2]
# The usual place of the spool may exist on the machine that runs the tests.
NO_SPOOL = "/nonexistent/spool.db"


@dataclass(frozen=True)
class Answer:
    """The answer."""

    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


def text_event(event_id: str, text: str = "こんにちは", **fields: Any) -> dict[str, Any]:
    """A text message as LINE sends it, as far as the front desk cares."""
    return {
        "type": "message",
        "webhookEventId": event_id,
        "timestamp": 1_700_000_000_000,
        "source": {"type": "user", "userId": "U" + "1" * 32},
        "message": {"type": "text", "id": "1", "text": text},
        **fields,
    }


def webhook(*events: dict[str, Any]) -> bytes:
    return json.dumps({"destination": "U0", "events": events}, ensure_ascii=False).encode()


# Like systemd for a socket unit (sd_listen_fds(3)): the socket as descriptor 3, and its process id.
HAND_OVER = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.environ.update(LISTEN_FDS="1", LISTEN_FDNAMES="frontdesk", LISTEN_PID=str(os.getpid()))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


class DeskProcess:
    """`python -m frontdesk` on a port of its own, or on an open socket; a context manager.

    It comes from the nursery, unless it gets a socket as from systemd.
    """

    def __init__(
        self,
        *,
        uri: str,
        database: str,
        port: int | None = None,
        module: str = "frontdesk",
        arguments: Sequence[str] = (),
        listener: socket.socket | None = None,
        **settings: str,
    ) -> None:
        self.port = listener.getsockname()[1] if listener else port or free_port()
        self._listener = listener
        self._command = [module, *arguments]
        self._environ = {
            "PATH": os.environ["PATH"],
            "LINE_CHANNEL_SECRET": f"{SECRET},{OLD_SECRET}",
            "MONGODB_URI": uri,
            "MONGODB_DATABASE": database,
            "FRONTDESK_PORT": str(self.port),
            "SPOOL_PATH": NO_SPOOL,
            "LOG_LEVEL": "debug",
            **settings,
        }
        self.lines: list[str] = []
        self._changed = threading.Condition()

    def start(self) -> DeskProcess:
        """Start it without waiting for anything."""
        reading, writing = os.pipe()
        try:
            self.process = self._begin(writing)
        finally:
            os.close(writing)
        self._stderr = open(reading, encoding="utf-8")  # noqa: SIM115
        self._reader = threading.Thread(target=self._read, name="desk-log")
        self._reader.start()
        return self

    def __enter__(self) -> DeskProcess:
        self.start()
        try:
            self.wait_for_line("listening ")
        except AssertionError:
            # Neither it nor the thread that reads its log may stay.
            self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Send a signal and wait for the end; returns the exit code."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> int:
        """Wait for the end; returns the exit code."""
        try:
            return self.process.wait(WAIT_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            self._reader.join(WAIT_SECONDS)
            self._stderr.close()

    @property
    def log(self) -> str:
        return "\n".join(self.lines)

    def wait_for_line(self, text: str, *, times: int = 1) -> str:
        """Wait until the log has this many lines with this text; returns the last of them."""

        def found() -> list[str]:
            return [line for line in self.lines if text in line]

        with self._changed:
            arrived = self._changed.wait_for(lambda: len(found()) >= times, WAIT_SECONDS)
            assert arrived, f"no line {text!r} in the log:\n{self.log}"
            return found()[-1]

    def _begin(self, stderr: int) -> Child | subprocess.Popen[bytes]:
        if self._listener is None:
            return nursery.start(*self._command, env=self._environ, stdout=stderr, stderr=stderr)
        fd = self._listener.fileno()
        by = ["-S", "-E", "-c", HAND_OVER, str(fd)]
        return subprocess.Popen(
            [sys.executable, *by, "-m", *self._command],
            cwd=ROOT,
            env=self._environ,
            stderr=stderr,
            pass_fds=[fd],
        )

    def _read(self) -> None:
        for line in self._stderr:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()

    # --- calls of LINE and others

    def post(self, *events: dict[str, Any], secret: str = SECRET) -> Answer:
        """Send these events as one signed webhook."""
        return self.post_bytes(webhook(*events), secret=secret)

    def post_bytes(self, body: bytes, *, secret: str = SECRET) -> Answer:
        signature = sign(body, secret.encode()).decode()
        return self.ask("POST", "/callback", body, {"X-Line-Signature": signature})

    def ask(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Answer:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)) as line:
            return _ask(line, method, path, body, headers)

    @contextmanager
    def raw(self) -> Iterator[socket.socket]:
        """A plain connection for bytes that no HTTP library would send."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as line:
            yield line


def _ask(
    line: http.client.HTTPConnection,
    method: str,
    path: str,
    body: bytes,
    headers: dict[str, str] | None,
) -> Answer:
    line.request(method, path, body or None, headers or {})
    response = line.getresponse()
    names = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, response.read(), names)


def read_answer(line: socket.socket) -> Answer:
    """Read one answer from a plain connection."""
    response = http.client.HTTPResponse(line)
    response.begin()
    with response:
        names = {name.lower(): value for name, value in response.getheaders()}
        return Answer(response.status, response.read(), names)


def signed_head(body: bytes, *more: str) -> bytes:
    """The head of a signed POST, with these header lines added."""
    lines = [
        "POST /callback HTTP/1.1",
        "Host: frontdesk",
        f"X-Line-Signature: {sign(body, SECRET.encode()).decode()}",
        *more,
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
