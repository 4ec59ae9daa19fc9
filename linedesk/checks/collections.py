"""Whether the database is as `linedesk init` makes it."""

from __future__ import annotations

from linedesk.checks.box import Box
from linedesk.checks.finding import Finding, bad, ok, size
from recvq.collections import NEIGHBOURS, check_recvq, wrong_indexes, wrong_neighbours
from recvq.documents import RECVQ
from recvq.errors import WrongCollection
from recvq.shape import read_shape, require_schema


def recvq(box: Box) -> Finding:
    """Capped, with its unique index: what every writer demands before it inserts."""
    try:
        check_recvq(box.database)
    except WrongCollection as error:
        return bad("not as it must be", str(error))
    shape = read_shape(box.database)
    assert shape is not None, "check_recvq refuses one that is not there"
    return ok(f"capped at {size(shape.capped_bytes)}, {shape.documents:,} documents")


def schema(box: Box) -> Finding:
    """Whether this release knows how the documents are written. Raises NewerSchema."""
    found = require_schema(box.database)
    return ok("no dispatcher has run yet" if found is None else f"{found}, known to this release")


def others(box: Box) -> Finding:
    """All other collections, and every index."""
    wrong = [*wrong_indexes(box.database, RECVQ), *wrong_neighbours(box.database)]
    if wrong:
        return bad(f"missing or otherwise: {', '.join(wrong)}", "`linedesk init` makes them")
    return ok(f"{len(NEIGHBOURS)} collections and their indexes")
