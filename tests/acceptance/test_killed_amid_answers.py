"""A dispatcher that is killed around the calls of its answers: each message arrives once."""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from linedesk.runtime.exit_codes import Exit
from linedesk.store.client import Client
from linedesk.store.records.effects import WITH_OUTBOX
from linedesk.store.records.waits import Why
from tests.dispatcher.faults import failing

SETTINGS = {"BOT": "acceptance_bots:counter", "LINE_ACCESS_INTERVAL_MS": "0"}
AT_ONCE = {"LINE_CONCURRENCY": "4"}
USERS = 8


def until_answered(house: Any, sim: Any, users: list[Any], texts: list[str]) -> None:
    house.wait_for(lambda: all(len(sim.answers(one)) >= len(texts) for one in users), seconds=40)
    for user in users:
        assert [bubble.text for bubble in sim.answers(user)] == texts


@pytest.mark.parametrize(
    ("point", "more"),
    [("called", {}), ("called", AT_ONCE), ("answered", {}), ("the ends on their way", AT_ONCE)],
)
def test_a_killed_dispatcher_leaves_nothing_out_and_repeats_nothing(
    house: Any, sim: Any, client: Client, point: str, more: dict[str, str]
) -> None:
    """The ends that are on their way arrive when its successor has the conversations."""
    conversations = house.database.conversations
    house.start_frontdesk()
    first = house.start_dispatcher(**SETTINGS, **more)
    users = [sim.add_user(f"{n}", friend=False) for n in range(USERS)]
    for user in users:
        sim.say(user, "一")
    until_answered(house, sim, users, ["1: 一"])
    house.wait_for(lambda: conversations.find_one(WITH_OUTBOX) is None)
    if point != "answered":
        # LINE carries them out at once.
        sim.delay_next("reply", 0.5, times=USERS)
    for user in users:
        sim.say(user, "二")
    house.wait_for(lambda: sum(len(sim.answers(user)) == 2 for user in users) >= USERS // 2)
    with ExitStack() as stack:
        if point == "the ends on their way":
            of_ends = {"namespace": conversations.full_name, "appName": "linedesk-dispatcher"}
            until_answered(house, sim, users, ["1: 一", "2: 二"])
            has_begun = stack.enter_context(
                failing(client, ["update"], blockConnection=True, blockTimeMS=1500, **of_ends)
            )
            house.wait_for(has_begun)
        house.stop(first, signal.SIGKILL)
    house.start_dispatcher(**SETTINGS, **more)
    until_answered(house, sim, users, ["1: 一", "2: 二"])
    for user in users:
        sim.say(user, "三")
    until_answered(house, sim, users, ["1: 一", "2: 二", "3: 三"])
    house.wait_for(lambda: conversations.find_one(WITH_OUTBOX) is None)
    house.wait_for(lambda: conversations.find_one({"call": {"$ne": None}}) is None)
    assert house.database.deadletters.count_documents({}) == 0


def test_async_handlers_that_wait_at_a_kill_or_a_stop_decide_once(
    house: Any, sim: Any, tmp_path: Path
) -> None:
    """A kill repeats them; a stop waits for those that end, and for a call that hangs no longer
    than the drain.
    """
    go = tmp_path / "go"
    settings = {"BOT": "acceptance_bots:waiting", "BOT_SETTINGS": f"go={go}", "DRAIN_SECONDS": "3"}
    users = [sim.add_user(f"客{n}") for n in range(20)]

    def waiting(process: Any) -> int:
        row = house.database.status.find_one({"pid": process.pid}) or {}
        return sum(one["why"]["code"] == Why.HANDLER_RUNS for one in row.get("waiting", ()))

    house.start_frontdesk()
    first = house.start_dispatcher(**settings)
    for user in users:
        sim.say(user, "?")
    house.wait_for(lambda: waiting(first) == 20, first)
    house.stop(first, signal.SIGKILL)
    second = house.start_dispatcher(**settings)
    house.wait_for(lambda: waiting(second) == 20, second)
    second.send_signal(signal.SIGTERM)
    go.touch()
    assert second.wait(30) == Exit.OK, house.log_of(second)
    third = house.start_dispatcher(**settings)
    until_answered(house, sim, users, ["1"])
    sim.say(users[0], "hang")
    house.wait_for(lambda: waiting(third) == 1, third)
    assert house.stop(third) == Exit.STUCK
