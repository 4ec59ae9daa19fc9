"""An insert and the death of its primary: stored documents survive any death."""

import pytest
from pymongo.errors import PyMongoError

from linedesk.setup.collections import create_collections
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import RECVQ, Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.insert import insert_documents
from tests.linedesk.store.conftest import MakeDocument
from tests.linedesk.store.lagging import LaggingSet
from tests.rows import Db
from tests.waiting import eventually


@pytest.mark.timeout(240)
def test_what_counted_as_stored_outlives_its_primary(
    lagging: LaggingSet, document: MakeDocument
) -> None:
    """A copy that only the primary has vanishes with it; its redelivery did not count either."""
    database = lagging.client["failover"]
    create_collections(database, capped_bytes=MEGABYTE)
    accepted, refused = document("accepted"), document("refused")
    counted = ["accepted"]
    with lagging.electing():
        # A busy machine may confirm it later than in one try; without that it may vanish.
        eventually(lambda: insert(database, accepted), seconds=30)
        with lagging.held_back():
            counted += stored(database, refused)
            counted += stored(database, {**refused, "_id": "its redelivery"})
            lagging.kill_primary()
        found = eventually(lambda: names(database), seconds=60)
        assert set(counted) <= set(found)
        assert found == ["accepted"]
        eventually(lambda: insert(database, refused), seconds=30)
    assert names(database) == ["accepted", "refused"]


def insert(database: Db, one: Document) -> bool:
    """Whether it is confirmed."""
    try:
        insert_documents(database[RECVQ], [one], timeout_seconds=2.0)
    except StoreUnavailable:
        return False
    return True


def stored(database: Db, one: Document) -> list[str]:
    return [one["eventId"]] if insert(database, one) else []


def names(database: Db) -> list[str]:
    try:
        return [row["eventId"] for row in database[RECVQ].find().sort("$natural", 1)]
    except PyMongoError:
        return []
