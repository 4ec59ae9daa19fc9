"""Dead letters: what was given up, with its cause. Writing one twice leaves one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection

from recvq.connect import DURABLE
from recvq.documents import Document, name_of
from recvq.errors import translated

TRACEBACK_CHARACTERS = 20_000


def of_event(
    document: Document, *, cause: str, traceback: str, attempts: int, first_at: datetime
) -> Document:
    """The effect "dead letter" of an event whose handler failed; its `id` is the event's name."""
    return {
        "id": name_of(document),
        "type": "deadletter",
        "document": document,
        "cause": cause,
        "traceback": _storable(traceback),
        "attempts": attempts,
        "firstAt": first_at,
        "lastAt": datetime.now(UTC),
    }


def of_send(effect: Mapping[str, Any], *, cause: str, attempts: int) -> Document:
    """The dead letter of a send that LINE refused for good; its `_id` is the effect's id."""
    return {
        "id": effect["id"],
        "effect": dict(effect),
        "cause": cause,
        "traceback": None,
        "attempts": attempts,
        "firstAt": effect["at"],
        "lastAt": datetime.now(UTC),
    }


def _storable(traceback: str) -> str:
    """Its end, as text that MongoDB takes whatever the error's message held."""
    return traceback[-TRACEBACK_CHARACTERS:].encode(errors="backslashreplace").decode()


class DeadLetters:
    """Writes to `deadletters`. Raises StoreUnavailable."""

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection.with_options(write_concern=DURABLE)

    def write(self, letter: Mapping[str, Any]) -> None:
        """Write a letter under its id; the same again changes nothing of what it says."""
        row = {name: value for name, value in letter.items() if name not in ("id", "type")}
        with translated():
            self._collection.update_one({"_id": letter["id"]}, {"$set": row}, upsert=True)
