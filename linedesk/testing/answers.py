"""What came of an event, as a test reads it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from linedesk.store.documents import Document
from linedesk.store.records.answers import PREFIX
from linedesk.store.records.timers import RUN_AT

Shown = str | Document
"""A text message by its text, any other message as LINE's JSON."""


@dataclass(frozen=True)
class Sent:
    """One send of the bot's. `to` is the user, group or room; of a multicast the users."""

    to: str | tuple[str, ...]
    way: str
    """reply, push or multicast."""
    messages: tuple[Document, ...]
    """As LINE's JSON."""

    @property
    def shown(self) -> list[Shown]:
        """The messages, texts as texts."""
        return [one["text"] if one.get("type") == "text" else one for one in self.messages]


@dataclass(frozen=True)
class Answers:
    """What the bot sent because of one event, or of the timers that rang meanwhile, in order."""

    sent: tuple[Sent, ...] = ()

    @property
    def replies(self) -> list[Shown]:
        """What was sent by the event's reply token, for free."""
        return list(_shown(one for one in self.sent if one.way == "reply"))

    @property
    def pushes(self) -> list[Shown]:
        """What was sent as a push or a multicast, which counts to the quota."""
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
    """A timer that waits: when it rings next, and for a daily one at which time it does."""

    name: str
    at: datetime
    every: str | None
    """Of a daily one the time and the zone, such as "07:30 Asia/Tokyo"."""
    data: Document

    @classmethod
    def from_row(cls, row: Document) -> Waiting:
        """Of a row in `schedule` that waits."""
        every = row["every"]
        told = f"{every['at']} {every['tz']}" if every else None
        return cls(row["name"], row[RUN_AT].astimezone(UTC), told, row["data"])


def answer_data_in(message: Document) -> str | None:
    """What the button of a slow answer sends; None for any other message."""
    actions = (message.get("template") or {}).get("actions") or ()
    data = [one.get("data") for one in actions]
    return next((one for one in data if isinstance(one, str) and one.startswith(PREFIX)), None)


def _shown(sent: Iterable[Sent]) -> Iterator[Shown]:
    for one in sent:
        yield from one.shown


def waiting(rows: Sequence[Document]) -> list[Waiting]:
    """The rows that wait as a test reads them, the next one first."""
    return sorted((Waiting.from_row(row) for row in rows), key=lambda one: (one.at, one.name))
