"""Dead letters grouped by their cause and the line of code where they failed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pymongo
from pymongo.database import Database

from linedesk.console.dead_letters import FRAME, explained
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.store.documents import DEADLETTERS, Document
from linedesk.store.errors import translated
from linedesk.store.records.letters import LAST_AT, REPLAYED_AT

# With their tracebacks some 5 MB.
NEWEST_LETTERS = 2_000
READ_SECONDS = 10.0
# The cause of letters that were made by hand.
NO_CAUSE = mark("no cause given")


@dataclass(frozen=True)
class LetterGroup:
    """Letters of one cause and one line of code."""

    cause: str
    where: str
    """`main.py:12 in handle`; empty where no code of the bot failed."""
    count: int
    first_at: datetime | None
    """The time at which the oldest of them was given up."""
    last_at: datetime | None
    newest: str
    """The id of the newest one."""

    @property
    def explained(self) -> str:
        """The cause with its meaning, translated."""
        return explained(self.cause) if self.cause else _(NO_CAUSE)


def letter_groups(database: Database[Any]) -> list[LetterGroup]:
    """Return the groups of the newest letters that were not replayed, the largest group first.

    Raises StoreUnavailable.
    """
    found = defaultdict[tuple[str, str], list[Document]](list)
    for row in _open_letters(database):
        found[_cause(row), where_failed(row.get("traceback"))].append(row)
    groups = [_group(cause, where, rows) for (cause, where), rows in found.items()]
    return sorted(groups, key=lambda one: (-one.count, one.cause, one.where))


def ids_in(
    database: Database[Any], cause: str, where: str, *, until: datetime | None = None
) -> list[str]:
    """Return the ids of a group, the oldest first, without letters given up later than `until`.

    Raises StoreUnavailable.
    """
    rows = _open_letters(database, cause=cause, until=until)
    fits = [row["_id"] for row in rows if where_failed(row.get("traceback")) == where]
    return fits[::-1]


def where_failed(traceback: Any) -> str:
    """Return the innermost frame of a traceback, without the error's message. Pure."""
    if not isinstance(traceback, str):
        return ""
    frames = [line for line in traceback.splitlines() if FRAME.match(line)]
    if not frames:
        return ""
    # `  File "/srv/bot/main.py", line 12, in handle`
    _, _, rest = frames[-1].partition('"')
    path, _, rest = rest.rpartition('"')
    number, _, function = rest.removeprefix(", line ").partition(", in ")
    file = path.rpartition("/")[2]
    return f"{file}:{number} in {function}" if function else f"{file}:{number}"


def _open_letters(
    database: Database[Any], *, cause: str | None = None, until: datetime | None = None
) -> list[Document]:
    query: Document = {REPLAYED_AT: None}
    if cause is not None:
        query["cause"] = cause or {"$in": [None, ""]}
    if until is not None:
        query[LAST_AT] = {"$lte": until}
    fields = ["cause", "traceback", LAST_AT]
    with translated(), pymongo.timeout(READ_SECONDS):
        rows = database[DEADLETTERS].find(query, fields)
        return list(rows.sort(LAST_AT, -1).limit(NEWEST_LETTERS))


def _cause(row: Mapping[str, Any]) -> str:
    return str(row.get("cause") or "")


def _group(cause: str, where: str, rows: list[Document]) -> LetterGroup:
    """`rows` have the newest first."""
    ages = _moments(row.get(LAST_AT) for row in rows)
    return LetterGroup(
        cause=cause,
        where=where,
        count=len(rows),
        first_at=min(ages, default=None),
        last_at=max(ages, default=None),
        newest=str(rows[0]["_id"]),
    )


def _moments(values: Iterable[Any]) -> list[datetime]:
    return [one for one in values if isinstance(one, datetime)]
