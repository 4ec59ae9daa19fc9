"""The drain on a real MongoDB: everything arrives, in order, once, drained by any remaining
process.
"""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import bson
import pytest

from linedesk.store.errors import RecvqClosed
from linedesk.store.insert import insert_documents
from linedesk.store.spool import drain as drain_module
from linedesk.store.spool.drain import Drain
from linedesk.store.spool.spool import Spool
from tests.linedesk.store.spool.test_spool import MEGABYTE, raw
from tests.linedesk.store.spool.test_spool import path as path
from tests.linedesk.store.spool.test_spool import spool as spool
from tests.rows import Db
from tests.waiting import eventually

Inserting = Callable[[int], AbstractContextManager[None]]

pytestmark = pytest.mark.usefixtures("nothing_left")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_module, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(drain_module, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(drain_module, "LONGEST_PAUSE_SECONDS", 0.05)


@contextmanager
def draining(
    path: Path, database: Db, inserting: Inserting = lambda size: nullcontext()
) -> Iterator[Drain]:
    spool = Spool(path, max_bytes=64 * MEGABYTE)
    drain = Drain(spool, database, inserting=inserting)
    drain.start()
    try:
        yield drain
    finally:
        drain.stop()
        drain.join(10)


def stored(database: Db) -> list[str]:
    return [document["eventId"] for document in database["recvq"].find().sort("$natural", 1)]


def in_file(path: Path, statement: str, *given: Any) -> Any:
    """Run a statement on the spool's file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(statement, given).fetchone()


def test_what_is_spooled_arrives_in_order_as_it_was(
    spool: Spool, path: Path, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [raw(str(number), key=f"U{number % 5}") for number in range(100)]
    spool.append(documents)
    monkeypatch.setattr(drain_module, "BATCH_DOCUMENTS", 7)
    with draining(path, database) as drain:
        eventually(lambda: not spool.held().documents)
        eventually(lambda: not drain.held.documents)
    assert list(database["recvq"].find()) == [
        bson.decode(document.raw, database.codec_options) for document in documents
    ]


def test_what_was_inserted_and_not_removed_is_inserted_once(
    spool: Spool, path: Path, database: Db
) -> None:
    documents = [raw(str(number)) for number in range(10)]
    # Without LINE's id the log has the document's own.
    documents[3] = raw("")
    spool.append(documents)
    insert_documents(database["recvq"], documents[:6], timeout_seconds=5)
    with draining(path, database):
        eventually(lambda: not spool.held().documents)
    ids = [document["_id"] for document in database["recvq"].find().sort("$natural", 1)]
    assert ids == [document["_id"] for document in documents]


def test_a_drain_frozen_amid_a_batch_is_replaced_and_doubles_nothing(
    spool: Spool, path: Path, database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_module, "STILL_SECONDS", 0.2)
    frozen, goes_on = threading.Event(), threading.Event()

    @contextmanager
    def freezing(size: int) -> Iterator[None]:
        frozen.set()
        assert goes_on.wait(20)
        yield

    spool.append([raw("a"), raw("b")])
    with draining(path, database, freezing) as first:
        assert frozen.wait(10)
        with draining(path, database):
            eventually(lambda: stored(database) == ["a", "b"])
            eventually(lambda: not spool.held().documents)
        # No process drains new documents, and the thawed one may only remove the documents it had
        # read.
        spool.append([raw("c")])
        goes_on.set()
        first.wake()
        eventually(lambda: stored(database) == ["a", "b", "c"])


def test_a_document_that_mongodb_rejects_is_set_apart_and_logged(
    spool: Spool, path: Path, database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    too_large = raw("large", text="x" * (16 * MEGABYTE))
    spool.append([raw("a"), too_large, raw("b")])
    with draining(path, database):
        eventually(lambda: not spool.held().documents)
    assert stored(database) == ["a", "b"]
    [record] = [r for r in caplog.records if r.levelname == "ERROR"]
    assert "event_id=large" in record.getMessage()
    found = in_file(path, "SELECT count(*), sum(length(bson)) FROM refused")
    assert found == (1, len(too_large.raw))


def test_bytes_that_only_resemble_a_document_block_no_others_as_the_oldest(
    spool: Spool, path: Path, database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="linedesk")
    spool.append([raw("a"), raw("b")])
    # The length is right and the first field's type is none of BSON's.
    broken = bytearray(raw("a").raw)
    broken[4] = 0xEE
    in_file(path, "UPDATE spool SET bson = ? WHERE n = 1", bytes(broken))
    with draining(path, database) as drain:
        assert spool.held().oldest_seconds == 0
        eventually(lambda: stored(database) == ["b"])
        eventually(lambda: "spool is empty" in caplog.text)
        assert not drain.dead
    assert "set apart event_id=unknown" in caplog.text


def test_a_batch_larger_than_the_room_in_recvq_comes_in_parts(
    spool: Spool, path: Path, database: Db
) -> None:
    @contextmanager
    def with_little_room(size: int) -> Iterator[None]:
        if size > 20_000:
            raise RecvqClosed("recvq is full: 97% of it is unread")
        yield

    spool.append([raw(f"{number:02}", text="x" * 5_000) for number in range(12)])
    with draining(path, database, with_little_room):
        eventually(lambda: not spool.held().documents)
    assert stored(database) == [f"{number:02}" for number in range(12)]
