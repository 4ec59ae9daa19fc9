"""Rows made by hand, as the processes and an event on its way leave them."""

from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import RECVQ, Document
from tests.rows import Db

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
HANAKO = "U" + "1" * 32
TEXT = "ひみつのことば"


def ago(seconds: float, *, now: datetime = NOW) -> datetime:
    return now - timedelta(seconds=seconds)


def a_row(
    role: str, pid: int, *, silent: float = 0.5, now: datetime = NOW, **more: Any
) -> Document:
    """A row of `status`."""
    row = {
        "_id": f"{role}/box/{pid}",
        "role": role,
        "host": "box",
        "pid": pid,
        "version": "0.1.0",
        "startedAt": ago(3600, now=now),
        "at": ago(silent, now=now),
        "state": "working",
        "words": "fine",
        "figures": {},
        "perSecond": {},
        "lately": {},
    }
    return {**row, **more}


def a_desk(pid: int = 1, **more: Any) -> Document:
    figures = {
        "acceptedEvents": 10,
        "refusedRequests": {"signature": 2, "body": 1},
        "spoolDocuments": 0,
        "spoolBytes": 0,
        "spoolMaxBytes": 1000,
        "recvqUnreadShare": 0.1,
        "recvqClosed": 0,
        "connections": 3,
    }
    rates = {"acceptedEvents": 1.5, "refusedRequests": {"signature": 0.0, "body": 0.25}}
    lately = {"storeSeconds": {"count": 4, "p50": 0.002, "p90": 0.003, "p99": 0.004}}
    own = {"figures": figures | more.pop("figures", {}), "perSecond": rates, "lately": lately}
    return a_row("frontdesk", pid, **{**own, **more})


def a_dispatcher(pid: int = 10, *, leading: int = 1, **more: Any) -> Document:
    figures: Document = {"leading": leading}
    if leading:
        figures |= {
            "queueDocuments": 7,
            "oldestUnfinishedSeconds": 1.5,
            "lagDocuments": 2,
            "lagSeconds": 0.25,
            "inHandDocuments": 4,
            "heldDocuments": 1,
            "heldKeys": 1,
            "threads": 20,
            "busyThreads": 3,
            "abandonedThreads": 0,
            "outboxEffects": 5,
            "gateUse": {"api": 0.5, "data": 0.0},
            "gateWaiting": {"api": 2, "data": 0},
            "breakerOpen": {"api": 0, "data": 0},
            "tokenRefused": 0,
            "rungTimers": 3,
        }
    rates = {
        "readDocuments": 2.0,
        "decidedEvents": {"recorded": 1.0, "finished": 0.5},
        "calls": {"api": {"/v2/bot/message/reply": {"200": 1.0, "429": 0.5}}},
        "gateTurns": {"api": 1.5},
        "rungTimers": 0.1,
    }
    lately = {
        "waitSeconds": {"count": 9, "p50": 0.001, "p90": 0.002, "p99": 0.01},
        "callSeconds": {"/v2/bot/message/reply": {"count": 2, "p50": 0.1, "p90": 0.2, "p99": 0.3}},
        "handlerSeconds": {"count": 0},
    }
    own = {"figures": figures | more.pop("figures", {}), "perSecond": rates, "lately": lately}
    rest: Document = {"threads": [], "waiting": [], "paused": [], "epoch": 7}
    return a_row("dispatcher", pid, **{**own, **rest, **more})


def an_event(
    event_id: str = "01E", *, key: str = HANAKO, at: datetime = NOW, **event: Any
) -> Document:
    """A document of recvq."""
    return {
        "_id": ObjectId(),
        "eventId": event_id,
        "channel": "main",
        "key": key,
        "acceptTime": at,
        "event": {
            "type": "message",
            "webhookEventId": event_id,
            "replyToken": "a token",
            "timestamp": int(at.timestamp() * 1000) - 200,
            "source": {"type": "user", "userId": key},
            "message": {"type": "text", "id": f"m-{event_id}", "text": TEXT},
            **event,
        },
    }


def a_run(event_id: str = "01E", *, at: datetime = NOW, **more: Any) -> Document:
    """A row of `jobs`."""
    row = {
        "at": at,
        "ms": 2.0,
        "eventId": event_id,
        "channel": "main",
        "key": HANAKO,
        "type": "message",
        "waitedMs": 3.0,
        "attempt": 1,
        "outcome": "recorded",
        "effects": 1,
        "error": None,
        "thread": "worker-03",
    }
    return {**row, **more}


def a_call(event_id: str = "01E", *, at: datetime = NOW, **more: Any) -> Document:
    """A row of `calls`."""
    row = {
        "at": at,
        "ms": 90.0,
        "method": "POST",
        "endpoint": "/v2/bot/message/reply",
        "status": 200,
        "requestId": "req-1",
        "eventId": event_id,
        "key": HANAKO,
        "attempt": 1,
    }
    return {**row, **more}


def empty(database: Db, *names: str) -> None:
    """As it was made, as far as these collections go."""
    if RECVQ not in database.list_collection_names():
        create_collections(database, capped_bytes=MEGABYTE)
    for name in names:
        database[name].delete_many({})
