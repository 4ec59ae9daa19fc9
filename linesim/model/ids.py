"""Identifiers in the forms that LINE gives them, and dicts by them that forget."""

import re
import secrets
import uuid
from collections import OrderedDict
from datetime import UTC, datetime
from functools import partial
from typing import Generic, TypeVar

from ulid import ULID

from linesim.model.clock import Clock

K = TypeVar("K")
V = TypeVar("V")


def _chat_id(kind: str) -> str:
    return kind + secrets.token_hex(16)


CHAT_ID = re.compile("[UCR][0-9a-f]{32}")
USER_ID = re.compile("U[0-9a-f]{32}")
user_id = partial(_chat_id, "U")
group_id = partial(_chat_id, "C")
room_id = partial(_chat_id, "R")
reply_token = partial(secrets.token_hex, 16)
quote_token = partial(secrets.token_urlsafe, 48)
read_token = partial(secrets.token_urlsafe, 32)
link_token = page_token = partial(secrets.token_urlsafe, 24)


def request_id() -> str:
    return str(uuid.uuid4())


def event_id(now: float) -> str:
    """A webhookEventId: a ULID that begins with the event's time (Unix seconds)."""
    return str(ULID.from_datetime(datetime.fromtimestamp(now, UTC)))


coupon_id = event_id


class MessageIds:
    """Message ids: 18 digits in a string, rising, different from those of an earlier run."""

    def __init__(self, now: float) -> None:
        self.free = int(now * 1_000_000) * 100

    def take(self) -> str:
        self.free += 1
        return str(self.free - 1)


class Recent(OrderedDict[K, V]):
    """Keeps the `limit` newest entries; setting an existing key does not make it newer."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        while len(self) > self.limit:
            self.popitem(last=False)


class Lasting(Generic[V]):
    """Keeps the `limit` newest entries, each for so many seconds from when it was set."""

    def __init__(self, seconds: float, clock: Clock, *, limit: int) -> None:
        self._seconds = seconds
        self._clock = clock
        self._entries: Recent[str, tuple[float, V]] = Recent(limit)

    def __setitem__(self, key: str, value: V) -> None:
        self._entries.pop(key, None)
        self._entries[key] = self._clock.monotonic() + self._seconds, value

    def get(self, key: str) -> V | None:
        until, value = self._entries.get(key, (0.0, None))
        return value if self._clock.monotonic() < until else None

    def pop(self, key: str) -> V | None:
        value = self.get(key)
        self._entries.pop(key, None)
        return value
