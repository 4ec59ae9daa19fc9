"""The loading animation while a slow handler runs, through the real processes."""

from __future__ import annotations

from typing import Any

BOT = "acceptance_bots:slow"


def is_answered(sim: Any, user: Any, text: str) -> bool:
    return [bubble.text for bubble in sim.answers(user)][-1:] == [text]


def test_a_friend_sees_that_a_slow_handler_is_at_work_until_the_answer(
    house: Any, sim: Any
) -> None:
    house.start_frontdesk()
    house.start_dispatcher(BOT=BOT)
    friend, stranger = sim.add_user("花子"), sim.add_user("太郎", friend=False)
    sim.follow(friend)
    sim.say(friend, "すぐ")
    sim.wait_for(lambda: is_answered(sim, friend, "すぐ"))
    assert sim.calls_to("loading") == []

    sim.say(stranger, "考えて")
    said = sim.say(friend, "考えて")
    sim.wait_for(lambda: sim.sees_loading(friend))
    for user in (friend, stranger):
        sim.wait_for(lambda user=user: is_answered(sim, user, "考えて"))
    assert not sim.sees_loading(friend)
    [loading], [reply] = sim.calls_to("loading"), sim.replies_to(said.event_ids[0])
    assert (loading.chat_id, loading.status) == (friend.user_id, 202)
    assert loading.finished <= reply.started


def test_it_can_be_switched_off(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    house.start_dispatcher(BOT=BOT, LOADING_ANIMATION="false")
    user = sim.add_user("花子")
    sim.follow(user)
    sim.say(user, "考えて")
    sim.wait_for(lambda: is_answered(sim, user, "考えて"))
    assert sim.calls_to("loading") == []
