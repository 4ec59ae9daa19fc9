"""The one update that decides an event, and what it goes by. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from linedesk.store.documents import Document

# Names of events that a conversation keeps at least. It has up to twice as many: taking the oldest
# away writes all others anew, also to the oplog.
APPLIED = 100
# What a conversation holds of its people before anything was recorded.
NEW: Mapping[str, Any] = {
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
    epoch: int,
) -> Document:
    """What the record of a recvq document writes, also where there is no conversation yet.

    `effects` come with their places in the outbox. `trims`: of the names in `applied` the last ones
    stay.
    """
    fields = {**named(document), **changes}
    sent = {f"outbox.{place}": effect for place, effect in effects}
    empty = {**NEW, "kind": None}
    return {
        **({"$unset": dict.fromkeys(gone, "")} if gone else {}),
        "$set": {**fields, **sent, "epoch": epoch, "at": datetime.now(UTC)},
        "$setOnInsert": {k: v for k, v in empty.items() if k not in fields},
        "$inc": {"n": 1},
        "$push": {"applied": {"$each": applied, **({"$slice": -APPLIED} if trims else {})}},
    }


def unrecorded(document: Mapping[str, Any]) -> Document:
    """The conversation of a recvq document in which nothing is recorded yet."""
    nothing: Document = {"n": 0, "applied": [], "outbox": {}, "at": datetime.now(UTC)}
    return {**NEW, "kind": None, **named(document), **nothing}


def n_of(conversation: Mapping[str, Any] | None) -> int:
    """How many records a conversation has, also one that is not there yet."""
    return int((conversation or {}).get("n") or 0)


def epoch_of(conversation: Mapping[str, Any]) -> int:
    """The epoch that stands there; 0 in one that was made by hand and has none."""
    epoch = conversation.get("epoch")
    return epoch if isinstance(epoch, int) else 0


def still(n: int | None) -> Document:
    """The condition that a conversation has as many records; None if it may have any number."""
    if n is None:
        return {}
    return {"n": n or {"$in": [0, None]}}


def named(document: Mapping[str, Any]) -> Document:
    """What a document says of its conversation: channel, key and, as far as it tells, kind.

    The kind is user, group or room, as LINE's source says.
    """
    names = {"channel": document["channel"], "key": document["key"]}
    source = document["event"].get("source")
    kind = source.get("type") if isinstance(source, Mapping) else None
    return {**names, "kind": kind} if isinstance(kind, str) else names
