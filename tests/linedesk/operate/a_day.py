"""The rows of a busy day, as the processes write them, for tests that look at a page."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import ObjectId

from linedesk.store.records.effects import place_of
from linedesk.store.records.waits import Why, reason
from tests.linedesk.operate.hand import a_call, a_dispatcher, a_row, a_run, an_event
from tests.rows import Db, put_rows

USER, OTHER, GROUP = (f"{letter}{'0123456789abcdef' * 2}" for letter in "URC")
EVENT = "01JD3ZQ8Q0T9XK4M5N6P7R8S9T"
SECRET_TEXT = "今日は会えません"


def moment(seconds_ago: float) -> datetime:
    return datetime.now(UTC) - timedelta(seconds=seconds_ago)


def lately(p50: float, p90: float, p99: float, count: int = 340) -> dict[str, Any]:
    return {"count": count, "p50": p50, "p90": p90, "p99": p99, "max": p99}


def desk_row(**more: Any) -> dict[str, Any]:
    return {
        **process("frontdesk", 811),
        "words": "12.4 events/s · p99 4 ms · recvq 3 % unread",
        "figures": {"acceptedEvents": 48213, "spoolDocuments": 0, "spoolBytes": 4096},
        "perSecond": {"acceptedEvents": 12.4, "duplicateEvents": 0.2, "spooledEvents": 0},
        "lately": {"storeSeconds": lately(0.0021, 0.0034, 0.0042)},
        **more,
    }


def dispatcher_row(**more: Any) -> dict[str, Any]:
    waiting = {"channel": "main", "key": USER, "documents": 4, "held": 2, "eventId": EVENT}
    return process("dispatcher", 815) | {
        "words": "epoch 7 · 12.1 events/s · 3 of 20 threads busy · 14 in hand",
        "epoch": 7,
        "feed": "changestream",
        "figures": {
            **a_dispatcher()["figures"],
            "inHandDocuments": 14,
            "heldDocuments": 2,
            "waitingKeys": {"held": 1, "paused": 0, "again": 1, "save": 0},
            "lagSeconds": 0.004,
            "queueDocuments": 18,
            "oldestUnfinishedSeconds": 74.2,
            "recvqUnreadShare": 0.031,
            "recvqLeftSeconds": 312000,
            "oplogLeftSeconds": 96000,
            "deadLettersKept": 3,
            "deadLettersOpen": 3,
            "gateUse": {"api": 0.62, "data": 0.04},
            "gateWaiting": {"api": 3, "data": 0},
            "gateClassWaiting": {"api": {"live": 2, "chat": 1, "other": 0, "idle": 0}},
            "gateClassLongestSeconds": {"api": {"live": 0.3, "chat": 1.8, "other": 0, "idle": 0}},
            "countedTodayMessages": 104,
            "quotaMessages": 5000,
            "quotaUsedMessages": 1312,
        },
        "perSecond": {
            "readDocuments": 12.3,
            "decidedEvents": {"recorded": 9.1, "finished": 3.0},
            "calls": {"api": {"reply": {"200": 8.4}, "push": {"200": 1.1}}},
            "gateTurns": {"api": 9.5, "data": 0.3},
            "failedHandlers": {"error": 0.1},
        },
        "lately": {
            "waitSeconds": lately(0.0028, 0.006, 0.0141),
            "handlerSeconds": lately(0.0117, 0.082, 0.61),
            "gateWaitSeconds": {"api": lately(0.04, 0.21, 0.4)},
            "callSeconds": {"reply": lately(0.081, 0.14, 0.29), "push": lately(0.09, 0.2, 0.4, 9)},
            "callSends": {"reply": {"count": 31, "sum": 57.0}, "push": {"count": 9, "sum": 12.0}},
            "saveSeconds": lately(0.003, 0.005, 0.011),
        },
        "threads": [
            doing("worker-03", "handler", 41.2, USER),
            doing("worker-11", "step", 0.4, OTHER),
            doing("worker-17", "job", 0.02, GROUP),
        ],
        "waiting": [
            {**waiting, "why": reason(Why.BEHIND_SLOW_HANDLER), "since": moment(41)},
            {
                **waiting,
                "key": GROUP,
                "documents": 1,
                "why": {**reason(Why.HANDLER_FAILED, failures=2), "until": moment(-12)},
                "since": moment(9),
            },
        ],
        "paused": [],
        **more,
    }


def process(role: str, pid: int, **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return a_row(role, pid, silent=0.3, now=now, startedAt=moment(86_400), host="bot1", **more)


def doing(name: str, what: str, seconds: float, key: str) -> dict[str, Any]:
    since = moment(seconds)
    return {
        "name": name,
        "doing": what,
        "eventId": EVENT,
        "channel": "main",
        "key": key,
        "since": since,
    }


def fill(database: Db, *, hours: float = 6) -> None:
    """Rows of every collection that the page reads."""
    database.status.insert_many([desk_row(), dispatcher_row()])
    database.history.insert_many(history(hours))
    put_rows(database.calls, *calls(), alone=2)
    database.deadletters.insert_many(letters())
    database.recvq.insert_one(document())
    database.conversations.insert_one(conversation())
    run = {"key": USER, "at": moment(39), "outcome": "failed", "effects": 0, "error": "KeyError"}
    again = {"key": USER, "at": moment(30), "attempt": 2, "waitedMs": 9002.0, "thread": "worker-07"}
    put_rows(database.jobs, a_run(EVENT, **run), a_run(EVENT, **again))


def history(hours: float) -> list[dict[str, Any]]:
    """A row each ten seconds; six hours have a gap of almost one hour."""
    rows = []
    for ago in range(int(hours * 3600), 0, -10):
        if 2.4 * 3600 < ago < 3.2 * 3600:
            continue
        wave = 1 + math.sin(ago / 900) + 0.4 * math.sin(ago / 95)
        burst = 140 * math.exp(-(((ago - 1500) / 260) ** 2))
        rows.append(
            {
                "at": moment(ago),
                "queueDocuments": round(max(0, 14 * wave + burst)),
                "oldestUnfinishedSeconds": max(0.0, 2 * wave + burst / 8),
                "lagDocuments": round(max(0, wave + burst / 4)),
                "lagSeconds": max(0.0, 0.01 * wave + burst / 60),
                "inHandDocuments": 3,
                "heldDocuments": round(burst / 20),
                "busyThreads": 3,
                "readPerSecond": max(0, 6 * wave),
                "decidedPerSecond": max(0, 5.6 * wave),
                "callsPerSecond": max(0, 4 * wave),
                "waitP50": 0.0028,
                "waitP99": 0.014 * max(0.2, wave),
                "handlerP50": 0.011,
                "handlerP99": 0.4 * max(0.1, wave),
            }
        )
    return rows


def calls() -> list[dict[str, Any]]:
    statuses = [200, 200, 429, 200, 500, 200, None, 200, 409, 200]
    return [
        {
            **a_call(EVENT, at=moment(30 - 3 * n), ms=80.0 + n, status=status, key=USER),
            "endpoint": "/v2/bot/message/reply" if n % 3 else "/v2/bot/message/push",
            "requestId": f"6f2a1c0e-0000-4000-8000-00000000000{n}" if status else None,
            "attempt": 1 + (n == 3),
            "class": "live" if n % 3 else "chat",
            "waitedMs": 40.0 * n,
            **({"paid": 0 if n % 3 else 1} if status in (200, 409) else {}),
            **({"also": [{"eventId": f"{EVENT}{n}", "key": USER}] * 2} if n == 7 else {}),
        }
        for n, status in enumerate(statuses)
    ]


def letters() -> list[dict[str, Any]]:
    whose = {"channel": "main", "key": USER, "firstAt": moment(900), "lastAt": moment(840)}
    traceback = (
        "Traceback (most recent call last):\n"
        '  File "/srv/bot/main.py", line 12, in handle\n'
        "    raise KeyError(event.text)\n"
        f"KeyError: '{SECRET_TEXT}'\n"
    )
    return [
        {
            **whose,
            "_id": f"01JD3ZQ8Q0T9XK4M5N6P7R8S9{n}",
            "document": {**document(), "_id": ObjectId()},
            "cause": "handler failed 3 times: KeyError",
            "traceback": traceback,
            "attempts": 3,
        }
        for n in range(3)
    ]


def document() -> dict[str, Any]:
    message = {"type": "text", "id": "468789577898262530", "text": SECRET_TEXT}
    return an_event(EVENT, key=USER, at=moment(40), mode="active", message=message)


def conversation() -> dict[str, Any]:
    return {
        "_id": f"main/{USER}",
        "channel": "main",
        "key": USER,
        "kind": "user",
        "friend": True,
        "profile": {"displayName": "佐藤花子", "at": moment(60)},
        "state": "asking",
        "data": {"note": SECRET_TEXT},
        "n": 31,
        "epoch": 7,
        "applied": [EVENT],
        "outbox": {
            place_of(7, 1): {
                "id": f"{EVENT}/0",
                "eventId": EVENT,
                "type": "send",
                "way": "reply",
                "messages": [{"type": "text", "text": SECRET_TEXT}],
                "at": moment(30),
            }
        },
        "unsent": [],
        "at": moment(30),
    }
