"""The real processes, each as its own user; and passwords that are replaced under them."""

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import linesim
from linedesk.runtime.exit_codes import Exit
from tests.acceptance.conftest import House, Process
from tests.rights.conftest import Guarded

TIMER = {"BOT": "linedesk.bots.timer:bot"}


@pytest.fixture
def house(guarded: Guarded, tmp_path: Path) -> Iterator[House]:
    database = guarded.client_of("admin")["line_bot"]
    database.client.drop_database(database)
    guarded.init()
    with linesim.running(rate_limits=False) as sim:
        house = House(tmp_path, guarded.server.uri, database, sim)
        with closing(house):
            yield house


def as_user(guarded: Guarded, who: str) -> dict[str, str]:
    # After a refused password the driver waits for the server's next sign of life.
    return {"MONGODB_URI": f"{guarded.uri_of(who)}&heartbeatFrequencyMS=500"}


def texts(sim: Any, user: Any) -> list[str]:
    return [bubble.text for bubble in sim.answers(user)]


def test_each_does_its_work_and_replaced_passwords_cost_no_event(
    house: House, guarded: Guarded
) -> None:
    sim = house.sim
    user = sim.add_user("花子")
    # Both at a time, since a start is mostly imports.
    as_dispatcher = {"DISPATCHER_FEED": "oplog", **as_user(guarded, "dispatcher")}
    dispatcher = house.start_dispatcher(ready=False, **TIMER, **as_dispatcher)
    frontdesk = house.start_frontdesk(**as_user(guarded, "frontdesk"))
    sim.say(user, "1")
    sim.wait_for(lambda: len(texts(sim, user)) == 2, timeout=20)

    guarded.init(new_passwords=True)
    assert sim.say(user, "100").status == 200

    def refused(process: Process) -> bool:
        return "MongoDB refuses the user" in house.log_of(process)

    # Each keeps its connections. Where it has to open one more it is refused already.
    house.wait_for(lambda: len(texts(sim, user)) == 3 or refused(dispatcher) or refused(frontdesk))

    # Both have to open their connections again.
    guarded.server.kill()
    guarded.server.start()
    house.wait_for(lambda: "stopped ending=refused" in house.log_of(dispatcher))
    assert house.stop(dispatcher) == Exit.UNAVAILABLE
    told = house.log_of(dispatcher)
    assert refused(dispatcher)
    assert "Traceback" not in told
    assert "CRITICAL" not in told
    assert sim.say(user, "200").status == 200
    house.wait_for(lambda: refused(frontdesk), frontdesk)
    assert "Traceback" not in house.log_of(frontdesk)
    house.stop(frontdesk, signal.SIGKILL)

    # A start with the new password is like any other, and processes the waiting events.
    house.start_dispatcher(ready=False, **TIMER, **as_user(guarded, "dispatcher"))
    house.start_frontdesk(**as_user(guarded, "frontdesk"))
    house.wait_for(lambda: len(texts(sim, user)) == 4)
    assert texts(sim, user) == [
        "1秒後にお知らせします",
        "1秒経ちました",
        "100秒後にお知らせします",
        "200秒後にお知らせします",
    ]
    assert guarded.client_of("admin")["line_bot"]["deadletters"].count_documents({}) == 0
