"""An unsent message is gone from every store and reaches no bot, on the real processes."""

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
