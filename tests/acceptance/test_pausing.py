"""Pauses of a conversation and of a channel, in the real dispatcher, which is killed meanwhile."""

import re
import signal
from datetime import UTC, datetime, timedelta
from typing import Any

from click.testing import Result

from linedesk.operate.acts import OperatorControl
from linedesk.store.control import Scope
from linedesk.store.documents import make_document
from linesim.judge.checker import check
from tests.jobworker.worker_harness import texts
from tests.linedesk.commands.terminals import typed

BOT = {"BOT": "acceptance_bots:echo"}


def test_paused_events_survive_kills_and_are_answered_once_and_in_order(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    process = house.start_dispatcher(**BOT)
    stopped, well = (sim.add_user(name, friend=True) for name in ("花子", "太郎"))
    control = OperatorControl(house.database)

    control.pause(Scope("main", stopped.user_id), by="operator")
    house.wait_for(lambda: f"paused scope=main/{stopped.user_id}" in house.log_of(process))
    for text in ("一", "二"):
        sim.say(stopped, f"花子{text}")
        sim.say(well, f"太郎{text}")
    sim.wait_for(lambda: texts(sim, well) == ["太郎一", "太郎二"])
    house.wait_for(lambda: house.database.held.count_documents({"why.code": "paused"}) == 2)
    house.stop(process, signal.SIGKILL)
    control.pause(Scope("main"), by="operator")
    sim.say(stopped, "花子三")
    sim.say(well, "太郎三")
    house.start_dispatcher(**BOT)
    house.wait_for(lambda: house.database.held.count_documents({"why.code": "paused"}) == 4)
    assert texts(sim, stopped) == []
    assert texts(sim, well) == ["太郎一", "太郎二"]

    control.resume(Scope("main"))
    sim.wait_for(lambda: texts(sim, well) == ["太郎一", "太郎二", "太郎三"])
    assert texts(sim, stopped) == []
    control.resume(Scope("main", stopped.user_id))
    sim.wait_for(lambda: texts(sim, stopped) == ["花子一", "花子二", "花子三"])
    house.wait_for(lambda: house.database.held.find_one() is None)
    assert check(sim).problems() == []
    assert house.database.deadletters.find_one() is None


def stored(house: Any, sim: Any, user: Any, *said: str, ago: float = 120.0) -> list[str]:
    """Store messages that the user sent a while ago; returns their event ids."""
    events = [sim.drafts.text(user, text) for text in said]
    sim.webhook_url = None
    sim.deliver(*events)
    sim.webhook_url = house.url
    accepted = datetime.now(UTC) - timedelta(seconds=ago)
    rows = [make_document(event, channel="main", accept_time=accepted) for event in events]
    house.database.recvq.insert_many(rows)
    return [row["eventId"] for row in rows]


def linedesk(house: Any, *arguments: str) -> Result:
    return typed({**house.settings, "SUDO_USER": "hanako"})(*arguments)


def held(house: Any) -> int:
    count: int = house.database.held.count_documents({"why.code": "paused"})
    return count


def is_quiet(house: Any) -> bool:
    """Whether nothing waits, neither in `held` nor in an outbox."""
    rows = house.database.conversations.find({}, {"outbox": 1})
    return held(house) == 0 and not any(row.get("outbox") for row in rows)


def test_a_drop_runs_no_handler_loses_and_doubles_nothing_through_kills_and_can_be_replayed(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    process = house.start_dispatcher(**BOT)
    user = sim.add_user("花子", friend=True)
    letters, count = house.database.deadletters, 400
    sim.say(user, "before")
    sim.wait_for(lambda: texts(sim, user) == ["before"])
    linedesk(house, "pause", user.user_id)
    house.wait_for(lambda: "paused scope=main/" in house.log_of(process))
    events = stored(house, sim, user, *map(str, range(count)))
    house.wait_for(lambda: held(house) == count)
    told = linedesk(house, "resume", user.user_id, "--drop")
    assert re.search(rf"waiting events: (at least )?{count};", told.stderr)
    assert "linedesk dead list --cause 'dropped by hanako'" in told.stdout
    for some in (1, count // 2):
        house.wait_for(lambda some=some: letters.count_documents({}) >= some)
        house.stop(process, signal.SIGKILL)
        process = house.start_dispatcher(**BOT)
    sim.say(user, "after")
    sim.wait_for(lambda: texts(sim, user) == ["before", "after"])
    house.wait_for(lambda: is_quiet(house))
    assert letters.count_documents({}) == count
    assert letters.distinct("cause") == ["dropped"]
    assert sorted(letters.distinct("_id")) == sorted(events)
    story = linedesk(house, "trace", events[7]).stdout
    assert "dropped by hanako" in story
    linedesk(house, "dead", "replay", events[7])
    sim.wait_for(lambda: texts(sim, user) == ["before", "after", "7"])
    acts = [row["act"] for row in house.database.audit.find().sort("at", 1)]
    assert acts == ["pause", "resume and drop", "replay"]
