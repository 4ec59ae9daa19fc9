"""A front desk whose MongoDB goes away, freezes, crashes, comes back, or was never prepared."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod, MongodNotFound, find_mongod
from linedesk.store.client import Client, connect
from linedesk.store.collections import MEGABYTE
from tests.conftest import missing
from tests.frontdesk.authority import Authority
from tests.frontdesk.desk import DeskProcess, in_threads, text_event
from tests.servers import throwaway_mongod
from tests.waiting import eventually

# LINE counts a webhook as failed when its answer takes longer.
LINES_PATIENCE_SECONDS = 2.0


@pytest.fixture(scope="module")
def own_mongod() -> Iterator[EmbeddedMongod]:
    """A mongod that a test may stop; it is started again for the next one."""
    try:
        find_mongod()
    except MongodNotFound as error:
        missing(str(error))
    with throwaway_mongod() as server:
        yield server


@pytest.fixture
def own_client(own_mongod: EmbeddedMongod) -> Iterator[Client]:
    if own_mongod.pid is None:
        own_mongod.start()
    with connect(own_mongod.uri, app_name="tests") as client:
        yield client


@pytest.fixture
def own_database(own_client: Client) -> Database[Any]:
    database = own_client[f"outage_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=16 * MEGABYTE)
    return database


@pytest.fixture
def desk(own_mongod: EmbeddedMongod, own_database: Database[Any]) -> Iterator[DeskProcess]:
    with DeskProcess(uri=own_mongod.uri, database=own_database.name) as desk:
        yield desk


def wait_until_ready(desk: DeskProcess) -> None:
    eventually(lambda: desk.ask("GET", "/readyz").status == 200)


def assert_refused_in_time(desk: DeskProcess, event_id: str) -> None:
    started = time.monotonic()
    answer = desk.post(text_event(event_id))
    assert time.monotonic() - started < LINES_PATIENCE_SECONDS
    assert answer.status == 503
    assert "127.0.0.1" not in answer.error


def test_it_starts_before_mongodb_answers_503_in_time_without_it_and_200_whenever_it_is_there(
    own_mongod: EmbeddedMongod, own_database: Database[Any]
) -> None:
    own_mongod.stop()
    with DeskProcess(uri=own_mongod.uri, database=own_database.name) as desk:
        reason = "MongoDB does not answer; the spool cannot be opened: see SPOOL_PATH"
        eventually(lambda: desk.ask("GET", "/readyz").error == reason)
        assert desk.ask("GET", "/readyz").status == 503
        assert_refused_in_time(desk, "early")
        own_mongod.start()
        wait_until_ready(desk)
        assert desk.post(text_event("before")).status == 200
        own_mongod.stop()
        for number in range(5):
            assert_refused_in_time(desk, f"during-{number}")
        assert desk.ask("GET", "/readyz").status == 503
        assert desk.ask("GET", "/healthz").status == 200
        assert desk.post().status == 200
        own_mongod.start()
        wait_until_ready(desk)
        assert desk.post(text_event("after")).status == 200
        ids = {document["eventId"] for document in own_database["recvq"].find()}
        assert {"before", "after"} <= ids


def test_accepted_events_survive_a_crash_of_mongodb(
    own_mongod: EmbeddedMongod, own_database: Database[Any], desk: DeskProcess
) -> None:
    accepted: list[str] = []
    enough, crashed = threading.Event(), threading.Event()

    def post_until_the_crash(number: int) -> None:
        turn = 0
        while not crashed.is_set():
            event_id = f"{number}-{turn}"
            if desk.post(text_event(event_id)).status == 200:
                accepted.append(event_id)
            if len(accepted) > 300:
                enough.set()
            turn += 1

    load = threading.Thread(target=in_threads, args=(8, post_until_the_crash))
    load.start()
    assert enough.wait(20)
    own_mongod.kill()
    crashed.set()
    load.join(20)
    own_mongod.start()
    wait_until_ready(desk)
    stored = {document["eventId"] for document in own_database["recvq"].find()}
    assert set(accepted) <= stored


def test_without_a_recvq_as_it_must_be_it_says_what_to_do_and_makes_none(
    own_mongod: EmbeddedMongod, own_client: Client
) -> None:
    database = own_client[f"empty_{uuid.uuid4().hex[:12]}"]
    with DeskProcess(uri=own_mongod.uri, database=database.name) as desk:
        assert "linedesk init" in desk.ask("GET", "/readyz").error
        assert desk.post(text_event("early")).status == 503
        assert database.list_collection_names() == []
        database.create_collection("recvq")
        eventually(lambda: "not capped" in desk.ask("GET", "/readyz").error)
        assert desk.post(text_event("early")).status == 503
        assert database["recvq"].count_documents({}) == 0
        database.drop_collection("recvq")
        create_collections(database, capped_bytes=MEGABYTE)
        wait_until_ready(desk)
        assert desk.post(text_event("now")).status == 200


def test_it_serves_tls_where_a_certificate_is_set(
    own_mongod: EmbeddedMongod, own_database: Database[Any], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair = authority.issue(serial=1, days=2)
    with DeskProcess(
        uri=own_mongod.uri,
        database=own_database.name,
        FRONTDESK_TLS_CERT=str(pair.certificate),
        FRONTDESK_TLS_KEY=str(pair.key),
    ) as desk:
        assert desk.ask_tls("/readyz", trusted=authority.root).status == 200
        row = eventually(lambda: own_database["status"].find_one())
        left_seconds = row["figures"]["certificateEndsSeconds"] - time.time()
        assert 86_400 < left_seconds < 2 * 86_400 + 60


def test_a_certificate_that_cannot_be_used_is_named(
    own_mongod: EmbeddedMongod, own_database: Database[Any], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    pair, other = authority.issue(serial=1), authority.issue(serial=2)
    for files in ((pair.key, pair.key), (pair.certificate, other.key)):
        desk = DeskProcess(
            uri=own_mongod.uri,
            database=own_database.name,
            FRONTDESK_TLS_CERT=str(files[0]),
            FRONTDESK_TLS_KEY=str(files[1]),
        ).start()
        assert desk.wait() == 78
        assert "FRONTDESK_TLS_KEY" in desk.log
        assert len(desk.lines) == 1
