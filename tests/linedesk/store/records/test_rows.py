"""The rows of `jobs` and `calls`: many in a document, and mixed with documents of one row."""

import json

import pytest

from linedesk.operate.reading import found_rows, naming, newest_rows, rows_in
from linedesk.store.documents import CALLS, JOBS, Document
from linedesk.store.records.rows import documents_of
from tests.linedesk.operate.hand import a_call, a_run
from tests.rows import Db, put_rows, rows_of

NEWEST = {"$natural": -1}


def calls(first: int, last: int) -> list[Document]:
    also = [{"eventId": "also", "key": "U2"}]
    return [a_call(f"{n}", **({"also": also} if n == 7 else {})) for n in range(first, last)]


@pytest.fixture
def mixed(database: Db) -> Db:
    """Rows of both forms, by turns."""
    for first in (0, 10, 20):
        put_rows(database[CALLS], *calls(first, first + 10), alone=3)
        put_rows(database[JOBS], *(a_run(f"{n}") for n in range(first, first + 10)), alone=3)
    return database


def plain(rows: list[Document]) -> list[Document]:
    return [{name: row[name] for name in row if name != "_id"} for row in rows]


def test_rows_are_read_as_they_were_written() -> None:
    rows = [
        a_run("1"),
        a_run("2", outcome="failed", error="KeyError", effects=0),
        {**a_run("3"), "gatheredWith": "1"},
        a_run("4", channel=None),
    ]
    assert [row for one in documents_of(rows) for row in rows_in(one)] == rows
    assert list(rows_in({"_id": 1, **rows[0]})) == rows[:1]
    assert list(documents_of([])) == []


def test_the_newest_come_first_also_within_a_document(mixed: Db) -> None:
    for limit in (5, 15, 100):
        rows = list(mixed[CALLS].aggregate(newest_rows(limit), hint=NEWEST))
        assert rows == plain(calls(0, 30))[::-1][:limit]
    assert rows_of(mixed[CALLS]) == plain(calls(0, 30))


@pytest.mark.parametrize("event", ["1", "5", "11", "29"])
def test_an_event_is_found_by_indexes_in_both_forms(mixed: Db, event: str) -> None:
    for name, wanted in ((JOBS, [{"eventId": event}]), (CALLS, naming(event))):
        stages = found_rows(*wanted)
        assert [row["eventId"] for row in mixed[name].aggregate(stages)] == [event]
        told = mixed.command(
            "explain",
            {"aggregate": name, "pipeline": stages, "cursor": {}},
            verbosity="executionStats",
        )
        assert "COLLSCAN" not in json.dumps(told, default=str)
        assert told["stages"][0]["$cursor"]["executionStats"]["totalDocsExamined"] <= 2
