"""Answers to calls before they are HTTP: a status, headers and bytes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from linesim.errors import LineError
from linesim.faults import Status


@dataclass(frozen=True)
class Answer:
    status: int
    content: bytes
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    message: str | None = None


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
