"""Accepted webhooks per second of one front desk, against the same way with nothing stored.

A third variant stores nothing either and takes FastAPI's own way to the callback, which LINE's
POSTs pass by. All run by turns beside a real mongod, each as a process of its own that writes its
log lines; the load comes from a further process over keep-alive connections, as fast as it is
answered. Run it as `python bench/webhooks.py`; it needs about a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast
from unittest import mock

# First, since this file's own folder would offer itself as `frontdesk`.
import uvloop
from fastapi import FastAPI
from rich.console import Console
from rich.table import Table
from ulid import ULID

from frontdesk.app import FrontDesk, WebhookSettings
from frontdesk.group_commit import GroupCommit
from frontdesk.process import Address, SpoolAt, serve
from frontdesk.signature import sign
from frontdesk.store_choice import Documents
from linedesk.compose.private_mongod import EmbeddedMongod, free_port
from linedesk.runtime.logging import configure_logging
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE, create_collections

SECRET = b"0123456789abcdef0123456789abcdef"
DATABASE = "line_bot"
MOST_PER_SECOND = 14_000
WARM_UP_SECONDS = 1.0
STORING, NOTHING, ROUTE = VARIANTS = ("storing", "nothing", "route")


@dataclass(frozen=True)
class Figures:
    """What one round of load saw."""

    per_second: float
    p50_ms: float
    p99_ms: float
    refused: int


# --- the front desk, as it is and with nothing in place of the store -------------------------


async def store_nothing(self: GroupCommit, documents: Documents, *, deadline: float) -> int:
    """What the ratio is taken against: no queue, no thread, no insert."""
    return 0


def run_desk(variant: str, port: int, uri: str, folder: Path) -> int:
    """Serve until SIGTERM, with a spool that stays empty; the log goes to stderr as always."""
    configure_logging(secrets=[SECRET.decode()])
    with ExitStack() as stack:
        if variant != STORING:
            stack.enter_context(mock.patch.object(GroupCommit, "store", store_nothing))
        if variant == ROUTE:
            stack.enter_context(mock.patch.object(FrontDesk, "__call__", FastAPI.__call__))
        return serve(
            WebhookSettings(secrets=(SECRET,)),
            Address(port=port),
            mongodb_uri=uri,
            database=DATABASE,
            spool=SpoolAt(folder / f"{variant}-spool.db", 256 * MEGABYTE),
        )


@contextmanager
def desk_process(variant: str, uri: str, folder: Path) -> Iterator[int]:
    """A front desk as a child process; yields its port once it is ready."""
    port = free_port()
    command = [sys.executable, __file__, "desk", variant, str(port), uri, str(folder)]
    with (folder / f"{variant}.log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        _wait_until_listening(folder / f"{variant}.log", process)
        yield port
    finally:
        process.terminate()
        process.wait(10)


def _wait_until_listening(log: Path, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 20
    while b"listening host=" not in log.read_bytes():
        if process.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"the front desk did not start:\n{log.read_text()}")
        time.sleep(0.05)


# --- the load: raw requests made beforehand, one at a time per connection --------------------


def make_request(number: int) -> bytes:
    """One signed POST with one text message, as LINE sends it, under an event id of its own."""
    event = {
        "type": "message",
        "mode": "active",
        "timestamp": 1_700_000_000_000 + number,
        "source": {"type": "user", "userId": f"U{number % 500:032x}"},
        "webhookEventId": str(ULID()),
        "deliveryContext": {"isRedelivery": False},
        "replyToken": f"{number:032x}",
        "message": {
            "type": "text",
            "id": str(500_000_000_000 + number),
            "quoteToken": "q3Plxr4AgKd_quoteTokenAsLongAsLinesOwnAre_00000000",
            "text": "こんにちは、今日の予定を教えてください。",
        },
    }
    content = {"destination": "U" + "0" * 32, "events": [event]}
    body = json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
    head = (
        "POST /callback HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: LineBotWebhook/2.0\r\n"
        "Content-Type: application/json; charset=utf-8\r\n"
        f"X-Line-Signature: {sign(body, SECRET).decode()}\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class Connection(asyncio.Protocol):
    """Sends the next request as soon as the last one is answered."""

    def __init__(self, requests: Iterator[bytes], times: list[float], until: float) -> None:
        self._requests = requests
        self._times = times
        self._until = until
        self.refused = 0
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
        self.refused += b" 200 OK" not in self._answer
        if now < self._until:
            self._send()
        else:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        self.done.set_result(None)

    def _send(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            return
        self._answer = b""
        self._sent = time.monotonic()
        self._transport.write(request)


async def load(
    port: int, requests: Sequence[bytes], *, connections: int, seconds: float
) -> Figures:
    """Send requests over so many connections for so long; says how fast they were answered."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    source = iter(requests)
    started = time.monotonic()
    factory = partial(Connection, source, times, started + seconds)
    made = [await loop.create_connection(factory, "127.0.0.1", port) for _ in range(connections)]
    await asyncio.gather(*(protocol.done for _, protocol in made))
    took = time.monotonic() - started
    cuts = statistics.quantiles(times, n=100)
    return Figures(
        per_second=len(times) / took,
        p50_ms=cuts[49] * 1000,
        p99_ms=cuts[98] * 1000,
        refused=sum(protocol.refused for _, protocol in made),
    )


