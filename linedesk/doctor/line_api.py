"""The few calls of LINE's API that `linedesk doctor` makes.

They do not pass the dispatcher's gate: one of them may be made at the same time as a call of the
dispatcher. Among themselves they keep LINE_ACCESS_INTERVAL_MS. No error shows the token.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from linedesk.runtime.language import gettext as _
from linedesk.settings.errors import LinedeskError

CALL_SECONDS = 4.0


class NoAnswer(LinedeskError):
    """LINE did not answer; the text is the class of the error, without the token."""


@dataclass(frozen=True)
class Reply:
    """An answer of LINE. `body` is empty if it is not a JSON object."""

    status: int
    body: dict[str, Any] = field(repr=False)
    date: datetime | None = None
    """The time by LINE's clock, to the second."""
    asked_at: float = 0.0
    answered_at: float = 0.0

    @property
    def good(self) -> bool:
        """Whether LINE did as requested."""
        return 200 <= self.status < 300

    @property
    def message(self) -> str:
        """LINE's reason for a refusal."""
        return str(self.body.get("message", _("no reason given")))


class LineApi:
    """Calls the API at `base`; belongs to one thread at a time."""

    def __init__(self, base: str, token: str, *, interval_seconds: float) -> None:
        self._base = base
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": "linedesk-doctor"}
        self._interval_seconds = interval_seconds
        self._pool = urllib3.PoolManager(retries=False)
        self._pause = threading.Event()
        self._next_at = 0.0

    def call(self, method: str, path: str, *, seconds: float = CALL_SECONDS) -> Reply:
        """Call a path and wait at most `seconds` for each part of the answer. Raises NoAnswer."""
        self._pause.wait(max(0.0, self._next_at - time.monotonic()))
        asked_at = time.time()
        try:
            answer = self._pool.request(
                method,
                self._base + path,
                json={} if method == "POST" else None,
                headers=self._headers,
                timeout=seconds,
                redirect=False,
            )
        except (HTTPError, OSError) as error:
            raise NoAnswer(type(error).__name__) from error
        finally:
            # Connecting takes time and LINE counts from the arrival, which was before this.
            self._next_at = time.monotonic() + self._interval_seconds
        header = answer.headers.get("date")
        date = parsedate_to_datetime(header) if header else None
        return Reply(answer.status, _object(answer.data), date, asked_at, time.time())

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
