"""Two ways to send webhooks: as fast as they are answered, and at a steady rate.

The first is a process of its own, `python -m bench.load PORT CONNECTIONS SECONDS`, which shares no
lock with anything measured. Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import json
import selectors
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from typing import cast

import uvloop

from bench.report import BenchFailed, Figures
from bench.webhooks import SENTENCE, USERS, request_of, text_event

# More than any server here answers, so that the requests of a run do not run out.
MOST_PER_SECOND = 14_000
ANSWER_SECONDS = 30.0

# --- as fast as they are answered -------------------------------------------------------------


@dataclass(frozen=True)
class Answered:
    """The result of one load."""

    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    failed: int
    """Answers other than 200, and connections that ended without one."""

    @property
    def figures(self) -> Figures:
        """The first figure is compared."""
        rate = self.answers / self.seconds
        return {"POSTs/s": rate, "p50 ms": self.p50_ms, "p99 ms": self.p99_ms}

    def checked(self) -> Answered:
        """Itself; raises BenchFailed unless every answer is a 200."""
        if self.failed or not self.answers:
            raise BenchFailed(f"{self.failed} of {self.answers} POSTs were not answered 200")
        return self


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last one is answered."""

    def __init__(self, requests: Iterator[bytes], times: list[float], until: float) -> None:
        self._requests = requests
        self._times = times
        self._until = until
        self._waits = False
        self.failed = 0
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        if not self._answer.endswith(b"}"):
            return
        now = time.monotonic()
        self._times.append(now - self._sent)
        self._waits = False
        self.failed += b" 200 OK" not in self._answer
        if now < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.failed += self._waits
        self.done.set_result(None)

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._answer = b""
        self._sent = time.monotonic()
        self._waits = True
        self._transport.write(request)


async def _load(
    port: int, requests: Sequence[bytes], *, connections: int, seconds: float
) -> Answered:
    loop = asyncio.get_running_loop()
    times: list[float] = []
    source = iter(requests)
    started = time.monotonic()
    factory = partial(Connection, source, times, started + seconds)
    made = [await loop.create_connection(factory, "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    took = time.monotonic() - started
    cuts = statistics.quantiles(times, n=100) if len(times) > 1 else [0.0] * 99
    return Answered(
        answers=len(times),
        seconds=took,
        p50_ms=cuts[49] * 1000,
        p99_ms=cuts[98] * 1000,
        failed=sum(protocol.failed for _, protocol in made),
    )


def send_as_answered(port: int, *, connections: int, seconds: float) -> Answered:
    """Send over `connections` for `seconds`, the next request with each answer.

    Raises BenchFailed unless every answer is a 200.
    """
    command = [sys.executable, "-m", "bench.load", str(port), str(connections), str(seconds)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=seconds + 60, check=False
    )
    if done.returncode:
        raise BenchFailed(f"the load ended with {done.returncode}: {done.stderr[-2000:]}")
    return Answered(**json.loads(done.stdout)).checked()


# --- at a rate ---------------------------------------------------------------------------------


class SteadySender:
    """Sends each request at its time, which is fixed beforehand.

    A slow answer does not delay the next requests: each uses a connection that waits for no answer,
    or a new one. Waits are therefore measured from the planned time of a request.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: deque[socket.socket] = deque()
        self._all: list[socket.socket] = []
        self._selector = selectors.DefaultSelector()
        self._answers = 0
        self._failed: list[bytes] = []
        self._lock = threading.Lock()

    def send(self, requests: Sequence[bytes], rate: float) -> list[float]:
        """Send `rate` a second; returns the planned times, in seconds of time.monotonic().

        Returns once all are answered. Raises BenchFailed unless every answer is a 200.
        """
        for _ in range(8):
            self._idle.append(self._connection())
        ended = threading.Event()
        reader = threading.Thread(target=self._read, args=(len(requests), ended))
        reader.start()
        began = time.monotonic() + 0.05
        times = [began + number / rate for number in range(len(requests))]
        try:
            for at, request in zip(times, requests, strict=True):
                time.sleep(max(0.0, at - time.monotonic()))
                connection = self._idle.popleft() if self._idle else self._connection()
                connection.sendall(request)
            reader.join(ANSWER_SECONDS)
        finally:
            ended.set()
            reader.join()
            for one in self._all:
                one.close()
            self._selector.close()
        if self._failed:
            raise BenchFailed(f"{len(self._failed)} POSTs were refused: {self._failed[0][:300]!r}")
        if self._answers < len(requests):
            missing = len(requests) - self._answers
            raise BenchFailed(f"{missing} POSTs got no answer within {ANSWER_SECONDS:.0f} s")
        return times

    def _connection(self) -> socket.socket:
        one = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_SECONDS)
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self._selector.register(one, selectors.EVENT_READ, bytearray())
        self._all.append(one)
        return one

    def _read(self, expected: int, ended: threading.Event) -> None:
        while self._answers < expected and not ended.is_set():
            for key, _ in self._selector.select(0.05):
                one = cast(socket.socket, key.fileobj)
                data = b""
                with suppress(OSError):
                    data = one.recv(65_536)
                key.data.extend(data)
                if data and not key.data.endswith(b"}"):
                    continue
                self._answers += 1
                if b" 200 OK" not in key.data[:20]:
                    self._failed.append(bytes(key.data) or b"the connection was closed")
                key.data.clear()
                if data:
                    self._idle.append(one)
                else:
                    with self._lock:
                        self._selector.unregister(one)


def main(arguments: Sequence[str]) -> int:
    """The load process: makes all requests first, then sends them and prints the result."""
    port, connections, seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    count = int(seconds * MOST_PER_SECOND)
    requests = [request_of(text_event(number % USERS, SENTENCE)) for number in range(count)]
    answered = uvloop.run(_load(port, requests, connections=connections, seconds=seconds))
    print(json.dumps(asdict(answered)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
