"""Webhooks as LINE sends them: text events with ids of their own, and signed requests of them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping
from itertools import count
from typing import Any

from linesim.model.deliveries import HEADER, Event, encode, sign

SECRET = "0123456789abcdef0123456789abcdef"
"""Of the channel, in all benches."""
USERS = 500
SENTENCE = "こんにちは、今日の予定を教えてください。"
DESTINATION = "U" + "0" * 32

# Event ids of two processes, or of two runs on one database, differ.
_run = secrets.token_hex(4).upper()
_numbers = count(1)


def text_event(user: int, text: str = "はい") -> Event:
    """A text message of a user, under an event id of its own."""
    number = next(_numbers)
    return {
        "type": "message",
        "mode": "active",
        "timestamp": int(time.time() * 1000),
        "source": {"type": "user", "userId": f"U{user:032x}"},
        "webhookEventId": f"01{_run}{number:016d}",
        "deliveryContext": {"isRedelivery": False},
        "replyToken": f"{_run}{number:024d}",
        "message": {
            "type": "text",
            "id": str(500_000_000_000 + number),
            "quoteToken": "q3Plxr4AgKd_quoteTokenAsLongAsLinesOwnAre_00000000",
            "text": text,
        },
    }


def ids_of(events: Iterable[Mapping[str, Any]]) -> list[str]:
    """The events' own ids."""
    return [event["webhookEventId"] for event in events]


def request_of(*events: Event) -> bytes:
    """The bytes of a signed POST of a webhook with these events to /callback."""
    body = encode(DESTINATION, events)
    headers = {
        "User-Agent": "LineBotWebhook/2.0",
        "Content-Type": "application/json; charset=utf-8",
        HEADER: sign(SECRET, body),
        "Host": "127.0.0.1",
        "Content-Length": str(len(body)),
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"POST /callback HTTP/1.1\r\n{lines}\r\n".encode() + body
