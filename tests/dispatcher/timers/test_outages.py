"""A MongoDB that fails under the timers: no timer is lost or fires twice, and it is logged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pymongo.database import Database

from dispatcher import timers
from dispatcher.timers import Timers
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client, connect
from linedesk.store.collections import MEGABYTE
from tests.dispatcher.faults import failing
from tests.dispatcher.timers.conftest import NOON, SHORT, HandClock, a_row, asleep, rung
from tests.waiting import eventually

Told = Callable[[str], list[str]]

DAILY = {"at": "21:00", "tz": "Asia/Tokyo"}  # noon in UTC
RANG = "timer:main/U1/tea:1:2026-04-19T12:00:00.000Z"
NEXT = "timer:main/U1/tea:1:2026-04-20T12:00:00.000Z"


@pytest.fixture(scope="module")
def faulty(
    mongod: EmbeddedMongod, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[EmbeddedMongod]:
    """A server whose answers can be made to fail by failpoints."""
    folder: Path = tmp_path_factory.mktemp("faulty")
    with EmbeddedMongod(folder, extra=["--setParameter", "enableTestCommands=1"]) as server:
        yield server


@pytest.fixture
def admin(faulty: EmbeddedMongod) -> Iterator[Client]:
    with connect(faulty.uri, app_name="admin") as client:
        yield client


@pytest.fixture
def outages(admin: Client) -> Database[Any]:
    admin.drop_database("outages")
    create_collections(admin["outages"], capped_bytes=MEGABYTE)
    return admin["outages"]


@pytest.fixture
def sleeper(
    faulty: EmbeddedMongod,
    outages: Database[Any],
    clock: HandClock,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Timers]:
    """Waits for a daily timer, due once the clock is moved by a day."""
    outages.schedule.insert_one(a_row(every=DAILY))
    clock.move(days=-1)
    for name, value in {**SHORT, "longest_pause_seconds": 0.05}.items():
        monkeypatch.setattr(timers, name.upper(), value)
    options = {"retryReads": False, "heartbeatFrequencyMS": 500}
    with connect(faulty.uri, app_name="timers", **options) as client:
        one = Timers(client["outages"], lease_is_fresh=lambda: True, now=clock)
        one.start()
        eventually(lambda: asleep(one))
        yield one
        one.stop()
        assert one.join(10)


@pytest.mark.parametrize(
    "fault",
    [
        {"closeConnection": True},
        {"errorCode": 11601},  # Interrupted
        {"errorCode": 13},  # Unauthorized, until an operator fixes it
    ],
    ids=["away", "interrupted", "refused"],
)
@pytest.mark.usefixtures("sleeper")
def test_timers_outlast_a_mongodb_that_fails(
    admin: Client, outages: Database[Any], clock: HandClock, told: Told, fault: dict[str, Any]
) -> None:
    commands = ["find", "insert", "update"]
    with failing(admin, commands, appName="timers", **fault):
        clock.move(days=1)
        eventually(lambda: told("timers not fired, trying again"))
        assert rung(outages) == []
    eventually(lambda: rung(outages) == [RANG])
    clock.move(days=1)
    eventually(lambda: rung(outages) == [RANG, NEXT])


@pytest.mark.parametrize("command", ["insert", "update"])
@pytest.mark.usefixtures("sleeper")
def test_a_write_of_unknown_outcome_is_done_again(
    admin: Client, outages: Database[Any], clock: HandClock, told: Told, command: str
) -> None:
    unsure = {"code": 64, "errmsg": "waiting for replication timed out"}
    with failing(admin, [command], times=1, appName="timers", writeConcernError=unsure):
        clock.move(days=1)
        eventually(lambda: told("MongoDB can be used again"))
    assert rung(outages) == [RANG]
    # Majority reads show it a moment later.
    next_at = NOON + timedelta(days=1)
    eventually(lambda: outages.schedule.find_one()["runAt"] == next_at)
