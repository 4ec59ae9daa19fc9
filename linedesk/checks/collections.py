"""Whether the database is as `linedesk init` makes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymongo.database import Database

from linedesk.checks.box import Box
from linedesk.checks.finding import Finding, bad, ok, size
from recvq.collections import INDEXES, PLAIN, check_recvq
from recvq.documents import CALLS
from recvq.errors import WrongCollection
from recvq.shape import read_shape


def recvq(box: Box) -> Finding:
    """Capped, with its unique index: what every writer demands before it inserts."""
    try:
        check_recvq(box.database)
    except WrongCollection as error:
        return bad("not as it must be", str(error))
    shape = read_shape(box.database)
    assert shape is not None, "check_recvq refuses one that is not there"
    return ok(f"capped at {size(shape.capped_bytes)}, {shape.documents:,} documents")


def others(box: Box) -> Finding:
    """All other collections, and every index."""
    missing = list(_missing(box.database))
    if missing:
        return bad(f"missing: {', '.join(missing)}", "`linedesk init` makes them")
    return ok(f"{len(PLAIN) + 1} collections and their indexes")


def _missing(database: Database[Any]) -> Iterator[str]:
    found = {row["name"]: row.get("options", {}) for row in database.list_collections()}
    yield from (name for name in (CALLS, *PLAIN) if name not in found)
    for name, indexes in INDEXES.items():
        there = database[name].index_information() if name in found else {}
        absent = [one.options["name"] for one in indexes if one.options["name"] not in there]
        yield from (f"{name}'s index {index}" for index in absent if name in found)
