"""The bot's answers to an event, in a form for tests. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from linedesk.store.documents import Document
from linedesk.store.records.answers import PREFIX
from linedesk.store.records.timers import RUN_AT

BRACES = re.compile(r"\{\{|\}\}|\{(\w+)\}")
Shown = str | Document
"""A text message by its text, a mention in it as "@U1"; any other message as LINE's JSON."""


@dataclass(frozen=True)
class Sent:
    """One send of the bot. `to` is the user, group or room; for a multicast the users."""

    to: str | tuple[str, ...]
    way: str
    """reply, push or multicast."""
    messages: tuple[Document, ...]
    """The messages as LINE's JSON."""

    @property
    def shown(self) -> list[Shown]:
        """The messages, texts as texts."""
        return [_text_of(one) or one for one in self.messages]


@dataclass(frozen=True)
class Answers:
    """The bot's sends for one event, or for the timers that fired, in order."""

    sent: tuple[Sent, ...] = ()

    @property
    def replies(self) -> list[Shown]:
        """The messages sent by the event's reply token, which are free."""
        return list(_shown(one for one in self.sent if one.way == "reply"))

    @property
    def pushes(self) -> list[Shown]:
        """The messages sent as a push or a multicast, which count against the quota."""
        return list(_shown(one for one in self.sent if one.way != "reply"))

    @property
    def texts(self) -> list[str]:
        """Every text, replied or pushed."""
        return [one for one in _shown(self.sent) if isinstance(one, str)]

    @property
    def messages(self) -> list[Document]:
        """Every message as LINE's JSON."""
        return [message for one in self.sent for message in one.messages]


@dataclass(frozen=True)
class Waiting:
    """A waiting timer: its next time, and the daily time of a daily one."""

    name: str
    at: datetime
    every: str | None
    """The time and zone of a daily timer, such as "07:30 Asia/Tokyo"."""
    data: Document

    @classmethod
    def from_row(cls, row: Document) -> Waiting:
        """Read a waiting row of `schedule`."""
        every = row["every"]
        told = f"{every['at']} {every['tz']}" if every else None
        return cls(row["name"], row[RUN_AT].astimezone(UTC), told, row["data"])


def _text_of(message: Document) -> str | None:
    """The text that a user sees, without LINE's emojis; None for other messages."""
    if message.get("type") != "textV2":
        return message["text"] if message.get("type") == "text" else None
    parts = (message.get("substitution") or {}).items()
    people = {name: one.get("mentionee") for name, one in parts}
    shown = {name: f"@{one.get('userId', 'all')}" if one else "" for name, one in people.items()}
    # A doubled brace stands for itself.
    return BRACES.sub(lambda found: shown.get(found[1], found[0][0]), str(message["text"]))


def answer_data_in(message: Document) -> str | None:
    """The data of the button for a slow answer; None for other messages."""
    actions = (message.get("template") or {}).get("actions") or ()
    data = [one.get("data") for one in actions]
    return next((one for one in data if isinstance(one, str) and one.startswith(PREFIX)), None)


def _shown(sent: Iterable[Sent]) -> Iterator[Shown]:
    for one in sent:
        yield from one.shown
