"""The operator's view of sends in one call, through the real processes."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from tests.rows import rows_of

INTERVAL_MS = 300


def linedesk(house: Any, *arguments: str) -> str:
    """The command's output."""
    answer = subprocess.run(
        [sys.executable, "-m", "linedesk", *arguments],
        env={**os.environ, **house.settings},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_each_event_shows_the_others_of_its_call(house: Any, sim: Any) -> None:
    user = sim.add_user("花子")
    house.start_frontdesk()
    house.start_dispatcher(BOT="acceptance_bots:echo", LINE_ACCESS_INTERVAL_MS=str(INTERVAL_MS))
    sim.deliver(*(sim.drafts.text(user, f"{n}") for n in range(6)))
    sim.wait_for(lambda: len(sim.answers(user)) == 6)
    calls = house.database.calls
    row, *_ = house.wait_for(lambda: rows_of(calls, **{"also.0": {"$exists": True}, "paid": 0}))
    others = [one["eventId"] for one in row["also"]]

    for event_id in (row["eventId"], *others):
        told = linedesk(house, "trace", event_id)
        assert "LINE took one send" in told
        assert ", free" in told
        assert row["requestId"] in told
    assert sum(1 + len(one.get("also", ())) for one in rows_of(calls)) == 6
