"""A database, and the rows of `jobs` and `calls`, taken out of their documents."""

from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.read_concern import ReadConcern

from linedesk.operate.reading import TAKE_APART
from linedesk.store.documents import Document
from linedesk.store.records.rows import documents_of

Db = Database[Any]


def rows_of(collection: Collection[Any], **wanted: Any) -> list[Document]:
    """The rows with these fields on the primary, the oldest first."""
    local = collection.with_options(read_concern=ReadConcern("local"))
    stages = [*TAKE_APART, {"$match": wanted}]
    return list(local.aggregate(stages, hint={"$natural": -1}))[::-1]


def put_rows(collection: Collection[Any], *rows: Document, alone: int = 0) -> None:
    """Insert rows as the processes do, the first `alone` of them as earlier releases did."""
    old, new = rows[:alone], rows[alone:]
    collection.insert_many([*old, *documents_of(new)])
