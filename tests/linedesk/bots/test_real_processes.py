"""The shipped bots in the real processes: the test kit's results hold there, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from linedesk import Bot
from linedesk.bots import reminder, timer
from linedesk.testing import People
from tests.linedesk.bots import test_reminder, test_timer

PLAYS = [
    (timer.bot, test_timer.test_a_number_is_acknowledged_and_answered_when_its_seconds_are_over),
    (timer.bot, test_timer.test_each_timer_of_a_user_fires_separately),
    (timer.bot, test_timer.test_a_cancel_stops_all_of_this_user_s_and_says_how_many),
    (timer.bot, test_timer.test_in_a_group_the_timers_are_the_group_s),
    (timer.bot, test_timer.test_a_user_who_left_gets_no_more_messages),
    (reminder.bot, test_reminder.test_the_time_is_set_shown_and_deleted),
    (reminder.bot, test_reminder.test_it_asks_every_day_until_it_is_answered),
    (
        reminder.bot,
        test_reminder.test_it_asks_again_ten_times_at_most_and_waits_for_an_answer,
    ),
    (reminder.bot, test_reminder.test_an_hour_that_is_none_is_asked_for_and_the_minute_kept),
]


@pytest.fixture
def bot_settings(bot: Bot) -> dict[str, str]:
    """Another zone with Tokyo's time, distinct from the default."""
    return {"timezone": "Asia/Seoul"} if bot is reminder.bot else {}


@pytest.mark.parametrize(("bot", "play"), PLAYS, ids=[play.__name__ for _, play in PLAYS])
def test_in_the_real_processes(
    real_bot_test: People, bot: Bot, play: Callable[[People], None]
) -> None:
    play(real_bot_test)


@pytest.mark.parametrize("bot", [reminder.bot], ids=["reminder"])
def test_the_operator_s_settings_reach_the_bot(real_bot_test: People, bot: Bot) -> None:
    real_bot_test.says("U1", "8時30分")
    assert [one.every for one in real_bot_test.timers("U1")] == ["08:30 Asia/Seoul"]
