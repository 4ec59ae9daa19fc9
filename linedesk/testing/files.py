"""The files that users of a test have sent, for `talk.content`; they are real files."""

from __future__ import annotations

import mimetypes
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from jobworker.bot.content import Content, content_id
from jobworker.errors import ContentNotFound


class SentContents:
    """Photos, videos, voice messages and files by message id, with their names."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[bytes, str]] = {}
        self._passing: list[Path] = []

    def keep(self, message_id: str, data: bytes, name: str) -> None:
        """Store a file that a user sends."""
        self._kept[message_id] = data, name

    def fetch(self, message: Any, to: str | os.PathLike[str] | None = None, **_: Any) -> Content:
        """Like `jobworker.bot.content.ContentDownloads.fetch`, at once and without its limits."""
        message_id = content_id(message)
        if message_id not in self._kept:
            raise ContentNotFound(f"no user of this test has sent {message_id}")
        data, name = self._kept[message_id]
        path = Path(to) if to is not None else self._passing_file()
        path.write_bytes(data)
        return Content(path, mimetypes.guess_type(name)[0] or "application/octet-stream", len(data))

    @contextmanager
    def while_handling(self) -> Iterator[None]:
        """Delete files without a name when the handler ends."""
        try:
            yield
        finally:
            while self._passing:
                self._passing.pop().unlink(missing_ok=True)

    def _passing_file(self) -> Path:
        handle, name = tempfile.mkstemp(prefix="linedesk-")
        os.close(handle)
        self._passing.append(Path(name))
        return Path(name)
