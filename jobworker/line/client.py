"""The one LINE client of the process: kept connections, a time-out on every call, no retries.

A request is written by itself, and httptools reads the answer: Python's `http.client` took a tenth
of an answered message's processor time for it, and urllib3's pool more. Foreign errors end here.
Sends do not use line-bot-sdk, because of these findings in 3.27. Without a time-out it waits for
ever. Its retries repeat GETs on their own. A body that is not UTF-8 hides the status. A 200 with an
unexpected body raises an error although LINE accepted the message.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from jobworker.errors import LineError, NotSendable, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer, reason_of
from jobworker.line.call_log import CallLog
from jobworker.line.deadline import IdleSockets, within
from jobworker.line.hosts import Host
from jobworker.line.rate_limits import RateLimits
from linedesk.store.records.calls import is_taken

# The gate is held for as long as a call takes.
CALL_SECONDS = 10.0
MOST_HEAD_BYTES, MOST_BYTES = 64 * 1024, 256 * 1024
READ_BYTES = 16 * 1024
# Of an answer that arrives.
FAILURES = (HttpParserError, HttpParserUpgrade, OSError)
MOST_RETRY_AFTER_SECONDS = 300.0

USER_AGENT = "linedesk"
JSON = "application/json; charset=utf-8"


class LineClient:
    """Calls the LINE API at `host`, one request each; the caller holds its gate.

    `connections` is the number of threads that may call. Every call leaves a row in the log of
    calls, counts against LINE's rate limits, and reports its end to the breaker.
    """

    def __init__(
        self,
        host: Host,
        token: str,
        *,
        connections: int,
        calls: CallLog,
        rate_limits: RateLimits,
    ) -> None:
        url = parse_url(host.base.rstrip("/"))
        self._path = url.path or ""
        self._headers = {
            "Host": url.netloc,
            "Accept-Encoding": "identity",
            "Authorization": f"Bearer {token}",
            "User-Agent": USER_AGENT,
        }
        self._idle = IdleSockets(url, most=connections)
        self._calls = calls
        self._breaker = host.gate.breaker
        self._rate_limits = rate_limits

    def close(self) -> None:
        """Close the connections; those that are in use, after their call."""
        self._idle.close()

    def post(
        self,
        path: str,
        body: Mapping[str, Any],
        *,
        retry_key: str | None = None,
        limit_seconds: float = CALL_SECONDS,
        **context: Any,
    ) -> LineAnswer:
        """POST JSON. `context` (eventId, key, attempt) goes to the row. Raises LineError."""
        try:
            data = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise NotSendable(type(error).__name__) from error
        headers = {"Content-Length": str(len(data)), "Content-Type": JSON}
        if retry_key:
            headers["X-Line-Retry-Key"] = retry_key
        return self._call(
            "POST", path, data, headers, context, limit_seconds=limit_seconds, to=body.get("to")
        )

    def get(
        self, path: str, *parts: str, limit_seconds: float = CALL_SECONDS, **context: Any
    ) -> LineAnswer:
        """GET a path whose `{}` are filled with the quoted parts. Raises LineError."""
        filled = path.format(*(quote(part, safe="") for part in parts))
        context |= {"endpoint": path}
        return self._call("GET", filled, b"", {}, context, limit_seconds=limit_seconds)

    def _call(
        self,
        method: str,
        path: str,
        data: bytes,
        headers: Mapping[str, str],
        context: Mapping[str, Any],
        *,
        limit_seconds: float,
        to: Any = None,
    ) -> LineAnswer:
        endpoint = context.get("endpoint", path)
        whose = context.get("key") or path
        self._rate_limits.count(endpoint)
        began = time.monotonic()
        with self._calls.noted(method, endpoint, context, to=to) as row:
            try:
                answer = self._request(method, path, data, headers, limit_seconds)
            except LineError:
                self._breaker.ended(0, whose, began=began)
                raise
            row.status, row.request_id = answer.status, answer.request_id
            row.reason = None if is_taken(answer.status) else reason_of(answer)
        self._breaker.ended(answer.status, whose, began=began)
        return replace(answer, began=began)

    def _request(
        self, method: str, path: str, data: bytes, headers: Mapping[str, str], seconds: float
    ) -> LineAnswer:
        request = self._written(method, path, data, headers)
        with within(seconds):
            try:
                sock = self._idle.take()
            except (HTTPError, OSError) as error:
                raise NotSent(type(error).__name__) from error
            try:
                answer, is_reusable = _answered(sock, request)
            except FAILURES as error:
                sock.close()
                raise OutcomeUnknown(type(error).__name__) from error
        if is_reusable:
            self._idle.give_back(sock)
        else:
            sock.close()
        return answer

    def _written(self, method: str, path: str, data: bytes, headers: Mapping[str, str]) -> bytes:
        """Return the request in one piece, so that it leaves in one packet."""
        lines = [f"{method} {self._path}{path} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in {**self._headers, **headers}.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


class _Reading:
    """An answer while it arrives. It passes over those of status 1xx, which precede it."""

    def __init__(self) -> None:
        self.status = 0
        """0 until all headers are there."""
        self.headers: dict[bytes, bytes] = {}
        self.body = bytearray()
        self.is_whole = False
        self.is_reusable = False
        """Whether the socket can take another request."""
        self.bytes = 0
        """How many have arrived."""
        self._parser = HttpResponseParser(self)

    def feed(self, data: memoryview) -> None:
        """Raises HttpParserError, HttpParserUpgrade."""
        self.bytes += len(data)
        if not self.status and self.bytes > MOST_HEAD_BYTES:
            raise HttpParserError("too many headers")
        self._parser.feed_data(data)

    def end(self) -> None:
        """The connection was closed, which is the end of a body without a length."""
        self.is_whole = self.headers.keys().isdisjoint((b"content-length", b"transfer-encoding"))

    def close(self) -> None:
        """Parser and reading know each other, and need no search for garbage now."""
        del self._parser

    # Called by the parser.

    def on_message_begin(self) -> None:
        if self.is_whole:
            # The next call's answer would be another one's.
            self.is_reusable = False
            raise HttpParserError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
        else:
            self.status = status

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        if self.status:
            self.is_whole, self.is_reusable = True, self._parser.should_keep_alive()


def _answered(sock: socket.socket, request: bytes) -> tuple[LineAnswer, bool]:
    """Send a request and return its answer, and whether the socket can take another one."""
    # LINE may answer and close before it has read all of a body.
    with suppress(BrokenPipeError, ConnectionResetError):
        sock.sendall(request)
    reading, buffer = _Reading(), bytearray(READ_BYTES)
    try:
        while not reading.is_whole and reading.bytes < MOST_BYTES:
            count = sock.recv_into(buffer)
            if not count:
                reading.end()
                break
            reading.feed(memoryview(buffer)[:count])
    except FAILURES:
        # Once it is there, the status remains valid in any case.
        if not reading.status:
            raise
    finally:
        reading.close()
    if not reading.status:
        raise ConnectionAbortedError("closed before the answer")
    request_id = reading.headers.get(b"x-line-request-id")
    answer = LineAnswer(
        status=reading.status,
        text=reading.body.decode("utf-8", "replace"),
        whole=reading.is_whole,
        request_id=None if request_id is None else request_id.decode("latin-1"),
        retry_after=_seconds(reading.headers.get(b"retry-after", b"").decode("latin-1")),
    )
    return answer, reading.is_reusable


def _seconds(header: str) -> float | None:
    """Return a Retry-After in seconds, within limits; LINE documents none. Ignores a date."""
    if not header.isdecimal():
        return None
    return min(float(header), MOST_RETRY_AFTER_SECONDS)
