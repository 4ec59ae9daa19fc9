"""Timers through the real processes, which are all killed while some wait."""

import signal
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from click.testing import CliRunner

from linedesk.launch.main import linedesk
from linesim.judge.checker import Timer, check

BOT = {"BOT": "linedesk.bots.timer:bot"}


def asked(event: Mapping[str, Any]) -> list[str]:
    """The timer bot's immediate answer."""
    return [f"{event['message']['text']}秒後にお知らせします"]


def waiting(house: Any) -> list[dict[str, Any]]:
    return list(house.database.schedule.find({"runAt": {"$ne": None}}))


def due_of(house: Any, user: Any) -> float:
    """When the timer that the user has just set is due, in Unix seconds."""
    rows = house.wait_for(lambda: [row for row in waiting(house) if row["key"] == user.user_id])
    return float(rows[0]["runAt"].timestamp())


def test_timers_fire_once_though_every_process_is_killed_while_they_wait(
    house: Any, sim: Any
) -> None:
    users = [sim.add_user(name) for name in ("花子", "太郎", "次郎")]
    frontdesk = house.start_frontdesk()
    dispatcher = house.start_dispatcher(**BOT)
    dues = []
    for user, seconds in zip(users, ("1", "6", "2"), strict=True):
        sim.say(user, seconds)
        dues.append(due_of(house, user))
        if seconds == "1":
            sim.wait_for(lambda: len(sim.answers(users[0])) == 2)

    for process in (dispatcher, frontdesk):
        house.stop(process, signal.SIGKILL)
    house.wait_for(lambda: datetime.now(UTC).timestamp() > dues[2])
    assert len(waiting(house)) == 2
    house.start_dispatcher(ready=False, **BOT)

    sim.wait_for(lambda: all(len(sim.answers(user)) == 2 for user in users), timeout=30)
    house.wait_for(lambda: not waiting(house))
    timers = [
        Timer(user.user_id, f"{seconds}秒経ちました", due, within_seconds=20.0)
        for user, seconds, due in zip(users, (1, 6, 2), dues, strict=True)
    ]
    assert not check(sim, expect=asked, expect_timers=timers).problems()
    rings = house.database.recvq.count_documents({"event.type": "timer"})
    assert rings == 3


def test_friends_get_timers_by_command_and_by_the_bot_once_though_a_dispatcher_is_killed(
    house: Any, sim: Any
) -> None:
    users = [sim.add_user(name) for name in ("花子", "太郎", "次郎")]
    house.start_frontdesk()
    first = house.start_dispatcher(BOT="acceptance_bots:echo")
    for user in users:
        sim.say(user, "やあ")
    sim.wait_for(lambda: all(sim.answers(user) for user in users))
    sim.block(users[2])
    house.wait_for(lambda: house.database.conversations.find_one({"friend": False}))
    house.stop(first, signal.SIGKILL)
    second = house.start_dispatcher(BOT="acceptance_bots:herald")
    sim.wait_for(lambda: all(len(sim.answers(user)) == 2 for user in users[:2]))

    moment = (datetime.now(UTC) + timedelta(seconds=5)).isoformat()
    ordered = ("timers", "set", "news", "--all-friends", "--at", moment)
    ran = CliRunner().invoke(linedesk, ordered, env=house.settings)
    assert (ran.exit_code, "2 conversations" in ran.output) == (0, True), ran.output
    house.stop(second, signal.SIGKILL)
    house.start_dispatcher(BOT="acceptance_bots:herald")
    sim.wait_for(lambda: all(len(sim.answers(user)) == 3 for user in users[:2]))
    texts = [[bubble.text for bubble in sim.answers(user)] for user in users]
    assert texts == [["やあ", "はじめます", "ニュース"]] * 2 + [["やあ"]]
    assert house.database.deadletters.count_documents({}) == 0
