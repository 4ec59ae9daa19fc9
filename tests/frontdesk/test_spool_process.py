"""Real front desks with a spool: MongoDB stopped, frozen or full, disks full, and kill -9."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client, connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.spool.spool import Spool
from tests.conftest import need_mongod
from tests.frontdesk.cut_line import Gate
from tests.frontdesk.desk import BROKEN_OFF, Answer, DeskProcess, text_event
from tests.linedesk.store.spool.test_spool import raw, small_disk
from tests.rows import Db
from tests.servers import throwaway_mongod
from tests.waiting import eventually

# The front desk's promise; LINE itself waits 2 s.
SPOOLED_SECONDS = 1.5
REFUSED_SECONDS = 2.0


@pytest.fixture(scope="module")
def own_mongod() -> Iterator[EmbeddedMongod]:
    need_mongod()
    with throwaway_mongod() as server:
        yield server


@pytest.fixture(scope="module")
def any_gate(own_mongod: EmbeddedMongod) -> Iterator[Gate]:
    with Gate(own_mongod.port) as gate:
        yield gate


@pytest.fixture
def gate(own_mongod: EmbeddedMongod, any_gate: Gate) -> Gate:
    """The way to a MongoDB that the front desk finds gone and back without a restart of it."""
    if own_mongod.pid is None:
        own_mongod.start()
    any_gate.open()
    return any_gate


@pytest.fixture
def own_client(own_mongod: EmbeddedMongod) -> Iterator[Client]:
    if own_mongod.pid is None:
        own_mongod.start()
    with connect(own_mongod.uri, app_name="tests") as client:
        yield client


@pytest.fixture
def own_database(own_client: Client) -> Db:
    database = own_client[f"spool_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=16 * MEGABYTE)
    return database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "spool.db"


def make_desk(database: Db, uri: str, path: Path, **options: Any) -> DeskProcess:
    settings = {"SPOOL_PATH": str(path), **options}
    return DeskProcess(uri=uri, database=database.name, **settings)


def ready(desk: DeskProcess) -> Any:
    answer = desk.ask("GET", "/readyz")
    return answer.status, json.loads(answer.body)


def wait_until_drained(desk: DeskProcess) -> None:
    eventually(lambda: ready(desk) == (200, {"status": "ready"}), seconds=30)


def event(key: str, number: int) -> dict[str, Any]:
    return text_event(f"{key}-{number}", source={"type": "user", "userId": key})


def post_in_time(desk: DeskProcess, what: dict[str, Any], seconds: float) -> Answer:
    started = time.monotonic()
    answer = desk.post(what)
    assert time.monotonic() - started < seconds
    return answer


def in_order_by_key(database: Db) -> dict[str, list[int]]:
    """The numbers of each key's events as they are in recvq; every event is there once."""
    found = defaultdict(list)
    names = []
    for document in database["recvq"].find().sort("$natural", 1):
        names.append(document["eventId"])
        found[document["key"]].append(int(document["eventId"].rpartition("-")[2]))
    assert len(names) == len(set(names))
    return found


def assert_all_there(database: Db, accepted: dict[str, list[int]]) -> None:
    found = in_order_by_key(database)
    for key, numbers in accepted.items():
        assert set(numbers) <= set(found[key])
        assert found[key] == sorted(found[key])


class Load:
    """Senders, each with a key of its own, which send the next event after the last answer."""

    def __init__(self, desk: DeskProcess, senders: int = 6) -> None:
        self.desk = desk
        self.accepted: dict[str, list[int]] = defaultdict(list)
        self.refused = 0
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._send, args=(f"U{number}",)) for number in range(senders)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    @property
    def count(self) -> int:
        return sum(map(len, self.accepted.values()))

    def wait_for_more(self, count: int = 60) -> None:
        wanted = self.count + count
        eventually(lambda: self.count >= wanted, seconds=30)

    def _send(self, key: str) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                answer = self.desk.post(event(key, number))
            except BROKEN_OFF:
                self._stop.wait(0.02)
                continue
            if answer.status == 200:
                self.accepted[key].append(number)
            else:
                self.refused += 1


