"""Whether the database is as `linedesk init` makes it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pymongo.database import Database

from linedesk.checks.box import Box
from linedesk.checks.finding import Finding, bad, ok, size
from recvq.collections import CAPPED_BYTES, INDEXES, PLAIN, Index, check_recvq
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
    wrong = list(_wrong(box.database))
    if wrong:
        return bad(f"missing or otherwise: {', '.join(wrong)}", "`linedesk init` makes them")
    return ok(f"{len(CAPPED_BYTES) + len(PLAIN)} collections and their indexes")


def _wrong(database: Database[Any]) -> Iterator[str]:
    found = {row["name"] for row in database.list_collections()}
    yield from (name for name in (*CAPPED_BYTES, *PLAIN) if name not in found)
    for name in sorted(found & INDEXES.keys()):
        there = database[name].index_information()
        for index in INDEXES[name]:
            if not is_as_made(index, there.get(index.options["name"], {})):
                yield f"{name}'s index {index.options['name']}"


def is_as_made(index: Index, found: Mapping[str, Any]) -> bool:
    """Whether an index as `index_information` tells it is this one; {} is none at all."""
    options = {name: value for name, value in index.options.items() if name != "name"}
    keys = [(name, int(order)) for name, order in found.get("key", ())]
    return keys == index.keys and all(found.get(name) == options[name] for name in options)
