"""Reads of what is only shown: the rows of `status`, `jobs`, `calls` and recvq, and outboxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.store.documents import BATCHES, Document
from linedesk.store.records import batches
from linedesk.store.records.effects import effects_with_tries


def reported(database: Database[Any], name: str) -> Collection[Document]:
    """A collection whose rows are read as the server that is asked has them.

    They are written without waiting for a majority. In a set without a majority, majority reads
    would show them standing still, just when an operator looks.
    """
    return database[name].with_options(read_concern=ReadConcern("local"))


def outbox_of(database: Database[Any], conversation: Mapping[str, Any]) -> list[Document]:
    """What waits in a conversation that was read, in its order; each send with its try.

    Raises what the driver raises.
    """

    def is_ready(id_: str) -> bool:
        return database[BATCHES].find_one(batches.ready(id_), {"_id": 1}) is not None

    return [effect for _, effect in effects_with_tries(conversation, is_ready=is_ready)]
