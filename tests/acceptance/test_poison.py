"""An event that aborts the process, under a supervisor that starts it again and again."""

import signal
from typing import Any

import pytest

from linedesk.operate.dead_letters import explained
from tests.jobworker.worker_harness import texts


def supervise(house: Any, done: Any, *, most: int, **settings: str) -> None:
    """Restart the dispatcher whenever it dies."""
    for _ in range(most):
        process = house.start_dispatcher(ready=False, **settings)
        house.wait_for(lambda process=process: process.poll() is not None or done(), seconds=60)
        if process.poll() is None:
            return
        assert process.returncode == -signal.SIGABRT, house.log_of(process)[-3000:]
    pytest.fail(f"it died {most} times")


@pytest.mark.timeout(240)
def test_a_killer_among_slow_events_is_found_and_a_newcomer_is_answered_meanwhile(
    house: Any, sim: Any
) -> None:
    bot = {"BOT": "deadly_bots:slow", "SLOW_SECONDS": "1"}
    house.start_frontdesk()
    slow, new = [sim.add_user(f"客{n}") for n in range(12)], sim.add_user("新")
    deliveries = [sim.say(user, "毒" if n == 7 else "長い") for n, user in enumerate(slow)]

    def done() -> bool:
        return sum(len(sim.answers(user)) for user in slow) == 11

    deaths = 0
    while not done():
        process = house.start_dispatcher(ready=False, **bot)
        house.wait_for(lambda process=process: process.poll() is not None or done(), seconds=60)
        deaths += process.poll() is not None
        sim.say(new, "すぐ")
        assert deaths <= 6
    house.wait_for(lambda: len(sim.answers(new)) == deaths + 1)
    (letter,) = house.wait_for(lambda: list(house.database.deadletters.find()))
    assert (letter["_id"], letter["attempts"]) == (deliveries[7].event_ids[0], 3)
    assert house.database.control.count_documents({}) == 0


def test_the_death_of_a_thread_without_a_job_makes_no_event_a_suspect(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    users = [sim.add_user(f"客{n}") for n in range(3)]
    for user in users:
        sim.say(user, "はい")
    for _ in range(3):
        process = house.start_dispatcher(BOT="deadly_bots:mistaken", DRAIN_SECONDS="0.1")
        assert process.wait(30) == 70
        assert "thread died thread=control" in house.log_of(process)
        assert house.database.progress.find_one()["starts"] == 0
    process = house.start_dispatcher(BOT="deadly_bots:deadly")
    house.wait_for(lambda: all(len(sim.answers(user)) == 1 for user in users))
    assert "the process keeps dying" not in house.log_of(process)


def test_an_abort_after_the_record_repeats_nothing(house: Any, sim: Any) -> None:
    """The start that follows finds it in `applied`, though the count says it is poison."""
    house.start_frontdesk()
    user = sim.add_user("花子")
    delivery = sim.say(user, "毒")
    process = house.start_dispatcher(ready=False, BOT="deadly_bots:recorded")
    assert process.wait(30) == -signal.SIGABRT
    assert texts(sim, user) == []
    trying = {
        "name": delivery.event_ids[0],
        "starts": 2,
        "since": house.database.recvq.find_one()["acceptTime"],
    }
    house.database.progress.update_one({}, {"$set": {"starts": 7, "trying": trying}})

    house.start_dispatcher(BOT="deadly_bots:recorded")
    sim.say(user, "次")

    sim.wait_for(lambda: len(sim.answers(user)) >= 2)
    assert texts(sim, user) == ["毒", "次"]
    assert house.database.deadletters.count_documents({}) == 0


def test_a_handler_that_never_returns_ends_as_a_dead_letter(house: Any, sim: Any) -> None:
    """Its thread still hangs when the process is stopped, and does not delay the stop."""
    house.start_frontdesk()
    limits = {"HANDLER_LIMIT_SECONDS": "0.2", "HANDLER_TRIES": "2", "DISPATCHER_THREADS": "3"}
    process = house.start_dispatcher(BOT="acceptance_bots:stuck", **limits)
    ill, well = sim.add_user("病"), sim.add_user("健")
    stuck = sim.say(ill, "stuck")
    sim.say(ill, "次")
    sim.say(well, "はい")

    sim.wait_for(lambda: texts(sim, ill) == ["次"], timeout=30)

    assert texts(sim, well) == ["はい"]
    letter = house.wait_for(lambda: house.database.deadletters.find_one())
    assert (letter["_id"], letter["attempts"]) == (stuck.event_ids[0], 2)
    assert explained(letter) == "handler: did not return"
    assert "never_return" in letter["traceback"]
    assert house.stop(process) == 0
    assert house.log_of(process).count("handler did not return, abandoned") == 2
