"""The one update that decides an event, and its conditions. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from linedesk.store.documents import Document

# A conversation keeps at least this many names of events, and up to twice as many: removing the
# oldest rewrites all others, also to the oplog.
APPLIED = 100
# The fields of a conversation before its first record.
NEW: Mapping[str, Any] = {
    "kind": None,
    "profile": None,
    "friend": None,
    "state": None,
    "data": {},
    "unsent": [],
}


def update_of(
    document: Mapping[str, Any],
    changes: Mapping[str, Any],
    effects: Sequence[tuple[str, Document]],
    *,
    gone: Sequence[str] = (),
    applied: Sequence[str],
    trims: bool,
) -> Document:
    """Return the update that records a recvq document, even if there is no conversation yet.

    `effects` come with their places in the outbox. `trims`: only the last names in `applied` are
    kept.
    """
    fields = {**named(document), **changes}
    sent = {f"outbox.{place}": effect for place, effect in effects}
    return {
        **({"$unset": dict.fromkeys(gone, "")} if gone else {}),
        "$set": {**fields, **sent, "at": datetime.now(UTC)},
        "$setOnInsert": {k: v for k, v in NEW.items() if k not in fields},
        "$inc": {"n": 1},
        "$push": {"applied": {"$each": applied, **({"$slice": -APPLIED} if trims else {})}},
    }


def unrecorded(document: Mapping[str, Any]) -> Document:
    """Return the conversation of a recvq document in which nothing is recorded yet."""
    nothing: Document = {"n": 0, "applied": [], "outbox": {}, "at": datetime.now(UTC)}
    return {**NEW, **named(document), **nothing}


def n_of(conversation: Mapping[str, Any] | None) -> int:
    """Return how many records a conversation has; 0 for one that does not exist yet."""
    return int((conversation or {}).get("n") or 0)


def still(n: int | None) -> Document:
    """The condition that a conversation has this many records; any number for None."""
    if n is None:
        return {}
    return {"n": n or {"$in": [0, None]}}


def named(document: Mapping[str, Any]) -> Document:
    """Return a document's fields of its conversation: channel, key and, if known, kind.

    The kind is user, group or room, as in LINE's source.
    """
    names = {"channel": document["channel"], "key": document["key"]}
    source = document["event"].get("source")
    kind = source.get("type") if isinstance(source, Mapping) else None
    return {**names, "kind": kind} if isinstance(kind, str) else names
