"""Handlers that hang or fail, and events that are condemned: tries, dead letters, late returns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from dispatcher.conversations.mailbox import GiveUp, Run
from jobworker.bot.talk import Talk
from jobworker.errors import GateClosed
from linedesk import Bot
from linedesk.store.records import letters
from linedesk.store.records.letters import Cause
from linesim import Sim
from tests.jobworker.worker_harness import Room
from tests.waiting import eventually

Rooms = Callable[..., Room]


def a_bot(handler: Callable[[Any, Talk], None]) -> Bot:
    bot = Bot()
    bot.default()(handler)
    return bot


def text_of(talk: Talk) -> str:
    return str(talk.raw["message"]["text"])


def texts(sim: Sim, chat: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(chat)]


def abandon(desk: Room) -> int:
    """The dispatcher's treatment of overdue handlers; how many there were."""
    lost = desk.pool.abandon_overdue(0.0)
    for thread in lost:
        assert isinstance(thread.work, Run)
        wait = desk.desk.did_not_return(thread.work.job, thread.stack)
        desk.pool.wait(thread.work.job, wait)
    return len(lost)


class Hanging:
    """A handler that hangs on one text in this many runs, and the result of each run."""

    def __init__(self, times: int, after: Callable[[Talk], None] = lambda talk: None) -> None:
        self.go_on = threading.Event()
        self.returned: list[object] = []
        self.runs = 0
        self._times = times
        self._after = after

    def __call__(self, event: Any, talk: Talk) -> None:
        if text_of(talk) == "hang":
            self.runs += 1
            if self.runs <= self._times:
                self._hang(talk)
        talk.reply(text_of(talk))

    def _hang(self, talk: Talk) -> None:
        assert self.go_on.wait(30)
        try:
            self._after(talk)
        except Exception as error:
            self.returned.append(error)
            raise
        self.returned.append(None)


@pytest.mark.parametrize("before", [True, False], ids=["api kept", "api asked for"])
def test_an_abandoned_handler_may_not_call_line(room: Rooms, sim: Sim, before: bool) -> None:
    user = sim.add_user("花子")
    kept: list[Any] = []

    def call(talk: Talk) -> None:
        (kept[0] if before else talk.api).get_profile(user.user_id)

    hanging = Hanging(1, after=call)

    def handler(event: Any, talk: Talk) -> None:
        kept.append(talk.api)
        hanging(event, talk)

    desk = room(a_bot(handler))
    desk.says(user, "hang")
    eventually(lambda: hanging.runs == 1)
    assert abandon(desk) == 1
    desk.until_quiet()
    calls = len(sim.calls)
    hanging.go_on.set()
    (error,) = eventually(lambda: hanging.returned)
    assert isinstance(error, GateClosed)
    assert len(sim.calls) == calls
    assert texts(sim, user) == ["hang"]


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


# Condemned events.


def condemn(desk: Room, given_up_for: GiveUp) -> None:
    """From now on every job of the room comes condemned, like a dispatcher's poison."""
    decide = desk.desk.decide

    def condemning(task: Any) -> Any:
        task.given_up_for = given_up_for
        return decide(task)

    desk.desk.decide = condemning  # type: ignore[method-assign]


POISON = GiveUp(letters.POISON, 3, datetime(2026, 1, 2, tzinfo=UTC))


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
