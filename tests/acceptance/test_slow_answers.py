"""An answer that comes too late for its reply token, through the real processes."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from linedesk.store.documents import make_document

BOT = "acceptance_bots:slow"


def ask_late(house: Any, sim: Any, user: Any, *, seconds_left: float) -> None:
    """The user's message was accepted a while ago, and is read now."""
    event = sim.drafts.text(user, "考えて")
    # Its token is good at LINE from now on; the front desk does not see it.
    sim.webhook_url = None
    sim.deliver(event)
    sim.webhook_url = house.url
    accepted = datetime.now(UTC) - timedelta(seconds=60 - seconds_left)
    house.database.recvq.insert_one(make_document(event, channel="main", accept_time=accepted))


def texts(sim: Any, user: Any) -> list[str]:
    return [bubble.text or bubble.message["type"] for bubble in sim.answers(user)]


def press(sim: Any, user: Any) -> None:
    [button] = [bubble.message for bubble in sim.answers(user) if not bubble.text]
    [action] = button["template"]["actions"]
    assert sim.postback(user, action["data"]).status == 200


@pytest.mark.long
def test_a_tap_brings_it_for_free_also_after_a_kill(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    first = house.start_dispatcher(BOT=BOT, SLOW_ANSWERS="button")
    user = sim.add_user("花子")
    # The handler takes two seconds, and a button comes after one at the earliest.
    ask_late(house, sim, user, seconds_left=9)
    waiting = {"answers": {"$gt": {}}}

    def waits() -> bool:
        found = house.database.conversations.find_one(waiting) or {"answers": {}}
        return any(one["state"] == "waiting" for one in found["answers"].values())

    house.wait_for(waits, first)
    assert texts(sim, user) == ["template"]
    first.kill()
    house.start_dispatcher(BOT=BOT, SLOW_ANSWERS="push")
    press(sim, user)
    sim.wait_for(lambda: texts(sim, user) == ["template", "考えて"])
    assert sim.calls_to("push") == []
