"""The limits of late answers, and how the month and a push's expiry end sends without a call."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import linesim
from jobworker.bot.talk import Talk
from jobworker.sending.late_replies import LateReplies
from jobworker.sending.outcomes import Outcomes
from linedesk import Bot
from linesim import Sim
from tests.jobworker.worker_harness import SHORT_PAUSES, Room, Rooms, echo, texts
from tests.waiting import eventually

TODAY, TOMORROW = "2026-11-23", "2026-11-24"


def pushes_to(sim: Sim, user: Any) -> int:
    return sum(call.chat_id == user.user_id for call in sim.calls_to("push"))


def write_late(desk: Room, sim: Sim, user: Any, count: int) -> None:
    """The user's messages were stored two minutes ago: their tokens are too old."""
    long_ago = datetime.now(UTC) - timedelta(minutes=2)
    for number in range(count):
        desk.put(sim.drafts.text(user, str(number)), accepted=long_ago)


def test_all_together_use_a_tenth_of_what_the_month_had_left_in_the_morning() -> None:
    late, left = LateReplies(), 200
    while late.may_cost(TODAY, left):
        late.paid(TODAY)
        left -= 1
    assert left == 180
    assert late.may_cost(TOMORROW, left)
    assert not late.may_cost(TODAY, 0)
    assert not LateReplies().may_cost(TODAY, 9)


def test_late_answers_cost_a_conversation_so_many_calls_a_day_and_no_more(
    database: Any, room: Rooms, sim: Sim
) -> None:
    hanako, taro = sim.add_user("花子"), sim.add_user("太郎")
    limits = replace(SHORT_PAUSES, late_replies_a_day=2)
    with Room(database, sim, echo(), send_limits=limits) as first:
        write_late(first, sim, hanako, 30)
        first.until_quiet()
        assert pushes_to(sim, hanako) == 2
        arrived = texts(sim, hanako)
        assert arrived == [str(number) for number in range(len(arrived))]
        letters = first.letters()
        assert [letter["cause"] for letter in letters] == ["late"] * (30 - len(arrived))
        # Another conversation has calls of its own.
        write_late(first, sim, taro, 1)
        first.until_quiet()
        assert texts(sim, taro) == ["0"]
    # The count outlives the process.
    second = room(echo(), epoch=2, send_limits=limits)
    write_late(second, sim, hanako, 1)
    second.until_quiet()
    assert texts(sim, hanako) == arrived
    # An answer in time is free in any case.
    second.says(hanako, "!")
    second.until_quiet()
    assert texts(sim, hanako) == [*arrived, "!"]


def test_a_push_whose_time_is_over_is_not_sent_and_what_is_behind_it_is(
    room: Rooms, sim: Sim
) -> None:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.push("古い", until=datetime.now(UTC) - timedelta(seconds=1))
        talk.push("新しい", until=datetime.now(UTC) + timedelta(hours=1))

    desk, user = room(bot), sim.add_user("花子")
    desk.says(user, "?")
    desk.until_quiet()
    assert texts(sim, user) == ["新しい"]
    assert [letter["cause"] for letter in desk.letters()] == ["expired"]


def test_a_month_that_closes_before_a_refused_push_rests_ends_its_rest(
    room: Rooms, monkeypatch: pytest.MonkeyPatch
) -> None:
    bot, try_again = Bot(), Outcomes._try_again

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.push("はい")

    def after_the_reading(self: Outcomes, *args: Any) -> None:
        eventually(lambda: desk.desk.line.quota.month.is_closed)
        try_again(self, *args)

    monkeypatch.setattr(Outcomes, "_try_again", after_the_reading)
    with linesim.running(rate_limits=False, quota=0) as poor:
        desk = room(bot, sim=poor)
        desk.says(poor.add_user("花子"), "?")
        desk.until_quiet()
        assert [letter["cause"] for letter in desk.letters()] == ["quota"]
