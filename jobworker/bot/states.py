"""A conversation's state, how long it may last, and the bot's data.

In a group they belong to the group, or to each member if the bot says so. Pure.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from datetime import datetime
from typing import Any

from jobworker.errors import BotError
from jobworker.record.conversations import Conversation
from linedesk.store.documents import Document

STATE_TIMER = "~state"
"""The timer that ends a state; bots cannot use such a name."""


class StateSlot:
    """The state and data in a loaded conversation: the conversation's own, or one member's."""

    def __init__(self, conversation: Conversation, *, member: str | None) -> None:
        self._whole = conversation
        self._member = member

    @property
    def state(self) -> str | None:
        return self._whole.state if self._member is None else self._own.get("state")

    @property
    def until(self) -> datetime | None:
        """When the state ends by itself; None if it does not."""
        return self._whole.until if self._member is None else self._own.get("until")

    @property
    def data(self) -> Document:
        if self._member is None:
            return self._whole.data
        data: Document = self._own.setdefault("data", {})
        return data

    def move(self, state: str | None, until: datetime | None) -> None:
        if self._member is None:
            self._whole.state, self._whole.until = state, until
        else:
            self._own.update(state=state, until=until)

    @property
    def _own(self) -> MutableMapping[str, Any]:
        """The member's fields; an empty entry is not stored."""
        return self._whole.states.setdefault(self._member or "", {})


def checked_state(state: object) -> str:
    """Return a valid state. Raises BotError."""
    if not isinstance(state, str) or not state:
        raise BotError(f"a state is a text or None, not {state!r:.50}", reason="invalid state")
    return state


def without_empty(states: dict[str, Document]) -> dict[str, Document]:
    """The members' entries without empty ones."""
    return {who: place for who, place in states.items() if place.get("state") or place.get("data")}
