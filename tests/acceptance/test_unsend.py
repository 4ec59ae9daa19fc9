"""An unsent message is gone from every store and reaches no bot, on the real processes."""

from __future__ import annotations

import signal
from typing import Any

SECRET = "ひみつのことば"


def everything(house: Any) -> str:
    names = ("recvq", "held", "conversations", "deadletters", "calls")
    return str([list(house.database[name].find()) for name in names])


def test_an_unsent_message_is_emptied_where_it_is_stored(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    dispatcher = house.start_dispatcher(BOT="acceptance_bots:faulty", HANDLER_TRIES="1")
    user = sim.add_user("花子")
    lost = sim.say(user, "boom")
    read = sim.say(user, SECRET)
    sim.wait_for(lambda: sim.answers(user))
    house.wait_for(lambda: house.database.deadletters.find_one({"_id": lost.event_ids[0]}))
    assert SECRET in everything(house)

    for delivery in (lost, read):
        sim.unsend(user, delivery.events[0]["message"]["id"])
    house.wait_for(lambda: house.database.recvq.count_documents({"unsent": True}) == 2)
    letters = house.database.deadletters
    house.wait_for(lambda: letters.find_one({"document.unsent": True, "traceback": None}))

    # The answer that repeats it leaves the outbox a moment after it is sent.
    house.wait_for(lambda: SECRET not in everything(house))
    assert "boom" not in everything(house)
    assert SECRET not in house.log_of(dispatcher)


def test_a_message_whose_unsend_came_first_is_not_answered(open_house: Any, sim: Any) -> None:
    user = sim.add_user("花子")
    message = sim.drafts.text(user, SECRET)
    sim.deliver(sim.drafts.unsend(message["message"]["id"], user))
    sim.deliver(message)
    sim.say(user, "次")

    sim.wait_for(lambda: sim.answers(user))
    assert len(sim.answers(user)) == 1
    assert SECRET not in everything(open_house)


def test_a_dispatcher_put_back_to_an_older_token_does_not_answer_an_unsent_message(
    house: Any, sim: Any
) -> None:
    """The stream still delivers the original message; `applied` is emptied, so that only the unsend
    prevents an answer.
    """
    house.start_frontdesk()
    first = house.start_dispatcher(BOT="acceptance_bots:counter")
    user = sim.add_user("花子")
    sim.say(user, "はじめ")
    sim.wait_for(lambda: sim.answers(user))
    conversation = {"_id": f"main/{user.user_id}"}
    progress = house.wait_for(
        lambda: house.database.progress.find_one({"token": {"$ne": None}, "passed": 1})
    )
    message = sim.say(user, SECRET)
    sim.wait_for(lambda: len(sim.answers(user)) == 2)
    sim.unsend(user, message.events[0]["message"]["id"])
    house.wait_for(lambda: house.database.recvq.find_one({"unsent": True}))
    assert house.stop(first) == 0

    house.database.progress.replace_one({"_id": "dispatcher"}, progress)
    house.database.conversations.update_one(conversation, {"$set": {"applied": []}})
    second = house.start_dispatcher(BOT="acceptance_bots:counter")
    sim.say(user, "おわり")
    sim.wait_for(lambda: len(sim.answers(user)) == 3)

    assert [bubble.text for bubble in sim.answers(user)][2] == "3: おわり"
    assert "no handler runs event_id=" + message.event_ids[0] in house.log_of(second)
    assert house.stop(second, signal.SIGTERM) == 0
    assert SECRET not in str(list(house.database.recvq.find()))
