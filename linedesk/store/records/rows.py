"""The documents of `jobs` and `calls`: each has many rows.

A document is `{usual, rows}`: `usual` has the values that most of its rows share, and a row has
only those of its fields that differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import bson

from linedesk.store.records.calls import PAID

ROWS: Final = "rows"
USUAL: Final = "usual"
MOST_ROWS: Final = 500
MOST_BYTES: Final = 256 * 1024

# Fields of few values, each a text, a number or null.
SHARED: Final = (
    *("channel", "type", "attempt", "outcome", "effects", "error", "thread"),
    *("method", "endpoint", "status", "class", PAID),
)


def documents_of(rows: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """The documents for rows, the oldest first. Raises the errors of BSON."""
    batch: list[Mapping[str, Any]] = []
    size = 0
    for row in rows:
        own = len(bson.encode(row))
        if batch and (len(batch) == MOST_ROWS or size + own > MOST_BYTES):
            yield _document(batch)
            batch, size = [], 0
        batch.append(row)
        size += own
    if batch:
        yield _document(batch)


def _document(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    usual: dict[str, Any] = {}
    for name in SHARED:
        if all(name in row for row in rows):
            value, times = Counter(row[name] for row in rows).most_common(1)[0]
            usual |= {name: value} if times > 1 else {}
    differing = [
        {name: row[name] for name in row if name not in usual or row[name] != usual[name]}
        for row in rows
    ]
    return {**({USUAL: usual} if usual else {}), ROWS: differing}
