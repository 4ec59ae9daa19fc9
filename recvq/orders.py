"""The words in which an operator orders something, and the rows of `control` that say them. Pure.

A row that was typed in a shell and is not whole is no order: half a word stops nobody.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from recvq.documents import Document
from recvq.errors import NotAScope

PAUSE = "pause"
RELEASE = "release"
ALL = "all"
RELEASED = "released by an operator"
"""The cause of a dead letter that a release has made."""

Head = Literal["eventId", "effectId"]
"""What a release gives up: the first event in line, or the first send of an outbox."""


@dataclass(frozen=True)
class Scope:
    """What a pause covers: one conversation, a whole channel, or everything."""

    channel: str | None = None
    key: str | None = None

    @classmethod
    def parse(cls, words: str | None) -> Scope:
        """`main/U…`, `main`, or `all`, which is also what nothing means. Raises NotAScope."""
        if words is None or words in ("", ALL):
            return cls()
        channel, slash, key = words.partition("/")
        if not channel or (slash and not key):
            raise NotAScope(words)
        return cls(channel, key or None)

    def __str__(self) -> str:
        return "/".join(filter(None, (self.channel, self.key))) or ALL

    @property
    def id(self) -> str:
        """The `_id` of its pause in `control`."""
        return "/".join(filter(None, (PAUSE, self.channel, self.key)))

    def covers(self, channel: Any, key: Any) -> bool:
        """Whether a conversation is within it."""
        return self.channel in (None, channel) and self.key in (None, key)


@dataclass(frozen=True)
class Pause:
    """One pause: by whom, why and since when, as far as the row tells."""

    scope: Scope
    by: str = ""
    why: str = ""
    at: datetime | None = None

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Pause | None:
        """The pause that a row orders; None where it is not whole."""
        if row.get("act") != PAUSE or "channel" not in row or "key" not in row:
            return None
        scope = Scope(row["channel"], row["key"])
        if not _is_whole(scope) or row.get("_id") != scope.id:
            return None
        at = row.get("at")
        return cls(
            scope,
            by=str(row.get("by") or ""),
            why=str(row.get("why") or ""),
            at=at if isinstance(at, datetime) else None,
        )


@dataclass(frozen=True)
class Pauses:
    """All pauses of one moment."""

    rows: tuple[Pause, ...] = ()

    @cached_property
    def _scopes(self) -> frozenset[tuple[str | None, str | None]]:
        return frozenset((one.scope.channel, one.scope.key) for one in self.rows)

    def __bool__(self) -> bool:
        return bool(self.rows)

    def covers(self, channel: Any, key: Any) -> bool:
        """Whether the conversation is paused, by itself or with others."""
        scopes = self._scopes
        if not scopes:
            return False
        return (None, None) in scopes or (channel, None) in scopes or (channel, key) in scopes

    def covering(self, channel: Any, key: Any) -> list[Pause]:
        """Those that keep a conversation paused, the widest first."""
        return [one for one in self.rows if one.scope.covers(channel, key)]

    def as_rows(self) -> list[Document]:
        """What is paused, as the dispatcher's row in `status` tells it."""
        return [{"channel": one.scope.channel, "key": one.scope.key} for one in self.rows]


NO_PAUSES = Pauses()


@dataclass(frozen=True)
class Release:
    """The order to give up what a conversation is stuck on: the head that the operator saw."""

    channel: str
    key: str
    head: Head
    name: str
    """The id of that event or send."""
    by: str
    at: datetime
    """When it was ordered; with the conversation it tells this release from every other."""

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Release | None:
        """The release that a row orders; None where it is not whole."""
        channel, key, what, at = (row.get(name) for name in ("channel", "key", "what", "at"))
        if row.get("act") != RELEASE or not isinstance(at, datetime):
            return None
        if not (isinstance(channel, str) and isinstance(key, str) and isinstance(what, Mapping)):
            return None
        for head in ("eventId", "effectId"):
            if len(what) == 1 and isinstance(what.get(head), str):
                found = cls(channel, key, head, what[head], str(row.get("by") or ""), at)
                return found if row.get("_id") == found.id else None
        return None

    @property
    def id(self) -> str:
        """The `_id` of its row."""
        return f"{RELEASE}/{self.channel}/{self.key}"

    @property
    def conversation(self) -> str:
        """The `_id` of its conversation."""
        return f"{self.channel}/{self.key}"


@dataclass(frozen=True)
class Orders:
    """All that is ordered at one moment, and not carried out yet."""

    pauses: Pauses = NO_PAUSES
    releases: tuple[Release, ...] = ()


def _is_whole(scope: Scope) -> bool:
    """Whether both are names or nothing, and no key stands without its channel."""
    channel, key = scope.channel, scope.key
    named = all(one is None or (isinstance(one, str) and one) for one in (channel, key))
    return named and (channel is not None or key is None)
