"""A fake LINE that accepts every call at once: `python -m bench.free_line PORT LOG`.

linesim judges each call, which takes longer than some of the measured times. This one writes a line
for each message that is sent, `<text> <seconds of CLOCK_MONOTONIC>`, to LOG.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import uvloop

from bench.processes import child, listens
from linedesk.setup.private_mongod import free_port

SENT = {"sentMessages": [{"id": "1", "quoteToken": "q"}]}
ANSWERS = {"quota": {"type": "none"}, "consumption": {"totalUsage": 0}}
PROFILE = {"displayName": "客", "userId": "U" + "0" * 32}


class FreeLine(asyncio.Protocol):
    """One connection; requests come one after the other."""

    def __init__(self, log: IO[str]) -> None:
        self._log = log
        self._came = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        arrived = time.monotonic()
        self._came += data
        head, found, body = bytes(self._came).partition(b"\r\n\r\n")
        length = _length(head)
        if not found or len(body) < length:
            return
        self._came = bytearray(body[length:])
        self._transport.write(_answer(self._told(head, body[:length], arrived)))

    def _told(self, head: bytes, body: bytes, arrived: float) -> object:
        method, path = head.split(b" ", 2)[:2]
        if method == b"GET":
            return ANSWERS.get(path.decode().rpartition("/")[2], PROFILE)
        # Several, where the same chat waited for them.
        for message in json.loads(body or b"{}").get("messages", ()):
            self._log.write(f"{message.get('text')} {arrived}\n")
        return SENT


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _answer(content: object) -> bytes:
    body = json.dumps(content).encode()
    head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    return head.encode() + b"x-line-request-id: bench\r\n\r\n" + body


@contextmanager
def free_line(log: Path) -> Iterator[str]:
    """One as a process; its URL."""
    port = free_port()
    command = [sys.executable, "-m", "bench.free_line", str(port), str(log)]
    name = "the LINE that takes whatever comes"
    with child(name, command, ready=lambda: listens(port), stdout=None, stderr=None):
        yield f"http://127.0.0.1:{port}"


async def serve(port: int, log: IO[str]) -> None:
    """Until it is ended."""
    server = await asyncio.get_running_loop().create_server(
        lambda: FreeLine(log), "127.0.0.1", port, backlog=1024
    )
    await server.serve_forever()


def main(arguments: Sequence[str]) -> int:
    """The process."""
    port, log = arguments
    with Path(log).open("a", buffering=1) as file:
        uvloop.run(serve(int(port), file))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
