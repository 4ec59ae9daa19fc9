"""The one LINE client of the process: pooled connections, a time-out on every call, no retries.

Foreign errors end here. What was learnt of line-bot-sdk 3.27: without a time-out it waits for
ever, its retries repeat GETs on their own, a body that is not UTF-8 hides the status, and a 200
with an unexpected body raises although LINE accepted the message; so sends go through its
connection pool, but not through its models.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import quote

import urllib3
from linebot.v3.messaging import ApiClient, ApiException, Configuration
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
)

from jobworker.calls import CallLog
from jobworker.delivery import Answer
from jobworker.errors import LineError, NotSendable, NotSent, OutcomeUnknown
from jobworker.gate import Gate

CONNECT_SECONDS = 3.0
# The gate is held for as long as a call takes.
CALL_SECONDS = 10.0
MOST_BODY_BYTES = 256 * 1024
MOST_RETRY_AFTER_SECONDS = 300.0

JSON_HEADERS = {"Content-Type": "application/json; charset=utf-8"}


class LineClient:
    """Calls the LINE API at `base`, one request each; the caller holds the gate.

    `connections` is the number of threads that may call. Every call leaves a row in the log of
    calls, whatever comes of it.
    """

    def __init__(self, base: str, token: str, *, connections: int, calls: CallLog) -> None:
        configuration = Configuration(host=base.rstrip("/"), access_token=token)
        configuration.retries = False
        configuration.connection_pool_maxsize = connections
        self._base = base.rstrip("/")
        self._sdk = ApiClient(configuration)
        self._calls = calls

    @property
    def configuration(self) -> Any:
        """The SDK's configuration, for a client of the SDK that shares base and token."""
        return self._sdk.configuration

    def close(self) -> None:
        """Close the pooled connections."""
        self._sdk.rest_client.pool_manager.clear()
        self._sdk.close()

    def post(
        self, path: str, body: Mapping[str, Any], *, retry_key: str | None = None, **context: Any
    ) -> Answer:
        """POST JSON. `context` (eventId, key, attempt) goes to the row. Raises LineError."""
        headers = {"X-Line-Retry-Key": retry_key} if retry_key else {}
        try:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise NotSendable(type(error).__name__) from error
        return self._call("POST", path, data, {**JSON_HEADERS, **headers}, context)

    def get(self, path: str, *parts: str, **context: Any) -> Answer:
        """GET a path whose `{}` are filled with the quoted parts. Raises LineError."""
        filled = path.format(*(quote(part, safe="") for part in parts))
        return self._call("GET", filled, None, {}, {**context, "endpoint": path})

    def _call(
        self,
        method: str,
        path: str,
        data: bytes | None,
        headers: Mapping[str, str],
        context: Mapping[str, Any],
    ) -> Answer:
        with self._calls.noted(method, context.get("endpoint", path), context) as row:
            answer = self._request(method, path, data, headers)
            row["status"], row["requestId"] = answer.status, answer.request_id
            return answer

    def _request(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str]
    ) -> Answer:
        deadline = time.monotonic() + CALL_SECONDS
        with _translated():
            response = self._sdk.rest_client.pool_manager.request(
                method,
                self._base + path,
                body=data,
                headers={**self._sdk.default_headers, **headers},
                timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=CALL_SECONDS),
                preload_content=False,
                redirect=False,
                retries=False,
            )
        return Answer(
            status=response.status,
            text=_read(response, deadline),
            request_id=response.headers.get("x-line-request-id"),
            retry_after=_seconds(response.headers.get("retry-after")),
        )


def _read(response: Any, deadline: float) -> str:
    """The body as text, as far as it comes in time; the status stands whatever becomes of it."""
    data = bytearray()
    with suppress(HTTPError, OSError):
        while len(data) < MOST_BODY_BYTES and time.monotonic() < deadline:
            piece = response.read1(65536)
            if not piece:
                response.release_conn()
                return data.decode("utf-8", "replace")
            data += piece
    response.close()
    return data.decode("utf-8", "replace")


def _seconds(header: str | None) -> float | None:
    """A Retry-After in seconds, within reason; LINE documents none, a date in it is left unread."""
    if not header or not header.isdecimal():
        return None
    return min(float(header), MOST_RETRY_AFTER_SECONDS)


@contextmanager
def _translated() -> Iterator[None]:
    """urllib3's errors by what they say of the request: never sent, or of unknown outcome."""
    try:
        yield
    except (NewConnectionError, ConnectTimeoutError, NameResolutionError) as error:
        raise NotSent(type(error).__name__) from error
    except (HTTPError, OSError) as error:
        raise OutcomeUnknown(type(error).__name__) from error


class GatedApiClient(ApiClient):  # type: ignore[misc]  # the SDK has no types
    """The SDK's own client for a handler that reads from LINE: through the gate, in time, logged.

    `base` is the API's address. Its connections are its own; every call waits for its turn on
    the calling thread.
    """

    def __init__(self, configuration: Any, *, gate: Gate, calls: CallLog) -> None:
        super().__init__(configuration)
        self._gate = gate
        self._calls = calls

    def call_api(self, resource_path: str, method: str, *args: Any, **kwargs: Any) -> Any:
        """As the SDK's, but gated; without a time-out of the caller's, CALL_SECONDS."""
        if kwargs.get("_request_timeout") is None:
            kwargs["_request_timeout"] = CALL_SECONDS
        # The turn ends with this method, so nothing may go on in a thread of the SDK's.
        kwargs["async_req"] = None
        with self._gate.turn(), self._calls.noted(method, resource_path, {}) as row:
            try:
                answer = super().call_api(resource_path, method, *args, **kwargs)
            except ApiException as error:
                _note_answer(row, error.status, error.headers)
                raise
            _note_answer(row, self.last_response.status, self.last_response.getheaders())
            return answer


def _note_answer(
    row: dict[str, Any], status: int | None, headers: Mapping[str, str] | None
) -> None:
    # The SDK's status 0 stands for no answer.
    row["status"] = status or None
    row["requestId"] = (headers or {}).get("x-line-request-id")


Caller = Callable[[], "Answer"]


def answer_or_error(call: Caller) -> Answer | LineError:
    """The answer of a call, or the error as a value: what it means is decided elsewhere."""
    try:
        return call()
    except LineError as error:
        return error
