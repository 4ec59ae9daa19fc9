"""Slow, half-sent and far too many requests at a real front desk process."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from frontdesk.connection import HEAD_BYTES, HEAD_SECONDS
from frontdesk.overload import Overload
from recvq.collections import MEGABYTE, create_collections
from recvq.connect import Client
from tests.frontdesk.desk import DeskProcess, read_answer, signed_head, text_event, webhook
from tests.waiting import eventually

# LINE counts a webhook as failed when its answer takes longer.
LINES_PATIENCE_SECONDS = 2.0


@pytest.fixture(scope="module")
def shared(client: Client, mongo_uri: str) -> Iterator[tuple[DeskProcess, Database[Any]]]:
    database = client[f"flood_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=64 * MEGABYTE)
    with DeskProcess(uri=mongo_uri, database=database.name) as desk:
        yield desk, database
    client.drop_database(database.name)


@pytest.fixture
def desk(shared: tuple[DeskProcess, Database[Any]]) -> DeskProcess:
    return shared[0]


@pytest.fixture
def recvq(shared: tuple[DeskProcess, Database[Any]]) -> Any:
    return shared[1]["recvq"]


def memory_mb(desk: DeskProcess) -> float:
    """Resident memory of the process (proc(5))."""
    status = Path(f"/proc/{desk.process.pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def lines_to(desk: DeskProcess, stack: ExitStack, count: int, first: bytes) -> list[socket.socket]:
    """So many connections that have sent this and no more."""
    lines = [stack.enter_context(desk.raw()) for _ in range(count)]
    for line in lines:
        line.sendall(first)
    return lines


def is_closed(line: socket.socket) -> bool:
    """Whether the other side has ended it; reads away what came before."""
    try:
        while select.select([line], [], [], 0)[0]:
            if line.recv(65536) == b"":
                return True
    except OSError:
        return True
    return False


def answered_at_once(desk: DeskProcess) -> None:
    started = time.monotonic()
    assert desk.post(text_event(uuid.uuid4().hex)).status == 200
    assert time.monotonic() - started < LINES_PATIENCE_SECONDS


HALF_HEADS = [b"", b"\r\n\r\n", b"POST /call", b"POST /callback HTTP/1.1\r\nHost: x\r\nX-Line-Si"]


def test_three_hundred_without_a_complete_head_hold_up_nobody_and_are_ended(
    desk: DeskProcess,
) -> None:
    with ExitStack() as stack:
        started = time.monotonic()
        lines = [line for first in HALF_HEADS for line in lines_to(desk, stack, 74, first)]
        [asking] = lines_to(desk, stack, 1, b"POST /callback HTTP/1.1\r\nHost: x\r\n")
        dripping, refused = lines_to(desk, stack, 2, b"")
        dripping.sendall(b"POST /callback HTTP/1.1\r\nX: ")
        refused.sendall(signed_head(b"", "Content-Length: 1000000000"))
        assert read_answer(refused).status == 413
        left = [*lines, dripping, refused]
        while left:
            assert time.monotonic() < started + HEAD_SECONDS + 5, f"{len(left)} are still open"
            answered_at_once(desk)
            for line in {dripping, refused}.intersection(left):
                drip(line)
            select.select([asking], [], [], 0.1)
            left = [line for line in left if not is_closed(line)]
        assert time.monotonic() > started + HEAD_SECONDS - 1
        answer = read_answer(asking)
        assert (answer.status, answer.error) == (408, "head did not arrive in time")


def drip(line: socket.socket) -> None:
    """One more byte of a head, or of a body that was refused."""
    with suppress(OSError):
        line.sendall(b"x")


def test_a_head_that_took_its_time_costs_nothing_of_the_time_to_store(
    desk: DeskProcess, recvq: Any
) -> None:
    event_id = uuid.uuid4().hex
    request = _request(event_id)
    with desk.raw() as line:
        line.sendall(request[:40])
        # Longer than a request may wait for its turn, and than the stores have.
        threading.Event().wait(1.2)
        line.sendall(request[40:])
        assert read_answer(line).status == 200
    assert recvq.count_documents({"eventId": event_id}) == 1


def test_three_hundred_with_half_a_body_hold_up_nobody_and_get_408(
    desk: DeskProcess, recvq: Any
) -> None:
    event_id = uuid.uuid4().hex
    body = webhook(text_event(event_id, "x" * 20_000))
    head = signed_head(body, f"Content-Length: {len(body)}")
    before = memory_mb(desk)
    with ExitStack() as stack:
        lines = lines_to(desk, stack, 300, head + body[:-1])
        answered_at_once(desk)
        for line in lines:
            assert read_answer(line).status in (408, 503)
            assert line.recv(1) == b""
    assert recvq.count_documents({"eventId": event_id}) == 0
    assert memory_mb(desk) < before + 60


def test_a_head_without_end_is_431_and_takes_no_memory(desk: DeskProcess) -> None:
    with desk.raw() as line:
        line.sendall(b"POST /callback HTTP/1.1\r\nX: " + b"x" * (HEAD_BYTES + 1))
        answer = read_answer(line)
        assert (answer.status, answer.error) == (431, "head is too large")


def test_what_is_no_http_is_400_in_the_form_of_every_refusal(desk: DeskProcess) -> None:
    with desk.raw() as line:
        line.sendall(b"\x16\x03\x01\x02\x00hello\r\n\r\n")
        answer = read_answer(line)
        assert (answer.status, answer.error) == (400, "not an HTTP request")
        assert line.recv(1) == b""


# --- beyond capacity -------------------------------------------------------------------------


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes
) -> tuple[int, float]:
    """Send a request; returns the status and after how many seconds it came."""
    started = time.monotonic()
    writer.write(data)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].split()[0])
    await reader.readexactly(length)
    return int(head.split()[1]), time.monotonic() - started


async def _lag(worst: list[float]) -> None:
    """Notes how late this side of the connections runs itself, on a busy machine."""
    while True:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        worst.append(time.monotonic() - before)


async def _flood(port: int, requests: list[bytes]) -> tuple[list[tuple[int, float]], float]:
    """All at once, each on a connection that is open already; the answers, and the own lag."""
    lines = [await asyncio.open_connection("127.0.0.1", port) for _ in requests]
    asks = [_ask(*line, data) for line, data in zip(lines, requests, strict=True)]
    lags = [0.0]
    watch = asyncio.create_task(_lag(lags))
    try:
        return await asyncio.wait_for(asyncio.gather(*asks), 30), max(lags)
    finally:
        watch.cancel()
        for _, writer in lines:
            writer.close()


def _request(event_id: str) -> bytes:
    body = webhook(text_event(event_id))
    return signed_head(body, f"Content-Length: {len(body)}") + body


def test_a_request_that_comes_to_its_turn_too_late_is_refused_and_its_connection_ended() -> None:
    """Its body may be half sent, and nobody waits for the rest any more."""
    sent: list[Any] = []

    async def never(*_: Any) -> None:
        raise AssertionError("nothing may be done for it")

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "state": {"arrived": time.monotonic() - 1}}
    asyncio.run(Overload(never)(scope, never, send))  # type: ignore[arg-type]
    assert sent[0]["status"] == 503
    assert (b"connection", b"close") in sent[0]["headers"]


def test_a_flood_beyond_capacity_is_answered_early_and_told_the_truth(
    desk: DeskProcess, recvq: Any
) -> None:
    prefix = uuid.uuid4().hex
    event_ids = [f"{prefix}-{number}" for number in range(1_500)]
    answers, lag = asyncio.run(_flood(desk.port, [_request(event_id) for event_id in event_ids]))
    assert {status for status, _ in answers} <= {200, 503}
    assert max(seconds for _, seconds in answers) < LINES_PATIENCE_SECONDS + 2 * lag
    accepted = {e for e, (status, _) in zip(event_ids, answers, strict=True) if status == 200}
    stored = {d["eventId"] for d in recvq.find({"eventId": {"$regex": f"^{prefix}"}})}
    assert accepted <= stored
    eventually(lambda: desk.post(text_event(uuid.uuid4().hex)).status == 200)
    assert json.loads(desk.ask("GET", "/readyz").body)["status"] == "ready"
