"""Handlers that are abandoned and return late, and events that are condemned."""

import threading
from datetime import UTC, datetime
from typing import Any

from dispatcher.conversations.mailbox import Condemned, Run
from jobworker.bot.talk import Talk
from linedesk.store.records import letters
from linedesk.store.records.letters import Cause
from linesim import Sim
from tests.jobworker.worker_harness import Room, Rooms, a_bot, texts
from tests.waiting import eventually


def abandon(desk: Room) -> int:
    """The dispatcher's treatment of overdue handlers; how many there were."""
    lost = desk.pool.abandon_overdue(0.0)
    for thread in lost:
        assert isinstance(thread.work, Run)
        wait = desk.desk.did_not_return(thread.work.job, thread.stack)
        desk.pool.wait(thread.work.job, wait)
    return len(lost)


def test_an_abandoned_handler_s_decision_beside_the_next_run_is_discarded(
    room: Rooms, sim: Sim
) -> None:
    user, runs = sim.add_user("花子"), list[str]()
    go_on = {"first": threading.Event(), "second": threading.Event()}

    def handler(event: Any, talk: Talk) -> None:
        run = "second" if runs else "first"
        runs.append(run)
        assert go_on[run].wait(30)
        talk.reply(run)

    desk = room(a_bot(handler))
    desk.says(user, "?")
    eventually(lambda: runs == ["first"])
    assert abandon(desk) == 1
    eventually(lambda: runs == ["first", "second"])
    go_on["first"].set()
    eventually(lambda: not desk.pool.threads.abandoned())
    go_on["second"].set()
    desk.until_quiet()
    assert texts(sim, user) == ["second"]


def condemn(desk: Room, given_up_for: Condemned) -> None:
    """From now on every job of the room comes condemned, like a dispatcher's poison."""
    decide = desk.desk.decide

    def condemning(task: Any) -> Any:
        task.given_up_for = given_up_for
        return decide(task)

    desk.desk.decide = condemning  # type: ignore[method-assign]


POISON = Condemned(letters.POISON, 3, datetime(2026, 1, 2, tzinfo=UTC))


def test_a_given_up_event_becomes_a_dead_letter_without_its_handler(room: Rooms, sim: Sim) -> None:
    user, runs = sim.add_user("花子"), []
    desk = room(a_bot(lambda event, talk: runs.append(talk)))
    condemn(desk, POISON)
    document = desk.put(sim.drafts.text(user, "毒"), again=True)
    desk.until_quiet()
    (letter,) = eventually(desk.letters)
    assert letter["_id"] == document["eventId"]
    assert (Cause.of(letter), letter["attempts"]) == (POISON.cause, 3)
    assert letter["firstAt"] == POISON.first_at
    assert letter["document"]["_id"] == document["_id"]
    assert runs == []
    assert document["eventId"] in desk.conversation(user.user_id)["applied"]


def test_a_given_up_event_that_was_recorded_is_carried_out_and_not_given_up(
    room: Rooms, sim: Sim
) -> None:
    """It took the process down after its record: its effects remain, and nothing is repeated."""
    user = sim.add_user("花子")
    desk = room(a_bot(lambda event, talk: talk.reply("はい")))
    document = desk.says(user, "?")
    desk.until_quiet()
    with Room(desk.database, sim, a_bot(lambda event, talk: talk.reply("二度")), epoch=2) as next_:
        condemn(next_, POISON)
        next_.put_document(document, again=True)
        next_.until_quiet()
        assert next_.letters() == []
    assert texts(sim, user) == ["はい"]
