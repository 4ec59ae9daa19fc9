"""Answers to calls before they are HTTP: a status, headers and bytes.

The body of an answer is sent in pieces, cut or omitted by a fault.
"""

import json
import math
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from fastapi import Response
from starlette.types import Receive, Scope, Send

from linesim.model.deliveries import Event
from linesim.model.errors import LineError
from linesim.model.faults import Cut, Drip, Status
from linesim.model.media import Medium


@dataclass(frozen=True)
class Answer:
    """`medium` is sent in place of `content`; `spoilt` is the fault of the body. `event` is a
    webhook that follows.
    """

    status: int
    content: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None
    details: Sequence[Mapping[str, str]] = ()
    medium: Medium | None = None
    spoilt: Cut | Drip | None = None
    event: Event | None = None

    @property
    def size(self) -> int:
        return self.medium.size if self.medium else len(self.content)

    def pieces(self) -> Iterator[bytes]:
        return self.medium.pieces() if self.medium else iter([self.content])


def json_answer(body: Any, *, status: int = 200, **more: Any) -> Answer:
    return Answer(status, json.dumps(body, ensure_ascii=False).encode(), **more)


def moment(at: float) -> str:
    """Unix seconds as LINE writes a time in its answers."""
    written = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds")
    return written.replace("+00:00", "Z")


def refusal(error: LineError) -> Answer:
    told = {"message": error.message, "details": error.details or ()}
    return json_answer(error.body(), status=error.status, headers=error.headers, **told)


def faulty(outcome: Status) -> Answer:
    """The answer of a fault; a body of bytes is sent unchanged."""
    body = {"message": "Internal server error"} if outcome.body is None else outcome.body
    if isinstance(body, bytes):
        return Answer(outcome.status, body, headers=outcome.headers)
    told = body if isinstance(body, dict) else {}
    told = {"message": told.get("message"), "details": told.get("details", ())}
    return json_answer(body, status=outcome.status, headers=outcome.headers, **told)


Pause = Callable[[float], Awaitable[None]]


class NoAnswer(Response):
    """Closes the connection without a byte of answer, by the hook that the server puts into the
    request's state.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["close_connection"]()
        while (await receive())["type"] != "http.disconnect":
            pass


class Body(Response):
    """Sends an answer in its pieces, so no more is in memory.

    `pause` waits between the pieces of a drip.
    """

    def __init__(self, answer: Answer, pause: Pause | None = None) -> None:
        super().__init__(None, answer.status, answer.headers, answer.media_type)
        self.headers["content-length"] = str(answer.size)
        self._pieces = answer.pieces()
        self._spoilt = answer.spoilt
        self._pause = pause

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begin = {"type": "http.response.start", "status": self.status_code}
        await send({**begin, "headers": self.raw_headers})
        connection = scope["state"].get("connection")
        left = self._spoilt.after_bytes if isinstance(self._spoilt, Cut) else math.inf
        for piece in self._slices():
            if connection is not None and connection.lost:
                return
            if len(piece) >= left:
                await _send(send, piece[: int(left)])
                await NoAnswer()(scope, receive, send)
                return
            left -= len(piece)
            await _send(send, piece)
            if isinstance(self._spoilt, Drip) and self._pause is not None:
                await self._pause(self._spoilt.seconds)
        await send({"type": "http.response.body", "body": b""})

    def _slices(self) -> Iterator[bytes]:
        for piece in self._pieces:
            length = self._spoilt.piece_bytes if isinstance(self._spoilt, Drip) else len(piece)
            for start in range(0, len(piece), length or 1):
                yield piece[start : start + length]


async def _send(send: Send, piece: bytes) -> None:
    await send({"type": "http.response.body", "body": piece, "more_body": True})
