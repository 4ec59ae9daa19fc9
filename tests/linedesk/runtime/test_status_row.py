"""A process's row in `status`: its fields, and that no thread ever waits for it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.collection import Collection
from pymongo.errors import AutoReconnect

from linedesk.runtime.metrics import MetricsSnapshot
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.service_manager import started_by
from linedesk.runtime.status_row import StatusRow
from linedesk.store.documents import STATUS, Document
from tests.rows import Db
from tests.waiting import eventually

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


class Rows:
    """`status`, with the states that were to be written; it refuses them while it `fails`."""

    def __init__(self, rows: Collection[Any]) -> None:
        self._rows = rows
        self.states: list[str] = []
        self.fails = False

    def with_options(self, **options: Any) -> Rows:
        self._rows = self._rows.with_options(**options)
        return self

    def update_one(self, which: Document, update: list[Document], **options: Any) -> Any:
        self.states.append(update[0]["$replaceWith"]["$literal"]["state"])
        if self.fails:
            raise AutoReconnect("planted")
        return self._rows.update_one(which, update, **options)


class Desk:
    """A row with its fields and the results of its writes."""

    def __init__(self, database: Db) -> None:
        self.rows = Rows(database[STATUS])
        self.told: Document = {"state": "working", "words": "3 in hand"}
        self.snapshot = MetricsSnapshot(at=AT, figures={"inHandDocuments": 3})
        self.row = StatusRow(
            self.rows,  # type: ignore[arg-type]
            "dispatcher",
            snapshot=lambda: self.snapshot,
            tell=lambda: self.told,
        )


@pytest.fixture
def desk(database: Db, nothing_left: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setattr("linedesk.runtime.status_row.EVERY_SECONDS", 0.01)
    one = Desk(database)
    yield one
    one.row.stop()
    assert one.row.join(5)


def test_it_has_identity_state_and_figures(desk: Desk, database: Db) -> None:
    desk.row.start()
    row = eventually(lambda: database[STATUS].find_one({"_id": desk.row.id}))
    assert row["_id"] == f"dispatcher/{row['host']}/{os.getpid()}"
    assert (row["role"], row["pid"], row["state"]) == ("dispatcher", os.getpid(), "working")
    assert (row["at"], row["words"], row["figures"]) == (AT, "3 in hand", {"inHandDocuments": 3})
    began = row["startedAt"]

    # Fields that are no longer reported are removed, and the start is kept.
    desk.told = {"state": "waiting", "words": "waiting for MongoDB", "waiting": [{"key": "U1"}]}
    desk.snapshot = MetricsSnapshot(at=AT + timedelta(seconds=1))
    row = eventually(lambda: database[STATUS].find_one({"state": "waiting"}))
    assert (row["figures"], row["waiting"], row["startedAt"]) == ({}, [{"key": "U1"}], began)
    desk.row.stop()
    assert desk.row.join(5)
    eventually(lambda: database[STATUS].find_one({"state": "ended"}))
    assert database[STATUS].count_documents({}) == 1


def test_a_failed_write_is_logged_once_and_does_not_delay_the_stop(
    desk: Desk, database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    desk.rows.fails = True
    desk.row.start()
    eventually(lambda: len(desk.rows.states) > 3)
    desk.row.stop()
    assert desk.row.join(5)
    assert caplog.text.count("status not written, trying again error=AutoReconnect") == 1
    # Not the last one, which would wait for MongoDB as long as the others did.
    assert "ended" not in desk.rows.states
    assert database[STATUS].count_documents({}) == 0


@pytest.mark.parametrize(
    ("key", "error"), [(object(), "InvalidDocument"), ("\ud800", "UnicodeEncodeError")]
)
def test_what_mongodb_could_never_hold_ends_no_thread(
    desk: Desk, database: Db, caplog: pytest.LogCaptureFixture, key: Any, error: str
) -> None:
    desk.told = {"state": "working", "waiting": [{"key": key}]}
    desk.row.start()
    eventually(lambda: f"status not written, trying again error={error}" in caplog.text)
    # It is no outage, and hides none.
    MONGODB.fails("feed unavailable", "no answer")
    assert "MongoDB cannot be used: feed unavailable" in caplog.text
    MONGODB.works("feed unavailable")
    assert caplog.text.count(f"status not written, trying again error={error}") == 1
    desk.told = {"state": "working"}
    eventually(lambda: database[STATUS].find_one({"state": "working"}))


@pytest.mark.parametrize(
    ("environ", "parent", "told"),
    [
        ({"INVOCATION_ID": "a1"}, 1, "systemd"),
        # A shell within a service inherits it.
        ({"INVOCATION_ID": "a1"}, 4711, "hand"),
        ({}, 1, "hand"),
        ({}, 4711, "hand"),
        ({"LINEDESK_STARTED_BY": "up"}, 4711, "up"),
        # `linedesk up` may itself be a service.
        ({"LINEDESK_STARTED_BY": "up", "INVOCATION_ID": "a1"}, 4711, "up"),
    ],
)
def test_a_row_has_what_started_its_process(
    environ: dict[str, str], parent: int, told: str
) -> None:
    assert started_by(environ, parent=parent) == told
