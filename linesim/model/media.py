"""Photos, videos, voice messages and files that users send, and how LINE serves them again.

The newest 2,000 are kept, and of their bytes at most 256 MB; the built-in samples count for
nothing.
"""

import itertools
import mimetypes
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Annotated, Literal

from pydantic import Field

from linesim.model import errors
from linesim.model.clock import Clock

MOST_ITEMS = 2_000
MOST_BYTES = 256 * 1024 * 1024
PLAIN_TYPE = r"^[A-Za-z0-9.+_-]+/[A-Za-z0-9.+_-]+$"

Kind = Literal["image", "video", "audio", "file"]

SAMPLES: dict[Kind, tuple[str, str]] = {
    "image": ("photo.jpg", "image/jpeg"),
    "video": ("video.mp4", "video/mp4"),
    "audio": ("voice.m4a", "audio/x-m4a"),
    "file": ("notes.txt", "text/plain"),
}


@dataclass(frozen=True)
class Medium:
    """`repeats` is how often `data` is sent on end: a long video without its bytes in memory."""

    data: bytes
    media_type: Annotated[str, Field(pattern=PLAIN_TYPE)]
    name: str
    repeats: int = 1

    @property
    def size(self) -> int:
        return len(self.data) * self.repeats

    def pieces(self) -> Iterator[bytes]:
        return itertools.repeat(self.data, self.repeats)


@cache
def sample(kind: Kind) -> Medium:
    """A built-in photo, video, voice message or file."""
    name, media_type = SAMPLES[kind]
    data = resources.files("linesim").joinpath("samples", name).read_bytes()
    return Medium(data, media_type, name)


def medium(data: bytes, *, name: str, media_type: str | None = None) -> Medium:
    guessed = media_type or mimetypes.guess_type(name)[0] or ""
    plain = guessed if re.fullmatch(PLAIN_TYPE, guessed) else "application/octet-stream"
    return Medium(data, plain, name)


@dataclass
class Content:
    """A sent medium; `ready_at` (monotonic) is when LINE has finished preparing it, or, if it
    `fails`, gives it up.
    """

    kind: Kind
    medium: Medium
    ready_at: Annotated[float, Field(exclude=True)] = 0.0  # a saved one is ready
    fails: bool = False
    unsent: bool = False


class Contents:
    """By message id. Callers hold the simulator's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._contents: dict[str, Content] = {}
        self._bytes = 0

    def keep(self, message_id: str, content: Content) -> None:
        self._contents[message_id] = content
        self._bytes += _weight(content.medium)
        while len(self._contents) > MOST_ITEMS or self._bytes > MOST_BYTES:
            oldest = next(iter(self._contents))
            self._bytes -= _weight(self._contents.pop(oldest).medium)

    @property
    def kept(self) -> dict[str, Content]:
        return self._contents

    @kept.setter
    def kept(self, contents: dict[str, Content]) -> None:
        self._contents, self._bytes = {}, 0
        for message_id, content in contents.items():
            self.keep(message_id, content)

    def unsend(self, message_id: str) -> None:
        if content := self._contents.get(message_id):
            content.unsent = True

    def find(self, message_id: str) -> Content:
        """Raises LineError: 404 for an unknown message, 410 for an unsent one."""
        content = self._contents.get(message_id)
        if content is None:
            raise errors.content_not_found()
        if content.unsent:
            raise errors.gone()
        return content

    def ready(self, content: Content) -> bool:
        return self._clock.monotonic() >= content.ready_at


def _weight(medium: Medium) -> int:
    return 0 if any(medium is sample(kind) for kind in SAMPLES) else len(medium.data)
