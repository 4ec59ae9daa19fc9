"""Retry keys: an accepted key is answered 409 with the first request's id and sent messages for 24
hours.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from linesim import errors
from linesim.clock import Clock
from linesim.recent import Recent

SECONDS = 24 * 60 * 60
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass(frozen=True)
class Accepted:
    request_id: str
    at: float
    body: Any
    sent_messages: Sequence[dict[str, str]]


class RetryKeys:
    """The newest 200,000 accepted keys of all endpoints together. Whoever calls holds the
    simulator's lock.

    A refused call leaves no trace here, so its key stays good.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._accepted: Recent[str, Accepted] = Recent(200_000)

    def find(self, key: str) -> Accepted | None:
        """What the key was accepted for within the last 24 hours; raises LineError for what is not
        a UUID.
        """
        if not _UUID.fullmatch(key):
            raise errors.retry_key_malformed()
        known = self._accepted.get(key.lower())
        if known and self._clock.monotonic() - known.at < SECONDS:
            return known
        return None

    def accept(self, key: str, request_id: str, body: Any, sent: Sequence[dict[str, str]]) -> None:
        self._accepted.pop(key.lower(), None)
        self._accepted[key.lower()] = Accepted(request_id, self._clock.monotonic(), body, sent)