def run_load(port: int, connections: int, seconds: float) -> None:
    """The load process: makes all requests first, then sends them and prints the figures."""
    requests = [make_request(number) for number in range(int(seconds * MOST_PER_SECOND))]
    figures = uvloop.run(load(port, requests, connections=connections, seconds=seconds))
    print(json.dumps(figures.__dict__))


def load_process(port: int, *, connections: int, seconds: float) -> Figures:
    """Run the load in a process of its own, so that it shares no lock with anything measured."""
    command = [sys.executable, __file__, "load", str(port), str(connections), str(seconds)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return Figures(**json.loads(answer.stdout))


# --- the run ---------------------------------------------------------------------------------


def measure(rounds: int, seconds: float, connections: int) -> dict[str, list[Figures]]:
    """All variants by turns, so that whatever slows the machine slows both."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        server = stack.enter_context(EmbeddedMongod(folder / "mongod"))
        with connect(server.uri, app_name="bench") as client:
            create_collections(client[DATABASE], capped_bytes=512 * MEGABYTE)
        ports = {v: stack.enter_context(desk_process(v, server.uri, folder)) for v in VARIANTS}
        run = partial(load_process, connections=connections)
        for port in ports.values():
            run(port, seconds=WARM_UP_SECONDS)
        figures: dict[str, list[Figures]] = {variant: [] for variant in VARIANTS}
        for turn in range(rounds):
            for variant in VARIANTS[:: 1 if turn % 2 == 0 else -1]:
                figures[variant].append(run(ports[variant], seconds=seconds))
    return figures


def report(figures: dict[str, list[Figures]]) -> None:
    """A table of every round with the medians below it, and what storing comes to of the others."""
    table = Table(title="front desk: accepted webhooks /s (p50, p99 ms)", show_footer=True)
    table.add_column("round", footer="median", justify="right")
    for variant in VARIANTS:
        table.add_column(variant, footer=_cell(*figures[variant]), justify="right")
    rounds = list(zip(*(figures[variant] for variant in VARIANTS), strict=True))
    for number, in_turn in enumerate(rounds, start=1):
        table.add_row(str(number), *map(_cell, in_turn))
    Console().print(table)
    for other in (NOTHING, ROUTE):
        print(f"storing / {other}: {_ratios(figures[STORING], figures[other])}")
    print(f"refused: {sum(f.refused for in_turn in rounds for f in in_turn)}")


def _cell(*rounds: Figures) -> str:
    """Each figure's median; of one round, its figures."""
    per_second = statistics.median(f.per_second for f in rounds)
    p50_ms = statistics.median(f.p50_ms for f in rounds)
    p99_ms = statistics.median(f.p99_ms for f in rounds)
    return f"{per_second:,.0f} ({p50_ms:.1f}, {p99_ms:.1f})"


def _ratios(storing: Sequence[Figures], other: Sequence[Figures]) -> str:
    ratios = [a.per_second / b.per_second for a, b in zip(storing, other, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main(arguments: Sequence[str]) -> int:
    """The run itself, or one of the processes that it starts."""
    if arguments[:1] == ["desk"]:
        variant, port, uri, folder = arguments[1:]
        return run_desk(variant, int(port), uri, Path(folder))
    if arguments[:1] == ["load"]:
        run_load(int(arguments[1]), int(arguments[2]), float(arguments[3]))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of load per round and variant")
    parser.add_argument("--connections", type=int, default=32)
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING)
    report(measure(options.rounds, options.seconds, options.connections))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