def test_with_mongodb_stopped_it_answers_200_in_time_and_brings_all_when_it_is_back(
    own_mongod: EmbeddedMongod, own_database: Db, path: Path
) -> None:
    with make_desk(own_database, own_mongod.uri, path) as desk:
        assert ready(desk) == (200, {"status": "ready"})
        assert desk.post(event("U1", 0)).status == 200
        own_mongod.kill()
        for number in range(1, 6):
            assert post_in_time(desk, event("U1", number), SPOOLED_SECONDS).status == 200
        eventually(lambda: ready(desk)[1].get("spool", {}).get("documents") == 5)
        status, body = ready(desk)
        assert (status, body["status"]) == (200, "ready")
        assert body["spool"]["bytes"] > 500
        assert body["spool"]["oldestSeconds"] >= 0
        own_mongod.start()
        wait_until_drained(desk)
        assert desk.post(event("U1", 6)).status == 200
        assert in_order_by_key(own_database) == {"U1": [0, 1, 2, 3, 4, 5, 6]}
        desk.wait_for_line("MongoDB cannot be used: events not stored in recvq")
        desk.wait_for_line("MongoDB can be used again")
        assert desk.log.count(" WARNING ") == 1
        assert desk.log.count(" INFO runtime MongoDB") == 1
        assert " INFO frontdesk accepted" not in desk.log
        desk.wait_for_line("spool is empty documents=5")


def test_a_kill_at_any_moment_loses_nothing_that_was_accepted(
    gate: Gate, own_database: Db, path: Path
) -> None:
    moments = random.Random(1)
    desk = make_desk(own_database, gate.uri, path)

    def again() -> None:
        desk.stop(signal.SIGKILL)
        desk.lines.clear()
        desk.start()
        desk.wait_for_line("listening ")

    desk.start()
    desk.wait_for_line("listening ")
    gate.shut()
    with Load(desk) as load:
        load.wait_for_more(moments.randrange(1, 80))
        again()
        load.wait_for_more()
        gate.open()
        load.wait_for_more(moments.randrange(1, 80))
        # Most likely during the drain.
        again()
        load.wait_for_more()
    wait_until_drained(desk)
    desk.stop()
    assert_all_there(own_database, load.accepted)


@pytest.mark.parametrize("place", ["append", "remove"])
def test_a_kill_right_after_the_spools_commit_or_before_its_removal_doubles_nothing(
    gate: Gate, own_database: Db, path: Path, place: str
) -> None:
    if place == "append":
        gate.shut()
    else:
        spool_some(path)
    by = {"module": "tests.frontdesk.dying_desk", "arguments": [place]}
    dying = make_desk(own_database, gate.uri, path, **by)
    dying.start()
    if place == "append":
        dying.wait_for_line("listening ")
        with pytest.raises(BROKEN_OFF):
            dying.post(event("U1", 0))
    assert dying.wait() == -signal.SIGKILL
    if place == "remove":
        assert in_order_by_key(own_database) == {"U1": [0, 1, 2]}
    with make_desk(own_database, gate.uri, path) as desk:
        assert desk.post(event("U1", 0)).status == 200
        if place == "append":
            gate.open()
        wait_until_drained(desk)
    expected = [0] if place == "append" else [0, 1, 2]
    assert in_order_by_key(own_database) == {"U1": expected}


def spool_some(path: Path) -> None:
    """As a front desk does that ended before MongoDB was back."""
    with closing(Spool(path, max_bytes=16 * MEGABYTE)) as spool:
        spool.append([raw(f"U1-{number}", key="U1") for number in range(3)])


@pytest.mark.long
def test_two_front_desks_share_a_port_and_a_spool_and_one_of_them_is_killed(
    gate: Gate, own_database: Db, path: Path
) -> None:
    def sharing(port: int | None = None) -> DeskProcess:
        return make_desk(own_database, gate.uri, path, port=port, arguments=["--share-port"])

    first = sharing().start()
    first.wait_for_line("listening ")
    with sharing(first.port) as second:
        with Load(second) as load:
            load.wait_for_more()
            gate.shut()
            load.wait_for_more(150)
            gate.open()
            load.wait_for_more(100)
            first.stop(signal.SIGKILL)
            load.wait_for_more()
        assert "accepted events=1" in first.log
        assert "accepted events=1" in second.log
        wait_until_drained(second)
    assert load.refused == 0
    assert_all_there(own_database, load.accepted)


def test_with_a_full_disk_and_mongodb_away_it_is_503_in_time_and_recovers_alone(
    gate: Gate, own_database: Db, tmp_path: Path
) -> None:
    with (
        small_disk(tmp_path / "disk") as disk,
        make_desk(own_database, gate.uri, disk / "spool.db") as desk,
    ):
        gate.shut()
        accepted, refused = 0, None
        for number in range(200):
            large = event("U1", number) | {"padding": "x" * 50_000}
            answer = post_in_time(desk, large, REFUSED_SECONDS)
            if answer.status == 503:
                refused = answer
                break
            accepted += 1
        assert refused is not None
        assert "disk is full" in refused.error
        assert accepted > 10
        status, body = ready(desk)
        assert status == 503
        assert "MongoDB" in body["error"]
        assert "disk is full" in body["error"]
        desk.wait_for_line('store unavailable store="the spool" reason="the spool\'s disk is full"')
        gate.open()
        wait_until_drained(desk)
        assert in_order_by_key(own_database) == {"U1": list(range(accepted))}
        desk.wait_for_line('store available store="the spool"', times=2)
        gate.shut()
        assert post_in_time(desk, event("U2", 0), SPOOLED_SECONDS).status == 200


