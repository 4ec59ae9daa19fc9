"""Pauses of a conversation and of a channel, in the real dispatcher, which is killed meanwhile."""

from __future__ import annotations

import signal
from typing import Any

from linedesk.store.control import Control, Scope
from linesim.judge.checker import check

BOT = {"BOT": "acceptance_bots:echo"}


def texts_of(sim: Any, user: Any) -> list[str]:
    return [bubble.text for bubble in sim.answers(user)]


def test_paused_events_survive_kills_and_are_answered_once_and_in_order(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    process = house.start_dispatcher(**BOT)
    stopped, well = (sim.add_user(name, friend=True) for name in ("花子", "太郎"))
    control = Control(house.database)

    control.pause(Scope("main", stopped.user_id), by="operator")
    house.wait_for(lambda: f"paused scope=main/{stopped.user_id}" in house.log_of(process))
    for text in ("一", "二"):
        sim.say(stopped, f"花子{text}")
        sim.say(well, f"太郎{text}")
    sim.wait_for(lambda: texts_of(sim, well) == ["太郎一", "太郎二"])
    house.wait_for(lambda: house.database.held.count_documents({"why": "paused"}) == 2)
    house.stop(process, signal.SIGKILL)
    control.pause(Scope("main"), by="operator")
    sim.say(stopped, "花子三")
    sim.say(well, "太郎三")
    house.start_dispatcher(**BOT)
    house.wait_for(lambda: house.database.held.count_documents({"why": "paused"}) == 4)
    assert texts_of(sim, stopped) == []
    assert texts_of(sim, well) == ["太郎一", "太郎二"]

    control.resume(Scope("main"))
    sim.wait_for(lambda: texts_of(sim, well) == ["太郎一", "太郎二", "太郎三"])
    assert texts_of(sim, stopped) == []
    control.resume(Scope("main", stopped.user_id))
    sim.wait_for(lambda: texts_of(sim, stopped) == ["花子一", "花子二", "花子三"])
    house.wait_for(lambda: house.database.held.find_one() is None)
    assert check(sim).problems() == []
    assert house.database.deadletters.find_one() is None
