"""Which dead letters an act is about, and reading them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo import ASCENDING, DESCENDING
from pymongo.collection import Collection

from console.errors import NoSuchLetter
from console.letters import LISTED
from recvq.documents import Document
from recvq.errors import translated

FIRST = datetime(1970, 1, 1, tzinfo=UTC)
UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


@dataclass(frozen=True)
class Choice:
    """Which dead letters an act is about."""

    ids: Sequence[str] = ()
    cause: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    everything: bool = False
    """Those that were replayed, too."""
    limit: int = 0
    """0: all of them."""

    @property
    def is_open(self) -> bool:
        """Whether nothing narrows it down."""
        return not self.ids and not any((self.cause, self.since, self.until))

    def query(self) -> Document:
        """The filter for MongoDB. Letters named by their ids count whether replayed or not."""
        query: Document = {}
        if self.ids:
            query["_id"] = {"$in": list(self.ids)}
        elif not self.everything:
            query["replayedAt"] = None
        if self.cause:
            query["cause"] = {"$regex": re.escape(self.cause)}
        # Always bounded: only then does MongoDB look for the cause in the index itself.
        query["lastAt"] = {"$gte": self.since or FIRST}
        if self.until:
            query["lastAt"]["$lt"] = self.until
        return query


def moment_of(text: str, *, now: datetime) -> datetime:
    """A moment as an operator writes it: 45s, 30m, 2h or 3d ago, or ISO 8601, local without a zone.

    Raises ValueError.
    """
    ago = re.fullmatch(r"(\d{1,6})([smhd])", text.strip())
    if ago:
        return now - timedelta(**{UNITS[ago[2]]: int(ago[1])})
    return datetime.fromisoformat(text.strip()).astimezone(UTC)


def found(
    letters: Collection[Any], choice: Choice, *, newest_first: bool = False
) -> list[Document]:
    """What a list needs of each letter: the contents stay where they are."""
    order = DESCENDING if newest_first else ASCENDING
    with translated():
        return list(
            letters.find(choice.query(), list(LISTED)).sort("lastAt", order).limit(choice.limit)
        )


def whole(letters: Collection[Any], id_: str) -> Document | None:
    """One letter with all that it holds; None where it is not there."""
    with translated():
        found: Document | None = letters.find_one({"_id": id_})
    return found


def all_of(rows: list[Document], choice: Choice) -> list[Document]:
    """The rows themselves. Raises NoSuchLetter where an id that was asked for is not there."""
    unknown = [id_ for id_ in choice.ids if id_ not in {row["_id"] for row in rows}]
    if unknown:
        raise NoSuchLetter(unknown)
    return rows
