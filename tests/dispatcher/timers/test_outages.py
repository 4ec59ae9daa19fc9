"""A MongoDB that fails under the timers: no timer is lost or fires twice, and it is logged."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from dispatcher import timers
from dispatcher.timers import Timers
from linedesk.store.client import Client, connect
from tests.dispatcher.conftest import Told
from tests.dispatcher.faults import failing
from tests.dispatcher.timers.conftest import (
    DAILY,
    NOON,
    RANG,
    SHORT,
    HandClock,
    a_row,
    asleep,
    rung,
)
from tests.rows import Db
from tests.waiting import eventually

NEXT = "timer:main/U1/tea:1:2026-04-20T12:00:00.000Z"


@pytest.fixture
def sleeper(
    mongo_uri: str,
    database: Db,
    clock: HandClock,
    nothing_left: None,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Timers]:
    """Waits for a daily timer, due once the clock is moved by a day."""
    database.schedule.insert_one(a_row(every=DAILY))
    clock.move(days=-1)
    for name, value in {**SHORT, "longest_pause_seconds": 0.05}.items():
        monkeypatch.setattr(timers, name.upper(), value)
    options = {"retryReads": False, "heartbeatFrequencyMS": 500}
    with connect(mongo_uri, app_name="timers", **options) as own:
        one = Timers(own[database.name], lease_is_fresh=lambda: True, now=clock)
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
    client: Client, database: Db, clock: HandClock, told: Told, fault: dict[str, Any]
) -> None:
    commands = ["find", "insert", "update"]
    with failing(client, commands, appName="timers", **fault):
        clock.move(days=1)
        eventually(lambda: told("timers not fired, trying again"))
        assert rung(database) == []
    eventually(lambda: rung(database) == [RANG])
    clock.move(days=1)
    eventually(lambda: rung(database) == [RANG, NEXT])


@pytest.mark.parametrize("command", ["insert", "update"])
@pytest.mark.usefixtures("sleeper")
def test_a_write_of_unknown_outcome_is_done_again(
    client: Client, database: Db, clock: HandClock, told: Told, command: str
) -> None:
    unsure = {"code": 64, "errmsg": "waiting for replication timed out"}
    with failing(client, [command], times=1, appName="timers", writeConcernError=unsure):
        clock.move(days=1)
        eventually(lambda: told("MongoDB can be used again"))
    assert rung(database) == [RANG]
    # Majority reads show it a moment later.
    next_at = NOON + timedelta(days=1)
    eventually(lambda: database.schedule.find_one()["runAt"] == next_at)
