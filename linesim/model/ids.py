"""Identifiers in the forms that LINE gives them."""

import itertools
import secrets
import uuid
from datetime import UTC, datetime

from ulid import ULID


def user_id() -> str:
    return "U" + secrets.token_hex(16)


def group_id() -> str:
    return "C" + secrets.token_hex(16)


def room_id() -> str:
    return "R" + secrets.token_hex(16)


def reply_token() -> str:
    return secrets.token_hex(16)


def quote_token() -> str:
    return secrets.token_urlsafe(48)


def read_token() -> str:
    return secrets.token_urlsafe(32)


def request_id() -> str:
    return str(uuid.uuid4())


def event_id(now: float) -> str:
    """A webhookEventId: a ULID that begins with the event's time (Unix seconds)."""
    return str(ULID.from_datetime(datetime.fromtimestamp(now, UTC)))


class MessageIds:
    """Message ids: 18 digits in a string, rising, different from those of an earlier run."""

    def __init__(self, now: float) -> None:
        self._numbers = itertools.count(int(now * 1_000_000) * 100)

    def take(self) -> str:
        return str(next(self._numbers))
