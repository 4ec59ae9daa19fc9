"""Identifiers in the forms that LINE gives them."""

import secrets
import uuid
from datetime import UTC, datetime
from functools import partial

from ulid import ULID


def _chat_id(kind: str) -> str:
    return kind + secrets.token_hex(16)


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
        self._next = int(now * 1_000_000) * 100

    @property
    def free(self) -> int:
        return self._next

    @free.setter
    def free(self, number: int) -> None:
        self._next = max(self._next, number)

    def take(self) -> str:
        self._next += 1
        return str(self._next - 1)
