"""LINE in trouble, and the real processes through it: nothing is lost, nothing comes twice."""

import random
from typing import Any

from tests.jobworker.worker_harness import texts


def answered(sim: Any, users: list[Any], said: list[str]) -> bool:
    return all(texts(sim, user) == said for user in users)


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
