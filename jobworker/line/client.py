"""The one LINE client of the process: pooled connections, a time-out on every call, no retries.

Foreign errors end here. Sends do not use line-bot-sdk, because of these findings in 3.27. Without a
time-out it waits for ever. Its retries repeat GETs on their own. A body that is not UTF-8 hides the
status. A 200 with an unexpected body raises an error although LINE accepted the message.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
)

from jobworker.errors import LineError, NotSendable, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer, is_no_verdict, reason_of
from jobworker.line.breaker import Breaker
from jobworker.line.call_log import CallLog
from jobworker.line.deadline import CONNECT_SECONDS, make_timed, within
from jobworker.line.rate_limits import RateLimits
from linedesk.store.records.calls import is_taken

# The gate is held for as long as a call takes.
CALL_SECONDS = 10.0
MOST_BODY_BYTES = 256 * 1024
MOST_RETRY_AFTER_SECONDS = 300.0

# urllib3's errors for a request that was never sent.
NEVER_LEFT = (NewConnectionError, ConnectTimeoutError, NameResolutionError)

USER_AGENT = "linedesk"
JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8"}


class LineClient:
    """Calls the LINE API at `base`, one request each; the caller holds the gate.

    `connections` is the number of threads that may call. Every call leaves a row in the log of
    calls, counts against LINE's rate limits, and reports its end to the breaker.
    """

    def __init__(
        self,
        base: str,
        token: str,
        *,
        connections: int,
        calls: CallLog,
        breaker: Breaker | None = None,
        rate_limits: RateLimits | None = None,
        call_seconds: float = CALL_SECONDS,
    ) -> None:
        self._base = base.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}", "User-Agent": USER_AGENT}
        self._pool = urllib3.PoolManager(maxsize=connections)
        make_timed(self._pool)
        self._calls = calls
        self._call_seconds = call_seconds
        self.breaker = breaker or Breaker()
        self._rate_limits = rate_limits or RateLimits()

    def close(self) -> None:
        """Close the pooled connections."""
        self._pool.clear()

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        retry_key: str | None = None,
        limit_seconds: float | None = None,
        **context: Any,
    ) -> LineAnswer:
        """POST JSON. `context` (eventId, key, attempt) goes to the row. Raises LineError."""
        headers = {"X-Line-Retry-Key": retry_key} if retry_key else {}
        to = body.get("to")
        try:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise NotSendable(type(error).__name__) from error
        return self._call(
            "POST",
            path,
            data,
            {**JSON_HEADERS, **headers},
            context,
            limit_seconds=limit_seconds,
            to=to,
        )

    def get(
        self, path: str, *parts: str, limit_seconds: float | None = None, **context: Any
    ) -> LineAnswer:
        """GET a path whose `{}` are filled with the quoted parts. Raises LineError."""
        filled = path.format(*(quote(part, safe="") for part in parts))
        context |= {"endpoint": path}
        return self._call("GET", filled, None, {}, context, limit_seconds=limit_seconds)

    def _call(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        context: Mapping[str, Any],
        *,
        limit_seconds: float | None = None,
        to: Any = None,
    ) -> LineAnswer:
        endpoint = context.get("endpoint", path)
        whose = context.get("key") or path
        self._rate_limits.count(endpoint)
        began = time.monotonic()
        with self._calls.noted(method, endpoint, context, to=to) as row:
            try:
                answer = self._request(
                    method, path, data, headers, limit_seconds or self._call_seconds
                )
            except LineError:
                self.breaker.failed(whose, began=began)
                raise
            row.status, row.request_id = answer.status, answer.request_id
            row.reason = None if is_taken(answer.status) else reason_of(answer)
        tell(self.breaker, answer.status, whose, began=began)
        return replace(answer, began=began)

    def _request(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
    ) -> LineAnswer:
        with within(seconds) as deadline:
            with _translated():
                response = self._pool.request(
                    method,
                    self._base + path,
                    body=data,
                    headers={**self._headers, **headers},
                    timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=seconds),
                    preload_content=False,
                    redirect=False,
                    retries=False,
                )
            text, whole = _read(response, deadline)
            return LineAnswer(
                status=response.status,
                text=text,
                whole=whole,
                request_id=response.headers.get("x-line-request-id"),
                retry_after=_seconds(response.headers.get("retry-after")),
            )


def tell(breaker: Breaker, status: int, whose: str, *, began: float = math.inf) -> None:
    """Report the answer to a call, which began at that monotonic time, to the breaker."""
    if status == 401:
        breaker.unauthorized(began=began)
    elif is_no_verdict(status):
        breaker.failed(whose, began=began)
    else:
        breaker.answered(began=began)


def _read(response: Any, deadline: float) -> tuple[str, bool]:
    """Return the part of the body that arrives in time as text, and whether it is complete.

    The status remains valid in any case.
    """
    data = bytearray()
    with suppress(HTTPError, OSError):
        while len(data) < MOST_BODY_BYTES and time.monotonic() < deadline:
            piece = response.read1(65536)
            if not piece:
                response.release_conn()
                return data.decode("utf-8", "replace"), True
            data += piece
    response.close()
    return data.decode("utf-8", "replace"), False


def _seconds(header: str | None) -> float | None:
    """Return a Retry-After in seconds, within limits; LINE documents none, and a date is
    ignored.
    """
    if not header or not header.isdecimal():
        return None
    return min(float(header), MOST_RETRY_AFTER_SECONDS)


@contextmanager
def _translated() -> Iterator[None]:
    """Translate urllib3's errors by their meaning: never sent, or of unknown outcome."""
    try:
        yield
    except NEVER_LEFT as error:
        raise NotSent(type(error).__name__) from error
    except (HTTPError, OSError) as error:
        raise OutcomeUnknown(type(error).__name__) from error


def answer_or_error(call: Callable[[], LineAnswer]) -> LineAnswer | LineError:
    """Return a call's answer, or its error as a value, which the caller interprets."""
    try:
        return call()
    except LineError as error:
        return error