def test_a_full_recvq_goes_to_the_spool_and_a_full_spool_is_503(
    own_mongod: EmbeddedMongod, own_client: Client, path: Path
) -> None:
    database = own_client[f"small_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
    with make_desk(database, own_mongod.uri, path, SPOOL_MAX_MB="1") as desk:
        statuses = []
        for number in range(300):
            large = event(f"U{number}", 0) | {"padding": "x" * 40_000}
            statuses.append(post_in_time(desk, large, REFUSED_SECONDS).status)
            # On a busy machine a 503 may also be one of MongoDB's slowness.
            reason = ready(desk)[1].get("error", "")
            if "recvq is full" in reason and "SPOOL_MAX_MB" in reason:
                break
        else:
            raise AssertionError("it is never full")
        stored = database["recvq"].count_documents({})
        # Nothing is read here, so all that is stored is unread; it is 200 beyond that.
        assert stored < statuses.count(200) - 5
        assert set(statuses) <= {200, 503}
        # The dispatcher has read everything: all spooled documents then move in, and new ones are
        # accepted.
        [newest] = database["recvq"].find().sort("$natural", -1).limit(1)
        row = {"$set": {"after": newest["_id"]}}
        database["progress"].update_one({"_id": "dispatcher"}, row, upsert=True)
        eventually(lambda: ready(desk)[0] == 200)


def test_a_spool_that_cannot_be_opened_is_done_without_and_a_damaged_one_is_set_aside(
    gate: Gate, own_database: Db, tmp_path: Path
) -> None:
    path = tmp_path / "missing" / "spool.db"
    with make_desk(own_database, gate.uri, path) as desk:
        assert desk.post(event("U1", 0)).status == 200
        warning = "no spool: the spool cannot be opened: see SPOOL_PATH"
        assert ready(desk) == (200, {"status": "ready", "warning": warning})
        gate.shut()
        for number in range(1, 4):
            assert post_in_time(desk, event("U1", number), REFUSED_SECONDS).status == 503
        assert desk.log.count('unavailable store="the spool"') == 1
        # It is used as soon as it can be, even if its documents must make room first.
        folder = tmp_path / "made"
        folder.mkdir()
        (folder / path.name).write_bytes(b"this is no database" * 500)
        folder.rename(path.parent)
        assert desk.wait_for_line("spool set aside").count("ERROR")
        eventually(lambda: ready(desk)[0] == 200)
        assert post_in_time(desk, event("U1", 4), SPOOLED_SECONDS).status == 200
    assert len(list(path.parent.glob("spool.db.damaged-*Z"))) == 1


def test_a_file_that_is_no_spool_stops_the_start_and_stays_as_it_is(
    own_database: Db, own_mongod: EmbeddedMongod, tmp_path: Path
) -> None:
    path = tmp_path / "theirs"
    path.write_text("secret")
    path.chmod(0o600)
    desk = make_desk(own_database, own_mongod.uri, path).start()
    assert desk.wait() == 78
    assert str(path) in desk.log
    assert "SPOOL_PATH" in desk.log
    assert path.read_text() == "secret"
    assert not list(tmp_path.glob("*damaged*"))


def wait_until_ready(desk: DeskProcess) -> None:
    eventually(lambda: desk.ask("GET", "/readyz").status == 200)


def test_it_starts_before_mongodb_answers_503_in_time_without_it_and_200_once_it_is_there(
    own_mongod: EmbeddedMongod, own_database: Db
) -> None:
    own_mongod.kill()
    with DeskProcess(uri=own_mongod.uri, database=own_database.name) as desk:
        assert desk.ask("GET", "/readyz").status == 503
        refused = post_in_time(desk, text_event("early"), REFUSED_SECONDS)
        assert refused.status == 503
        assert "127.0.0.1" not in refused.error
        own_mongod.start()
        wait_until_ready(desk)
        assert desk.post(text_event("now")).status == 200
        assert own_database["recvq"].find_one({"eventId": "now"}) is not None


def test_accepted_events_survive_a_crash_of_mongodb(
    own_mongod: EmbeddedMongod, own_database: Db
) -> None:
    with DeskProcess(uri=own_mongod.uri, database=own_database.name) as desk:
        with Load(desk, senders=8) as load:
            load.wait_for_more(100)
            own_mongod.kill()
        own_mongod.start()
        wait_until_ready(desk)
    assert_all_there(own_database, load.accepted)


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
