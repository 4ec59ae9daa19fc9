"""Messages that are handled together, through the real processes: once, with any crash."""

import signal
from typing import Any

import pytest

from linedesk.operate.dead_letters import explained
from tests.acceptance.test_poison import supervise
from tests.jobworker.worker_harness import texts

PATIENT = {"BOT": "acceptance_bots:patient"}
# Well below the 20 s that the bot gathers for.
WITHOUT_A_WAIT = 12.0


def gathers(house: Any) -> bool:
    """Whether the dispatcher's row in `status` says that a conversation gathers."""
    rows = house.database.status.find({"role": "dispatcher"})
    waiting = [one for row in rows for one in row.get("waiting", ())]
    return any(one["why"]["code"] == "gathering" for one in waiting)


def test_what_was_gathered_in_a_killed_process_is_gathered_anew_without_a_wait(
    house: Any, sim: Any
) -> None:
    """Twice: nothing of it was written."""
    user = sim.add_user("花子")
    house.start_frontdesk()
    first = house.start_dispatcher(**PATIENT)
    # Events that arrive later count as old.
    house.wait_for(lambda: "recvq scanned" in house.log_of(first), first)
    sim.say(user, "一")
    sim.say(user, "二")
    house.wait_for(lambda: gathers(house))
    assert house.database.conversations.count_documents({}) == 0
    house.stop(first, signal.SIGKILL)
    house.start_dispatcher(**PATIENT)
    sim.wait_for(lambda: texts(sim, user) == ["一、二"], timeout=WITHOUT_A_WAIT)
    conversation = house.database.conversations.find_one()
    assert conversation["data"] == {"handled": ["一", "二"]}
    assert len(conversation["applied"]) == 2


@pytest.mark.timeout(240)
def test_of_messages_of_which_one_kills_the_process_only_that_one_is_given_up(
    house: Any, sim: Any
) -> None:
    """Once the process keeps dying each of them is handled alone."""
    house.start_frontdesk()
    user = sim.add_user("花子")
    deliveries = [sim.say(user, word) for word in ("一", "毒", "二", "三")]

    def said() -> str:
        return "、".join(map(str, texts(sim, user)))

    def done() -> bool:
        return "三" in said()

    supervise(house, done, most=12, BOT="deadly_bots:gathering")
    assert said() == "一、二、三"
    (letter,) = house.database.deadletters.find()
    assert letter["_id"] == deliveries[1].event_ids[0]
    assert explained(letter) == "poison: took the process down"
