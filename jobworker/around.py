"""What a talk reaches beyond its event: the conversation, LINE, the time, what the operator set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from jobworker.conversations import Conversation
from jobworker.errors import NobodyToAnswer


def no_content(*_: Any, **__: Any) -> Any:
    """Stands for LINE's data host where there is none."""
    raise NobodyToAnswer("there is no data host to fetch content from")


@dataclass(frozen=True)
class Around:
    """What a talk reaches beyond its event.

    `load` reads the conversation, `api` gives the SDK's client, `content` fetches what a user
    sent, `now` tells the time that timers are set by.
    """

    load: Callable[[], Conversation]
    api: Callable[[], Any]
    content: Callable[..., Any] = no_content
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    per_member: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
