"""LINE in trouble, and the real processes through it: nothing is lost, nothing comes twice."""

from __future__ import annotations

import random
import signal
from typing import Any

from linedesk.store.records.effects import effects_of


def texts_of(sim: Any, user: Any) -> list[str]:
    return [bubble.text for bubble in sim.answers(user)]


def answered(sim: Any, users: list[Any], texts: list[str]) -> bool:
    return all(texts_of(sim, user) == texts for user in users)


def test_a_wrong_token_burns_nothing_and_a_restart_with_a_good_one_brings_all_home(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    wrong = house.start_dispatcher(
        BOT="acceptance_bots:echo", LINE_CHANNEL_ACCESS_TOKEN="ran-out-on-friday"
    )
    users = [sim.add_user(f"客{n}") for n in range(20)]
    for text in ("一", "二"):
        for user in users:
            sim.say(user, text)
    conversations = house.database.conversations
    house.wait_for(lambda: [len(effects_of(row)) for row in conversations.find()] == [2] * 20)

    assert [call.status for call in sim.calls] == [401]
    assert "ran-out-on-friday" not in house.log_of(wrong)
    house.stop(wrong, signal.SIGKILL)
    house.start_dispatcher(BOT="acceptance_bots:echo")

    sim.wait_for(lambda: answered(sim, users, ["一", "二"]), timeout=30)
    assert not sim.calls_to("push")
    assert house.database.deadletters.count_documents({}) == 0


def test_faults_of_every_kind_amid_a_conversation_lose_and_double_nothing(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    house.start_dispatcher(BOT="acceptance_bots:echo")
    users = [sim.add_user(f"客{n}") for n in range(20)]
    chosen = random.Random(11)
    faults = [
        lambda: sim.answer_next("reply", 500),
        lambda: sim.answer_next("reply", 500, accept=True),
        lambda: sim.answer_next("reply", 502, "<html>"),
        lambda: sim.answer_next("reply", 200, "garbage", accept=True),
        lambda: sim.answer_next("reply", 429, headers={"Retry-After": "1"}),
        lambda: sim.answer_next("reply", 429),
        lambda: sim.close_next("reply"),
        lambda: sim.close_next("reply", accept=True),
        lambda: sim.delay_next("reply", 0.2),
    ]
    for number in range(5):
        for user in users:
            if chosen.random() < 0.3:
                chosen.choice(faults)()
            sim.say(user, f"{number}")

    sim.wait_for(lambda: answered(sim, users, [f"{n}" for n in range(5)]), timeout=40)
    assert house.database.deadletters.count_documents({}) == 0
