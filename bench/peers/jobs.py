"""The peers' jobs: note that they have started, count in a state, and reply.

Environment variables configure them, since the peers' own commands start the workers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]

CONCURRENCY = 20
STORE = os.environ.get("PEER_STORE", "")
"""The URL of the peer's store."""
OPTION = os.environ.get("PEER_OPTION", "")
STARTED = "PEER_STARTED"
SEND_URL = os.environ.get("PEER_SEND_URL", "")
ANSWER = "{} 通目のメッセージです。"
STATE_TABLE = "CREATE TABLE bench_state (key text PRIMARY KEY, messages int NOT NULL)"


@cache
def _log() -> int:
    return os.open(os.environ[STARTED], os.O_WRONLY | os.O_APPEND | os.O_CREAT)


def starts(log: Path) -> Sequence[bytes]:
    """When each job started, in seconds of CLOCK_MONOTONIC."""
    return log.read_bytes().split() if log.exists() else []


async def work(event: Event, count: Callable[[str], Awaitable[int]]) -> None:
    """Do the job; `count` counts durably in the state of a conversation."""
    # Processes share the log.
    os.write(_log(), f"{time.monotonic()}\n".encode())
    answer = reply(event, await count(event["source"]["userId"]))
    async with _session().post(SEND_URL, json=answer) as response:
        response.raise_for_status()
        await response.read()


def reply(event: Event, messages: int) -> dict[str, object]:
    """The answer to the last of so many messages."""
    text = ANSWER.format(messages)
    return {"replyToken": event["replyToken"], "messages": [{"type": "text", "text": text}]}


@cache
def _session():  # type: ignore[no-untyped-def]  # aiohttp is there only with the SDK
    import aiohttp

    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=CONCURRENCY))
