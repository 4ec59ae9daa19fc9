"""Handlers with their own time limit, through the real processes."""

from __future__ import annotations

from typing import Any


def test_slow_handlers_are_answered_and_do_not_delay_other_conversations(
    house: Any, sim: Any
) -> None:
    """Each thinks for 3 s where others have 1 s; of four threads two may do so at a time."""
    thinkers = [sim.add_user(f"客{n}") for n in range(3)]
    other = sim.add_user("花子")
    house.start_frontdesk()
    dispatcher = house.start_dispatcher(
        BOT="acceptance_bots:thinker", HANDLER_LIMIT_SECONDS="1", DISPATCHER_THREADS="4"
    )
    for user in thinkers:
        sim.say(user, "考えて")
    house.wait_for(lambda: all(len(sim.answers(user)) == 1 for user in thinkers))
    for user in thinkers:
        sim.say(user, "宇宙")
    for n in range(10):
        sim.say(other, f"{n}")
        house.wait_for(lambda n=n: len(sim.answers(other)) == n + 1)
    assert all(len(sim.answers(user)) == 1 for user in thinkers), "they still think"
    house.wait_for(lambda: all(len(sim.answers(user)) == 2 for user in thinkers))
    for user in thinkers:
        assert [bubble.text for bubble in sim.answers(user)][1:] == ["考えました、宇宙"]
    assert "handler did not return" not in house.log_of(dispatcher)
    assert house.stop(dispatcher) == 0
