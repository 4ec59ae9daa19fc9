"""Priorities at the gate, through the real processes: free answers are sent first.

Waits are counted in turns of other conversations, so a slow machine makes no difference.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from linedesk.store.timers import timer_id

INTERVAL_MS = 50
# Of a gate that is never idle, in two seconds.
MOST_TURNS = 2_000 // INTERVAL_MS
ECHO = {"BOT": "acceptance_bots:echo", "LINE_ACCESS_INTERVAL_MS": str(INTERVAL_MS)}


def a_timer(user: Any, due: datetime) -> dict[str, Any]:
    """The row of a timer as the jobworker makes it."""
    key, name = user.user_id, "tea"
    named = {"_id": timer_id("main", key, name), "channel": "main", "key": key, "name": name}
    source = {"type": "user", "userId": key}
    row = {"n": 1, "runAt": due, "every": None, "data": {}, "source": source, "setBy": "E1"}
    return {**named, **row}


def turns_until_answered(house: Any, sim: Any, user: Any, text: str) -> int:
    """How many calls for others are made between a user's message and its free answer."""
    before = len(sim.calls)
    sim.say(user, text)

    def answer() -> Any:
        calls = sim.calls[before:]
        return next((n for n, one in enumerate(calls, 1) if text in str(one.body)), None)

    place = house.wait_for(answer, seconds=60)
    assert sim.calls[before + place - 1].endpoint == "reply"
    return int(place) - 1


def test_people_do_not_wait_behind_hundreds_of_timers(house: Any, sim: Any) -> None:
    timed = [sim.add_user(f"客{n}") for n in range(400)]
    others = [sim.add_user(name) for name in ("花子", "太郎", "次郎")]
    house.start_frontdesk()
    due = datetime.now(UTC) + timedelta(seconds=1)
    house.database.schedule.insert_many([a_timer(user, due) for user in timed])
    house.start_dispatcher(**ECHO)
    house.wait_for(lambda: len(sim.calls) > 20)
    # Three whose own timer has just fired, and three others.
    people = [*timed[:1], *timed[200:202], *others]
    waits = [turns_until_answered(house, sim, one, f"はい、{n}番") for n, one in enumerate(people)]
    assert max(waits) <= MOST_TURNS, waits
    assert len(sim.calls) < 400, "the timers still wait"
