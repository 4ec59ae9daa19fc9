"""Downloads the users' content to files: photos, videos, voice messages and files.

LINE keeps content on its data host for an unspecified time. It is streamed in pieces under that
host's gate and is never in memory as a whole. An interrupted download begins again, and a file gets
its final name only when it is complete and synced.
"""

from __future__ import annotations

import errno
import math
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from urllib3 import BaseHTTPResponse, PoolManager, Timeout
from urllib3.exceptions import HTTPError

from jobworker.errors import (
    BotError,
    ContentFailed,
    ContentGone,
    ContentNotFound,
    ContentNotReady,
    ContentRefused,
    ContentTooLarge,
    ExternalContent,
    GateClosed,
    LineAway,
)
from jobworker.handler_context import current_call, require_wanted
from jobworker.line.answer import is_no_verdict
from jobworker.line.call_log import CallLog
from jobworker.line.client import USER_AGENT
from jobworker.line.deadline import CONNECT_SECONDS, make_timed, within
from jobworker.line.hosts import Host
from linedesk.runtime.backoff import growing_seconds


@contextmanager
def file_for(to: str | os.PathLike[str] | None) -> Iterator[tuple[IO[bytes], Path]]:
    """The file to write, and the path that it gets at the end if no error is raised.

    Without a path it is a temporary file that ends with the handler. Raises OSError.
    """
    if to is None:
        current = current_call()
        if current is None:
            raise BotError("outside of a handler's own thread content needs a path")
        handle, name = tempfile.mkstemp(prefix="linedesk-")
        path = Path(name)
        current.at_end(lambda: path.unlink(missing_ok=True))
        with os.fdopen(handle, "wb") as part:
            yield part, path
        return
    path = Path(to)
    if path.is_dir():
        # Otherwise this error would come after the download.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # A name of its own: an abandoned run may still be writing.
    part_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part_path.open("xb") as part:
            yield part, path
            part.flush()
            os.fsync(part.fileno())
        part_path.replace(path)
        _sync_folder(path.parent)
    finally:
        part_path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make the new name survive a loss of power as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


ENDPOINT = "/v2/bot/message/{messageId}/content"
KINDS = ("image", "video", "audio", "file")
PIECE_BYTES = 64 * 1024
MOST_BYTES = 1024**3
# Less than HANDLER_LIMIT_SECONDS by default: the handler is tried again later and repeats the call.
READY_SECONDS = 30.0
# The limit of the whole download: a gigabyte needs 3.5 MB/s.
DOWNLOAD_SECONDS = 300.0
# The limit of each read.
READ_SECONDS = 10.0
# The pause before the second try; it grows with each further one.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 5.0
TRIES = 3


@dataclass(frozen=True)
class Content:
    """A downloaded file: its path, its media type according to LINE, its size in bytes."""

    path: Path
    type: str
    size: int


class Broken(Exception):
    """One try failed or was incomplete; the next one may succeed."""


