"""Answers to calls before they are HTTP: a status, headers and bytes."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from linesim.errors import LineError
from linesim.faults import Cut, Drip, Status
from linesim.media import Medium


@dataclass(frozen=True)
class Answer:
    """`medium` is sent in the place of `content`; `spoilt` says how the body goes wrong."""

    status: int
    content: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None
    medium: Medium | None = None
    spoilt: Cut | Drip | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is sent in one piece."""
        return self.medium is None and self.spoilt is None

    @property
    def size(self) -> int:
        return self.medium.size if self.medium else len(self.content)

    def pieces(self) -> Iterator[bytes]:
        return self.medium.pieces() if self.medium else iter([self.content])


def json_answer(body: Any, *, status: int = 200) -> Answer:
    return Answer(status, json.dumps(body, ensure_ascii=False).encode())


def refusal(error: LineError) -> Answer:
    content = json.dumps(error.body(), ensure_ascii=False).encode()
    return Answer(error.status, content, headers=error.headers, message=error.message)


def planned(outcome: Status) -> Answer:
    """The answer of a planned fault; a body that is bytes goes out as it is."""
    body = {"message": "Internal server error"} if outcome.body is None else outcome.body
    content = body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode()
    message = body.get("message") if isinstance(body, dict) else None
    return Answer(outcome.status, content, headers=outcome.headers, message=message)
