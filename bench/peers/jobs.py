"""The peers' jobs: note that they have started; optionally count in a state and reply.

Environment variables configure them, since the peers' own commands start the workers.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path

from bench.peers.names import Event

CONCURRENCY = 20
STORE = os.environ.get("PEER_STORE", "")
"""The URL of the peer's store."""
OPTION = os.environ.get("PEER_OPTION", "")
STARTED = "PEER_STARTED"
SEND_URL = os.environ.get("PEER_SEND_URL", "")
"""With one, each job counts in its conversation's state and posts to it."""
ANSWER = "{} 通目のメッセージです。"
STATE_TABLE = "CREATE TABLE bench_state (key text PRIMARY KEY, messages int NOT NULL)"


def script(name: str) -> str:
    """The path of a peer's own command."""
    return str(Path(sys.executable).parent / name)


@cache
def _log() -> int:
    return os.open(os.environ[STARTED], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def note(event: Event) -> None:
    """Write down that the job of this event starts now. Processes share the file."""
    os.write(_log(), f"{event['webhookEventId']} {time.monotonic()}\n".encode())


def started(log: Path) -> dict[str, float]:
    """When each job started first, in seconds of CLOCK_MONOTONIC, by event id."""
    starts: dict[str, float] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        event_id, _, at = line.partition(" ")
        starts.setdefault(event_id, float(at))
    return starts


def starts(log: Path) -> int:
    """How many jobs have started. Cheaper than `started`."""
    return log.read_bytes().count(b"\n") if log.exists() else 0


async def work(event: Event, count: Callable[[str], Awaitable[int]]) -> None:
    """Do the job; `count` counts durably in the state of a conversation."""
    note(event)
    if SEND_URL:
        await _send(reply(event, await count(event["source"]["userId"])))


def reply(event: Event, messages: int) -> dict[str, object]:
    """The answer to the last of so many messages."""
    text = ANSWER.format(messages)
    return {"replyToken": event["replyToken"], "messages": [{"type": "text", "text": text}]}


async def _send(message: object) -> None:
    async with _session().post(SEND_URL, json=message) as answer:
        answer.raise_for_status()
        await answer.read()


@cache
def _session():  # type: ignore[no-untyped-def]  # aiohttp is there only with the SDK
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY))
