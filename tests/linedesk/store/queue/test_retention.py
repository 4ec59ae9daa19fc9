"""The figures of capped collections, on a real server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import RECVQ
from linedesk.store.queue.usage import Span, oplog_span, recvq_span


def test_the_rate_since_the_oldest_entry_gives_the_time_an_entry_is_kept() -> None:
    span = Span(seconds=3600.0, bytes=36 * MEGABYTE, most_bytes=72 * MEGABYTE)
    assert span.bytes_per_second == pytest.approx(MEGABYTE / 100)
    assert span.keeps_seconds == pytest.approx(7200.0)


def test_recvqs_span_begins_with_its_oldest_document(database: Database[Any]) -> None:
    now = datetime.now(UTC)
    assert recvq_span(database, now=now) is None
    for age in (3600, 60, 7200):
        database[RECVQ].insert_one({"acceptTime": now - timedelta(seconds=age), "pad": "x" * 1000})
    span = recvq_span(database, now=now)
    assert span is not None
    # By the order in recvq, whatever the times in it say.
    assert span.seconds == pytest.approx(3600.0, abs=0.01)
    assert 3000 < span.bytes < 4000
    assert span.most_bytes == 16 * MEGABYTE


def test_the_oplog_is_that_of_the_server(client: Client) -> None:
    span = oplog_span(client)
    assert span is not None
    assert span.most_bytes == 200 * MEGABYTE
    assert span.bytes > 0
