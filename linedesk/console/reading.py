"""Reading what is only looked at: rows of `status`, `jobs`, `calls`, `history`, and the newest of
recvq.
"""

from __future__ import annotations

from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.store.documents import Document


def told_in(database: Database[Any], name: str) -> Collection[Document]:
    """One of them, read as it stands on the server that is asked.

    Rows are written without waiting for a majority. Where a set has lost its majority, whoever
    reads by it would see them stand still, and just then a person looks.
    """
    return database[name].with_options(read_concern=ReadConcern("local"))