class ContentDownloads:
    """Fetches content from the data host. `stopping` ends downloads under way.

    Any number of threads may call it; the gate limits the calls at a time.
    """

    def __init__(
        self, host: Host, token: str, *, calls: CallLog, stopping: threading.Event
    ) -> None:
        self._host = host
        self._calls = calls
        self._stopping = stopping
        headers = {
            "Authorization": f"Bearer {token}",
            "Accept-Encoding": "identity",
            "User-Agent": USER_AGENT,
        }
        # It takes no proxy or password from the environment: the token goes to LINE only.
        self._pool = PoolManager(headers=headers, maxsize=host.gate.concurrency)
        make_timed(self._pool)

    def close(self) -> None:
        """Close the pooled connections."""
        self._pool.clear()

    def fetch(
        self,
        message: Any,
        to: str | os.PathLike[str] | None = None,
        *,
        ready_seconds: float = READY_SECONDS,
        most_bytes: int = MOST_BYTES,
    ) -> Content:
        """Download a message's content to the file `to`, or to one that ends with the handler.

        `message` is the SDK's object or its id. While LINE prepares the content this waits, up to
        `ready_seconds` in all, without the gate. Raises ContentError, BotError and GateClosed, and
        OSError if the file cannot be written.
        """
        message_id = content_id(message)
        with file_for(to) as (part, path):
            type_, size = self._patiently(message_id, part, ready_seconds, most_bytes)
        return Content(path, type_, size)

    def _patiently(
        self, message_id: str, part: IO[bytes], ready_seconds: float, most_bytes: int
    ) -> tuple[str, int]:
        """Try until it is complete: again after an interruption, later while LINE prepares it."""
        until = time.monotonic() + ready_seconds
        failures = waits = 0
        while True:
            part.seek(0)
            part.truncate()
            try:
                come = self._once(message_id, part, most_bytes)
            except Broken as error:
                failures += 1
                if failures >= TRIES:
                    raise ContentFailed(f"{error}, {failures} times in a row") from error
                self._pause(failures)
                continue
            if come is not None:
                return come
            waits += 1
            if time.monotonic() >= until:
                raise ContentNotReady(f"LINE is still preparing it after {ready_seconds:g} s")
            self._pause(waits, most=until - time.monotonic())

    def _once(self, message_id: str, part: IO[bytes], most_bytes: int) -> tuple[str, int] | None:
        """Make one call in its turn; returns type and size, or None while LINE prepares it."""
        current = current_call()
        context = current.context if current else {}
        whose, breaker = context.get("key", ENDPOINT), self._host.gate.breaker
        with (
            self._host.gate.turn(),
            self._calls.noted("GET", ENDPOINT, context, host=self._host.name) as row,
            within(DOWNLOAD_SECONDS, step_seconds=READ_SECONDS),
        ):
            began = time.monotonic()
            try:
                with self._get(message_id) as response:
                    row.status = status = response.status
                    row.request_id = response.headers.get("x-line-request-id")
                    come = self._read(response, part, most_bytes) if status == 200 else None
            except HTTPError as error:
                breaker.ended(0, whose, began=began)
                raise Broken(type(error).__name__) from error
            except Broken:
                breaker.ended(0, whose, began=began)
                raise
            # Before the turn ends, because the gate asks the breaker then.
            breaker.ended(status, whose, began=began)
            _require_coming(status)
            return come

    def _get(self, message_id: str) -> BaseHTTPResponse:
        return self._pool.request(
            "GET",
            self._host.base + ENDPOINT.format(messageId=quote(message_id, safe="")),
            preload_content=False,
            redirect=False,
            retries=False,
            timeout=Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        )

    def _read(
        self, response: BaseHTTPResponse, part: IO[bytes], most_bytes: int
    ) -> tuple[str, int]:
        """Write the body in pieces. Raises Broken unless its end is proved."""
        # urllib3 raises an error if fewer bytes arrive than announced.
        _require_small(_announced(response), most_bytes)
        size = 0
        # As they arrive: a full piece of a slow answer may take long.
        while piece := response.read1(PIECE_BYTES):
            self._require_running()
            require_wanted()
            size += len(piece)
            _require_small(size, most_bytes)
            part.write(piece)
        return response.headers.get("content-type", "application/octet-stream"), size

    def _pause(self, count: int, *, most: float = math.inf) -> None:
        longest = min(max(most, 0.0), LONGEST_PAUSE_SECONDS)
        seconds = growing_seconds(count, first=FIRST_PAUSE_SECONDS, most=longest) if longest else 0
        self._stopping.wait(seconds)
        self._require_running()
        require_wanted()

    def _require_running(self) -> None:
        if self._stopping.is_set():
            raise GateClosed("the process is stopping")


def content_id(message: Any) -> str:
    """Return the id of a message whose content LINE keeps: from the SDK's object, LINE's JSON, or
    the id.

    Raises BotError if there is none, ExternalContent if LINE does not have the content.
    """
    if isinstance(message, str) and message:
        return message
    kind = message.get("type") if isinstance(message, Mapping) else getattr(message, "type", None)
    raw = message.to_dict() if kind in KINDS and hasattr(message, "to_dict") else message
    if kind not in KINDS or not raw.get("id"):
        told = f"not a photo, video, voice message or file: {type(message).__name__}"
        raise BotError(told, reason="no content")
    provider = raw.get("contentProvider") or {}
    if provider.get("type") == "external":
        raise ExternalContent("the content is on an external server, see contentProvider")
    return str(raw["id"])


def _require_coming(status: int) -> None:
    """Raise an error unless the status means the content or that LINE is preparing it."""
    if status in (200, 202):
        return
    if status == 401:
        raise LineAway("LINE refuses the access token")
    if status == 429 or status < 300 or is_no_verdict(status):
        raise Broken(f"LINE answered {status}")
    refusal = {404: ContentNotFound, 410: ContentGone}.get(status, ContentRefused)
    raise refusal(f"LINE answered {status}")


def _announced(response: BaseHTTPResponse) -> int:
    """Return the length that the answer announces; 0 if the body marks its own end.

    Raises Broken if neither is there: a truncated body would look complete.
    """
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Broken("the answer has an encoding that was not requested")
    length = response.headers.get("content-length", "")
    if length.isdecimal():
        return int(length)
    if response.headers.get("transfer-encoding", "").lower() == "chunked":
        return 0
    raise Broken("the answer does not say how long it is")


def _require_small(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise ContentTooLarge(f"more than {most_bytes} bytes")
