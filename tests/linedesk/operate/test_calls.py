"""The filter of MongoDB and the display of a row agree on the calls that LINE took."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from linedesk.operate.calls import Wanted, newest_calls
from linedesk.store.documents import CALLS
from linedesk.store.records.calls import is_taken

STATUSES = (None, 0, 199, 200, 202, 299, 300, 400, 409, 429, 500, "200")


def test_failed_are_those_that_are_not_taken(database: Database[Any]) -> None:
    database[CALLS].insert_many([{"status": status} for status in STATUSES])
    failed = [row["status"] for row in newest_calls(database, Wanted(failed=True))]
    assert failed == [status for status in reversed(STATUSES) if not is_taken(status)]
