"""The timer bot's conversation."""

from datetime import timedelta

import pytest

from linedesk import Bot
from linedesk.bots import timer
from linedesk.bots.timer import HELP, MOST_WAITING, NONE_WAITING, OUT_OF_RANGE, TOO_MANY, WELCOME
from linedesk.testing import BotTest

MONTH = 30 * 24 * 3600


@pytest.fixture
def bot() -> Bot:
    return timer.bot


def test_a_number_is_acknowledged_and_answered_when_its_seconds_are_over(bot_test: BotTest) -> None:
    assert bot_test.says("U1", "180").replies == ["180秒後にお知らせします"]
    assert bot_test.advance(170).texts == []
    assert bot_test.advance(10).pushes == ["180秒経ちました"]
    assert bot_test.advance(MONTH).texts == []


def test_a_cancel_stops_all_of_this_user_s_and_says_how_many(bot_test: BotTest) -> None:
    assert bot_test.says("U1", "キャンセル").replies == [NONE_WAITING]
    for number in ("30", "60", "90"):
        bot_test.says("U1", number)
    bot_test.says("U2", "60")
    bot_test.advance(45)
    assert bot_test.says("U1", " ｷｬﾝｾﾙ！　").replies == ["2個のタイマーを止めました。"]
    assert bot_test.timers("U1") == []
    assert bot_test.advance(100).sent[0].to == "U2"
    assert bot_test.pushes == ["60秒経ちました"]
    assert bot_test.says("U1", "キャンセル").replies == [NONE_WAITING]


def test_in_a_group_the_timers_are_the_group_s(bot_test: BotTest) -> None:
    assert bot_test.joins("C1").replies == [WELCOME]
    bot_test.says("U1", "60", group="C1")
    bot_test.says("U2", "90", group="C1")
    assert bot_test.advance(60).sent[0].to == "C1"
    assert bot_test.pushes == ["60秒経ちました"]
    assert bot_test.says("U1", "キャンセル", group="C1").replies == ["1個のタイマーを止めました。"]
    assert bot_test.advance(60).texts == []


def test_a_user_who_left_gets_no_more_messages(bot_test: BotTest) -> None:
    bot_test.says("U1", "60")
    assert bot_test.unfollows("U1").texts == []
    assert (bot_test.timers("U1"), bot_test.data("U1")) == ([], {})
    bot_test.says("U2", "60", group="C1")
    bot_test.leaves("C1")
    assert bot_test.advance(100).texts == []


# Forms of numbers: without the stack, since the result is the same there.


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("180", 180),
        ("１８０", 180),
        ("180秒", 180),
        ("１８０秒。", 180),
        ("180.0", 180),
        ("１，８００", 1800),
        (str(MONTH), MONTH),
        ("0" * 4_900 + "5", 5),
    ],
)
def test_a_number_however_it_is_written(text: str, seconds: int) -> None:
    bot_test = BotTest(timer.bot)
    assert bot_test.says("U1", text).replies == [f"{seconds}秒後にお知らせします"]
    assert [one.at for one in bot_test.timers("U1")] == [bot_test.now + timedelta(seconds=seconds)]


@pytest.mark.parametrize(
    "text", [*("0", "０", "-1", "－1", "ー1", "0秒", "1.5", "０．５", str(MONTH + 1), "1" * 5_000)]
)
def test_a_number_that_no_timer_can_have_is_refused(text: str) -> None:
    bot_test = BotTest(timer.bot)
    assert bot_test.says("U1", text).replies == [OUT_OF_RANGE]
    assert bot_test.timers("U1") == []


def test_anything_else_is_explained() -> None:
    bot_test = BotTest(timer.bot)
    assert bot_test.follows("U1").replies == [WELCOME]
    for text in ("百八十", "180 60", "1e3", "1,80", "１８０分", "-", "キャンセルして", ".5", "😀"):
        assert bot_test.says("U1", text).replies == [HELP]


def test_no_more_wait_at_once_than_one_event_can_cancel() -> None:
    bot_test = BotTest(timer.bot)
    for _ in range(MOST_WAITING):
        bot_test.says("U1", "60")
    assert bot_test.says("U1", "60").replies == [TOO_MANY]
    assert bot_test.says("U1", "キャンセル").replies == ["100個のタイマーを止めました。"]
    assert bot_test.timers("U1") == []
    assert bot_test.says("U1", "60").replies == ["60秒後にお知らせします"]
