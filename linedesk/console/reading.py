"""Reads of rows that are only shown: `status`, `jobs`, `calls`, `history`, the newest of recvq."""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.store.documents import Document


def reported(database: Database[Any], name: str) -> Collection[Document]:
    """A collection whose rows are read as the server that is asked has them.

    They are written without waiting for a majority. In a set without a majority, majority reads
    would show them standing still, just when an operator looks.
    """
    return database[name].with_options(read_concern=ReadConcern("local"))
