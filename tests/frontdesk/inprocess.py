"""A front desk's server in the test's own event loop, with a store that the test controls."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from functools import wraps
from typing import Any

import pytest
import uvloop

from frontdesk.app import WebhookSettings
from frontdesk.metrics import FrontdeskMetrics
from frontdesk.parsing import sign
from frontdesk.process import server_config
from frontdesk.server import FrontdeskServer
from frontdesk.store_choice import Documents
from tests.frontdesk.desk import SECRET, Answer, text_event, webhook
from tests.listener import Listener

DEADLINE_SECONDS = 15.0
# A word at each tick, and a short end.
QUICK = {"tell_ticks": 1, "linger_seconds": 0.1}
TOKEN = "token-for-scripts-1"


class FakeStore:
    """Keeps its documents, once `free` is set."""

    unavailable: str | None = None
    spool: dict[str, Any] | None = None
    no_spool: str | None = None
    trouble: str | None = None
    hanging: str | None = None
    dead = False

    def __init__(self) -> None:
        self.stored = 0
        self.closed = False
        self.free = asyncio.Event()
        self.free.set()

    async def open(self) -> None:
        """Nothing to do."""

    async def store(self, documents: Documents, *, deadline: float) -> int:
        await self.free.wait()
        assert not self.closed
        self.stored += len(documents)
        return 0

    async def close(self) -> None:
        self.closed = True


class Running:
    """A server that runs, and its parts."""

    def __init__(
        self,
        listener: socket.socket,
        tls: ssl.SSLContext | None = None,
        *,
        limits: Mapping[str, float] | None = None,
        store_seconds: float = 1.0,
        lingers: bool = True,
        **overload: Any,
    ) -> None:
        self._patched = pytest.MonkeyPatch()
        for name, limit in {**QUICK, **(limits or {})}.items():
            module = "tls" if name == "handshake_seconds" else "server"
            self._patched.setattr(f"frontdesk.{module}.{name.upper()}", limit)
        # As with systemd, a copy stays open when the server closes its own.
        self.kept, self.store, self.service = listener.dup(), FakeStore(), Listener()
        self.port = listener.getsockname()[1]
        self.figures = figures = FrontdeskMetrics()
        self.server = FrontdeskServer(
            server_config(
                WebhookSettings(
                    secrets=(SECRET.encode(),), token=TOKEN, store_seconds=store_seconds
                ),
                self.store,
                figures,
                **overload,
            ),
            self.store,
            tls=tls,
            figures=figures,
            service=self.service,  # type: ignore[arg-type]
            hanging=lambda: self.store.hanging,
            lingers=lingers,
        )
        self._lines: list[Line] = []
        self._task = asyncio.create_task(self.server._serve([listener]))

    async def stop(self) -> None:
        """Stop it as SIGTERM does, to the end."""
        self.server.should_exit = True
        await self._task

    def close(self) -> None:
        """Close the remaining connections on this side, and give back the limits."""
        self._patched.undo()
        self.kept.close()
        for line in self._lines:
            line.writer.close()

    async def reach(self, state: Callable[[], Any]) -> None:
        """Wait until this is so."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not state():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.005)

    async def connect(
        self, context: ssl.SSLContext | None = None, *, source: str = "127.0.0.1"
    ) -> Line:
        options: dict[str, Any] = {"server_hostname": "localhost"} if context else {}
        options["local_addr"] = (source, 0)
        line = Line(*await asyncio.open_connection("127.0.0.1", self.port, ssl=context, **options))
        self._lines.append(line)
        return line


class Line:
    """A client's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @property
    def serial(self) -> int:
        """That of the certificate that was shown."""
        peer = self.writer.get_extra_info("peercert")
        return int(peer["serialNumber"], 16)

    async def post(self) -> Answer:
        self.send(request())
        return await self.answer()

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self) -> Answer:
        async with asyncio.timeout(DEADLINE_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode()
            lines = [line.partition(": ") for line in head.lower().split("\r\n")[1:]]
            headers = {name: value for name, _, value in lines if name}
            body = await self._reader.readexactly(int(headers["content-length"]))
        return Answer(int(head.split()[1]), body, headers)

    async def ended(self) -> bool:
        """Wait for the other side to end it."""
        async with asyncio.timeout(DEADLINE_SECONDS):
            with contextlib.suppress(ConnectionError):
                assert await self._reader.read() == b""
        return True


def request() -> bytes:
    body = webhook(text_event("01J"))
    signature = sign(body, SECRET.encode()).decode()
    head = (
        "POST /callback HTTP/1.1\r\nHost: frontdesk\r\n"
        f"X-Line-Signature: {signature}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@contextlib.asynccontextmanager
async def running(tls: ssl.SSLContext | None = None, **options: Any) -> AsyncIterator[Running]:
    """A server that takes connections, stopped at the end."""
    it = Running(socket.create_server(("127.0.0.1", 0)), tls, **options)
    try:
        await it.reach(lambda: it.service.told)
        yield it
    finally:
        it.store.free.set()
        await it.stop()
        it.close()


@pytest.fixture
def quick() -> Iterator[None]:
    """A server changes the collector of its process; here it is given back as it was."""
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs the test in the kind of loop that the front desk has."""

    @wraps(test)
    def run(*given: Any, **fixtures: Any) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(test(*given, **fixtures))

    return run
