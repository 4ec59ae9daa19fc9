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

from jobworker.line.deadline import CONNECT_SECONDS, make_timed, sent_at, within
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
        self._pool = urllib3.PoolManager()
        self._pause = threading.Event()
        self._called_at = 0.0
        make_timed(self._pool)

    def get(self, path: str) -> Reply:
        """GET a path. Raises NoAnswer."""
        return self._call("GET", path, None, CALL_SECONDS)

    def post(self, path: str, body: dict[str, Any], *, seconds: float = CALL_SECONDS) -> Reply:
        """POST JSON and wait at most `seconds` for the answer. Raises NoAnswer."""
        return self._call("POST", path, json.dumps(body).encode(), seconds)

    def close(self) -> None:
        """Close the connections."""
        self._pool.clear()

    def _call(self, method: str, path: str, data: bytes | None, seconds: float) -> Reply:
        self._pause.wait(max(0.0, self._called_at + self._interval_seconds - time.monotonic()))
        self._called_at = time.monotonic()
        asked_at = time.time()
        json_type = {"Content-Type": "application/json"} if data is not None else {}
        try:
            with within(seconds):
                answer = self._pool.request(
                    method,
                    self._base + path,
                    body=data,
                    headers={**self._headers, **json_type},
                    timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                    redirect=False,
                    retries=False,
                )
        except (HTTPError, OSError) as error:
            raise NoAnswer(type(error).__name__) from error
        finally:
            # Connecting takes time: LINE counts from the arrival of the call.
            self._called_at = max(self._called_at, sent_at())
        date = _date(answer.headers.get("date"))
        return Reply(answer.status, _object(answer.data), date, asked_at, time.time())


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _date(header: str | None) -> datetime | None:
    try:
        return parsedate_to_datetime(header) if header else None
    except ValueError:
        return None
