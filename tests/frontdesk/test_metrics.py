"""A front desk's counts and measures, where they are reported, and that reporting blocks no
work.
"""

import time
import urllib.request
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from frontdesk.errors import NotStored
from frontdesk.metrics import REASONS, FrontdeskMetrics
from linedesk.runtime.metrics import MetricsSnapshots
from linedesk.setup.private_mongod import free_port
from linedesk.store.client import Client
from linedesk.store.documents import STATUS
from tests.dispatcher.faults import failing
from tests.frontdesk.desk import DeskProcess, signed_head, text_event, webhook
from tests.frontdesk.inprocess import Running, in_loop, quick, request, running
from tests.rows import Db
from tests.waiting import eventually

__all__ = ["quick"]


def figures_of(figures: FrontdeskMetrics) -> dict[str, Any]:
    return MetricsSnapshots(figures.registry).take().figures


@pytest.mark.usefixtures("quick")
@in_loop
async def test_every_refusal_is_counted_by_its_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    unfinished = signed_head(webhook(), "Content-Length: 99999")

    async def refused(desk: Running, data: bytes, status: int, reason: str) -> None:
        before = dict(desk.figures.refused)
        line = await desk.connect()
        line.send(data)
        assert (await line.answer()).status == status
        after = {**before, reason: before[reason] + 1}
        assert desk.figures.refused == after
        assert figures_of(desk.figures)["refusedRequests"] == after

    async with running(head_seconds=0.2, store_seconds=0.2) as desk:
        head = b"POST /callback HTTP/1.1\r\nHost: x\r\nContent-Length: "
        await refused(desk, head + b"0\r\n\r\n", 401, "signature")
        await refused(desk, signed_head(b"[]", "Content-Length: 2") + b"[]", 400, "body")
        await refused(desk, head + b"99999999\r\n\r\n", 413, "size")
        await refused(desk, unfinished, 408, "slow")
        await refused(desk, b"POST /callback HTTP/1.1\r\n", 408, "slow")
        await refused(desk, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", 404, "http")
        await refused(desk, b"GET /callback HTTP/1.1\r\nHost: x\r\n\r\n", 405, "http")
        await refused(desk, b"\0\0\0\r\n\r\n", 400, "http")
        await refused(desk, b"GET / HTTP/1.1\r\nA: " + b"a" * 70_000, 431, "http")

        async def store(*_: object, **__: object) -> int:
            raise NotStored("neither")

        monkeypatch.setattr(desk.store, "store", store)
        await refused(desk, request(), 503, "store")
        assert set(desk.figures.refused) == set(REASONS)
    async with running(late_seconds=-1.0) as desk:
        await refused(desk, request(), 503, "overload")
    async with running(most_requests=0) as desk:
        await refused(desk, request(), 503, "overload")
    async with running(most_connections=0) as desk:
        await refused(desk, b"", 503, "overload")
    async with running(most_connections=1) as desk:
        first, _ = await desk.connect(), await desk.connect()
        assert await first.ended()
        assert desk.figures.refused["evicted"] == 1


def scraped(port: int) -> dict[str, float]:
    """The figures of one scrape, by name and labels."""
    with closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)) as answer:
        text = answer.read().decode()
    return {
        ",".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_its_row_equals_the_metrics_and_blocks_no_work(
    database: Db, client: Client, mongo_uri: str, tmp_path: Path
) -> None:
    port = free_port()
    desk = DeskProcess(
        uri=mongo_uri,
        database=database.name,
        SPOOL_PATH=str(tmp_path / "spool.db"),
        FRONTDESK_METRICS_PORT=str(port),
    )
    whose = {"appName": "linedesk-frontdesk"}
    with failing(client, ["update"], errorCode=13, **whose), desk:
        desk.wait_for_line("status not written")
        assert desk.post(text_event("01A"), text_event("01B")).status == 200
        assert desk.post(text_event("01A")).status == 200
        client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
        found = eventually(lambda: database[STATUS].find_one({"figures.acceptedEvents": 3}))
        assert found["_id"].endswith(f"/{desk.process.pid}")
        assert (found["role"], found["state"]) == ("frontdesk", "working")
        assert found["figures"]["duplicateEvents"] == desk.log.count("duplicates=1")
        assert found["lately"]["storeSeconds"]["count"] == 2
        told = scraped(port)
        assert told["linedesk_accepted_events_total"] == 3
        assert told["linedesk_store_seconds_count"] == 2
        assert told["linedesk_recvq_closed"] == 0
        assert told["linedesk_spool_max_bytes"] == found["figures"]["spoolMaxBytes"]
        assert told["process_resident_memory_bytes"] > 0
        assert desk.log.count("status not written") == 1

        with failing(client, ["update"], blockConnection=True, blockTimeMS=2_000, **whose):
            began = time.monotonic()
            # Long enough that its next row hangs.
            while time.monotonic() - began < 1.2:
                assert desk.post(text_event("01C")).status == 200
            assert desk.stop() == 0
