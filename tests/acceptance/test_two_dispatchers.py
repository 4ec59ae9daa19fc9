"""Two real dispatchers, at the same time or one after the other: takeovers, their times, and
refusals.
"""

import signal
import time
from pathlib import Path
from typing import Any

import pytest

from linedesk.store.records.effects import WITH_OUTBOX
from tests.jobworker.worker_harness import texts
from tests.servers import frozen


@pytest.mark.parametrize(
    ("ending", "most_seconds"), [(signal.SIGKILL, 10.0), (signal.SIGTERM, 5.0)]
)
def test_a_standby_takes_over(
    house: Any, sim: Any, ending: signal.Signals, most_seconds: float
) -> None:
    """Within 5 s of a kill and 1 s of a stop on an idle machine; other tests run on this one."""
    echo = {"BOT": "acceptance_bots:echo"}
    house.start_frontdesk()
    first = house.start_dispatcher(**echo)
    user = sim.add_user("花子", friend=False)
    sim.say(user, "一")
    sim.wait_for(lambda: sim.answers(user))
    second = house.start_dispatcher(ready=False, **echo)
    house.wait_for(lambda: "standby: " in house.log_of(second), second)
    since = time.monotonic()
    house.stop(first, ending)
    sim.say(user, "二")
    sim.wait_for(lambda: texts(sim, user) == ["一", "二"], timeout=30)
    assert time.monotonic() - since < most_seconds


def test_one_frozen_in_a_handler_is_refused_when_it_comes_back(
    house: Any, sim: Any, tmp_path: Path
) -> None:
    """Meanwhile its successor decides the event, and 150 more of the key: `applied` knows 100.

    By the oplog, since the others here have the change stream.
    """
    go_on = tmp_path / "go on"
    settings = {"BOT": "deadly_bots:waiting", "GO_ON": str(go_on), "DISPATCHER_FEED": "oplog"}
    house.start_frontdesk()
    first = house.start_dispatcher(**settings)
    user = sim.add_user("花子", friend=False)
    delivery = sim.say(user, "待て")
    started = f"started event_id={delivery.event_ids[0]}"
    house.wait_for(lambda: started in house.log_of(first), first)
    for start in range(0, 150, 10):
        sim.deliver(*(sim.drafts.text(user, f"{n}") for n in range(start, start + 10)))
    with frozen(first.pid):
        go_on.touch()
        second = house.start_dispatcher(**settings)
        expected = ["待て", *(f"{n}" for n in range(150))]
        sim.wait_for(lambda: len(sim.answers(user)) >= 151, timeout=40)

    assert first.wait(30) == 76
    sim.say(user, "終")
    sim.wait_for(lambda: texts(sim, user)[-1:] == ["終"])
    assert texts(sim, user) == [*expected, "終"]
    assert house.database.conversations.find_one()["n"] == 152
    house.wait_for(lambda: house.database.conversations.find_one(WITH_OUTBOX) is None)
    assert house.database.deadletters.count_documents({}) == 0
    assert "replaced by another dispatcher" in house.log_of(first)
    assert house.stop(second) == 0


def test_a_frozen_one_calls_line_no_more(house: Any, sim: Any, tmp_path: Path) -> None:
    """Frozen with an outbox full of sends; its successor sends them, each once."""
    house.start_frontdesk()
    settings = {"BOT": "acceptance_bots:pusher", "LINE_ACCESS_INTERVAL_MS": "20"}
    first = house.start_dispatcher(**settings)
    user = sim.add_user("花子")
    sim.say(user, "60")
    sim.wait_for(lambda: len(sim.answers(user)) >= 5)
    with frozen(first.pid):
        house.start_dispatcher(**settings)
        # The bot says each number three times in a call.
        sim.wait_for(lambda: len(sim.answers(user)) >= 180, timeout=30)
    assert first.wait(30) == 76
    assert texts(sim, user) == [f"{n}" for n in range(60) for _ in range(3)]
