"""`answers` in `conversations`: answers that wait for a tap on their button. Pure.

    answers: {"<event>": {state, at, send?, by?}}

The name is that of the answered event. `jobworker.record.waiting_answers` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from typing import Any, Final

from linedesk.store.documents import Document, text_of

ANSWERS: Final = "answers"
STATE: Final = "state"
SEND: Final = "send"
"""The answer, as an effect, while it waits."""
BY: Final = "by"
"""The tap that requested it; None if the answer was sent without one."""
KEPT_FOR = timedelta(days=1)
"""How long an answer waits for a tap, and how long its end is stored."""

WITH_ANSWERS: Mapping[str, Any] = {ANSWERS: {"$gt": {}}}
"""Conversations with answers. The partial index has this filter; fast queries need it."""


class AnswerState(Enum):
    """The state of an answer."""

    OFFERED = "offered"
    """The button was sent, or may have been; the event is not decided."""
    SHOWN = "shown"
    """LINE has shown the button; the event is not decided."""
    WAITING = "waiting"
    """The answer waits for a tap."""
    TAKEN = "taken"
    """The answer is in the outbox, or has left it."""


# The prefix of a button's postback data; bots must not use it.
PREFIX = "linedesk:answer:"
# LINE's ids and ObjectIds, which are valid field names.
_PLAIN = re.compile(r"[A-Za-z0-9_-]{1,100}")


def can_be_offered(name: str) -> bool:
    """Whether an event's name is valid in `answers` and in a button's data."""
    return _PLAIN.fullmatch(name) is not None


def data_of(name: str) -> str:
    """The postback data of the button for an event's answer; LINE's limit is 300 characters."""
    return f"{PREFIX}{name}"


def tapped_in(event: Mapping[str, Any]) -> str | None:
    """The name of the event whose button was tapped; None for every other event."""
    data = text_of(event, "postback", "data")
    if event.get("type") != "postback" or data is None or not data.startswith(PREFIX):
        return None
    return data.removeprefix(PREFIX)


def state_of(entry: Any) -> AnswerState | None:
    """The state of an entry; None for an invalid entry made by hand."""
    state = entry.get(STATE) if isinstance(entry, Mapping) else None
    return next((one for one in AnswerState if one.value == state), None)


def waiting_in(conversation: Mapping[str, Any]) -> list[tuple[str, Document]]:
    """The answers of a conversation that wait for a tap, each with its event's name."""
    answers = conversation.get(ANSWERS)
    entries = answers.items() if isinstance(answers, Mapping) else ()
    return [(name, one) for name, one in entries if state_of(one) is AnswerState.WAITING]
