"""The reminder's conversation; test_real_processes.py repeats its beginning."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from linedesk import Bot
from linedesk.bots import reminder
from linedesk.bots.reminder import (
    AS_IT_WAS,
    NO_TIME,
    NOTHING_SET,
    PATIENCE_SECONDS,
    WELCOME,
    WORDS_ONLY,
)
from linedesk.testing import BotTest

SET = "8時30分ですね。わかりました。"
AGAIN = 600.0
DAY = 24 * 3600


@pytest.fixture
def bot() -> Bot:
    return reminder.bot


def test_the_time_is_set_shown_and_deleted(bot_test: BotTest) -> None:
    assert bot_test.says("U1", "設定教えて").replies == [NOTHING_SET]
    assert bot_test.says("U1", "ばいばい").replies == [NOTHING_SET]
    assert bot_test.says("U1", "こんにちは").replies == ["時間を設定してください"]
    assert bot_test.says("U1", "８時３０分").replies == [SET]
    assert bot_test.says("U1", "設定教えて").replies == ["8時30分に設定されています"]
    assert bot_test.says("U1", "こんにちは").replies == ["こんにちは"]
    assert len(bot_test.timers("U1")) == 1
    assert bot_test.says("U1", "ばいばい").replies == ["設定を削除しました。 ばいばい"]
    assert bot_test.timers("U1") == []
    assert bot_test.says("U1", "設定教えて").replies == ["設定されてないですよ"]
    assert bot_test.advance(2 * DAY).texts == []


def test_it_asks_every_day_until_it_is_answered(bot_test: BotTest) -> None:
    bot_test.says("U1", "8時30分")
    for _ in range(2):
        assert bot_test.advance(to="08:29").texts == []
        assert bot_test.advance(to="08:30").pushes == ["飲んだ？"]
        assert bot_test.advance(AGAIN - 60).texts == []
        assert bot_test.advance(60).pushes == ["飲んだ？？"]
        assert bot_test.advance(AGAIN).pushes == ["飲んだ？？？"]
        assert bot_test.says("U1", "はい").replies == ["よくできました"]
        assert bot_test.says("U1", "はい").replies == ["はい"]


def test_it_asks_again_ten_times_at_most_and_waits_for_an_answer(bot_test: BotTest) -> None:
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:30")
    questions = [bot_test.advance(AGAIN).pushes for _ in range(10)]
    assert questions == [["飲んだ" + "？" * n] for n in range(2, 12)]
    assert bot_test.advance(12 * 3600).texts == []
    assert bot_test.sticker("U1").replies == ["よくできました"]
    assert bot_test.state("U1") is None


def test_an_hour_that_is_none_is_asked_for_and_the_minute_kept(bot_test: BotTest) -> None:
    assert bot_test.says("U1", "25時30分").replies == ["何時ですか？"]
    assert bot_test.says("U1", "24").replies == ["何時ですか？"]
    assert bot_test.says("U1", "えーと").replies == ["何時ですか？"]
    assert bot_test.sticker("U1").replies == ["何時ですか？"]
    assert bot_test.says("U1", "８").replies == [SET]
    assert bot_test.says("U1", "設定教えて").replies == ["8時30分に設定されています"]


def test_a_minute_that_is_none_is_asked_for_and_the_hour_kept(bot_test: BotTest) -> None:
    assert bot_test.says("U1", "8時61分").replies == ["何分ですか？"]
    assert bot_test.says("U1", "60分").replies == ["何分ですか？"]
    assert bot_test.says("U1", "30分").replies == [SET]


# Without the stack, since it is the same there.


@pytest.mark.parametrize(
    "said",
    [
        [("25時", "何時ですか？"), ("8時", "何分ですか？"), ("30", SET)],
        [("61分", "何分ですか？"), ("あ", "何分ですか？"), ("30", "何時ですか？"), ("8", SET)],
        [("25時61分", "何時ですか？"), ("8", "何分ですか？"), ("30", SET)],
        [("8時", "何分ですか？"), ("半", SET)],
        [("25時", "何時ですか？"), ("8時30分", SET)],
        [("8時61分", "何分ですか？"), ("25時30分", "何時ですか？"), ("8", SET)],
        [("9時61分", "何分ですか？"), ("8時", "何分ですか？"), ("30", SET)],
        [("25時", "何時ですか？"), ("30分", "何時ですか？"), ("8", SET)],
        [("毎朝8時30分にお願い", SET)],
    ],
)  # fmt: skip
def test_what_was_right_is_kept_and_the_rest_asked_for(said: list[tuple[str, str]]) -> None:
    bot_test = BotTest(reminder.bot)
    for text, answer in said:
        assert bot_test.says("U1", text).replies == [answer]
    assert bot_test.data("U1") == {"at": {"hour": 8, "minute": 30}}
    assert bot_test.state("U1") is None


def test_an_incomplete_time_is_dropped() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "25時30分")
    bot_test.advance(PATIENCE_SECONDS - 1)
    assert bot_test.says("U1", "26").replies == ["何時ですか？"]
    assert bot_test.advance(PATIENCE_SECONDS).texts == []
    assert (bot_test.state("U1"), bot_test.data("U1")) == (None, {})
    assert bot_test.says("U1", "8").replies == [NO_TIME]


def test_the_setting_is_shown_while_another_is_being_made() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    assert bot_test.says("U1", "9時99分").replies == ["何分ですか？"]
    assert bot_test.says("U1", "設定教えて").replies == ["8時30分に設定されています"]
    assert bot_test.says("U1", "15").replies == ["9時15分ですね。わかりました。"]
    assert [one.every for one in bot_test.timers("U1")] == ["09:15 Asia/Tokyo"]


def test_a_bye_ends_what_is_being_asked_for() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "25時")
    assert bot_test.says("U1", "ばいばい").replies == [NOTHING_SET]
    assert (bot_test.state("U1"), bot_test.data("U1")) == (None, {})
    assert bot_test.says("U1", "8").replies == [NO_TIME]


def test_a_bye_while_it_asks_deletes_all_of_it() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:30")
    assert bot_test.says("U1", "ばいばい").replies == ["設定を削除しました。 ばいばい"]
    assert (bot_test.state("U1"), bot_test.timers("U1")) == (None, [])
    assert bot_test.advance(2 * DAY).texts == []


@pytest.mark.parametrize(
    ("said", "answer"), [("21時5分", "21時5分ですね。わかりました。"), ("25時", "何時ですか？")]
)
def test_a_new_time_while_it_asks_ends_the_asking(said: str, answer: str) -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:30")
    assert bot_test.says("U1", said).replies == [answer]
    assert bot_test.advance(2 * AGAIN).texts == []


def test_being_asked_for_the_setting_is_no_answer() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:30")
    assert bot_test.says("U1", "設定教えて").replies == ["8時30分に設定されています"]
    assert bot_test.advance(AGAIN).pushes == ["飲んだ？？"]


def test_the_day_s_question_takes_the_place_of_what_was_being_asked() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:29")
    bot_test.says("U1", "9時99分")
    assert bot_test.advance(60).pushes == ["飲んだ？"]
    assert bot_test.says("U1", "飲んだよ").replies == ["よくできました"]
    assert bot_test.says("U1", "設定教えて").replies == ["8時30分に設定されています"]
    assert bot_test.says("U1", "20分").replies == ["何時ですか？"]


def test_the_next_day_s_question_begins_anew_while_the_last_one_still_runs() -> None:
    bot_test = BotTest(reminder.bot, settings={"again_seconds": DAY / 2.0})
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:30")
    assert bot_test.advance(DAY / 2).pushes == ["飲んだ？？"]
    assert bot_test.advance(DAY / 2).pushes[0] == "飲んだ？"
    assert [one.name for one in bot_test.timers("U1")].count("again") == 1


def test_the_zone_the_pause_and_the_number_are_settings() -> None:
    settings = {"timezone": "Europe/Berlin", "again_seconds": 5.0, "times": 2}
    start = datetime(2027, 3, 27, 12, tzinfo=UTC)  # the day before clocks go forward
    bot_test = BotTest(reminder.bot, settings=settings, start=start)
    bot_test.says("U1", "8時30分")
    bot_test.advance(to=datetime(2027, 3, 28, 6, 30, tzinfo=UTC))
    assert bot_test.pushes == ["飲んだ？"]
    assert bot_test.advance(DAY / 2).pushes == ["飲んだ？？", "飲んだ？？？"]


def test_no_question_is_asked_again_where_the_operator_wants_none() -> None:
    bot_test = BotTest(reminder.bot, settings={"times": 0})
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:30")
    assert bot_test.advance(3600).texts == []
    assert bot_test.says("U1", "はい").replies == ["よくできました"]


def test_messages_without_text_are_refused() -> None:
    bot_test = BotTest(reminder.bot)
    assert bot_test.follows("U1").replies == [WELCOME]
    assert bot_test.sticker("U1").replies == [NO_TIME]
    bot_test.says("U1", "8時30分")
    assert bot_test.image("U1").replies == [WORDS_ONLY]


def test_in_a_group_anybody_answers() -> None:
    bot_test = BotTest(reminder.bot)
    assert bot_test.joins("C1").replies == [WELCOME]
    bot_test.says("U1", "8時30分", group="C1")
    bot_test.advance(to="08:30")
    assert [one.to for one in bot_test.last.sent] == ["C1"]
    assert bot_test.says("U2", "飲んだ", group="C1").replies == ["よくできました"]


def test_a_user_who_left_is_not_asked_again() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.says("U2", "8時30分", group="C1")
    bot_test.advance(to="08:30")
    bot_test.unfollows("U1")
    bot_test.leaves("C1")
    assert (bot_test.timers("U1"), bot_test.data("U1"), bot_test.state("U1")) == ([], {}, None)
    assert bot_test.advance(2 * DAY).texts == []


@pytest.mark.parametrize("bye", ["バイバイ", "ﾊﾞｲﾊﾞｲ！", "ばいばい〜", "ばいばい。"])
def test_a_bye_is_understood_as_people_write_it(bye: str) -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    for tell in ("設定教えて？", "設定を教えてください。"):
        assert bot_test.says("U1", tell).replies == ["8時30分に設定されています"]
    assert bot_test.says("U1", bye).replies == ["設定を削除しました。 ばいばい"]
    assert bot_test.timers("U1") == []


def test_a_time_among_other_words_is_an_answer_while_it_asks() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.advance(to="08:40")
    assert bot_test.says("U1", "8時35分に飲んだ").replies == ["よくできました"]
    assert bot_test.says("U1", "設定教えて").replies == ["8時30分に設定されています"]


@pytest.mark.parametrize("words", ["キャンセル", "やめる。"])
def test_an_incomplete_time_can_be_cancelled_and_the_setting_is_kept(words: str) -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分")
    bot_test.says("U1", "9時")
    assert bot_test.says("U1", words).replies == [AS_IT_WAS]
    assert (bot_test.state("U1"), bot_test.data("U1")) == (None, {"at": {"hour": 8, "minute": 30}})
    assert len(bot_test.timers("U1")) == 1


def test_a_group_that_talks_of_other_things_is_not_asked_for_ever() -> None:
    bot_test = BotTest(reminder.bot)
    bot_test.says("U1", "8時30分", group="C1")
    bot_test.says("U1", "8時", group="C1")
    bot_test.advance(PATIENCE_SECONDS - 1)
    assert bot_test.says("U2", "ねえ", group="C1").replies == ["何分ですか？"]
    bot_test.advance(1)
    assert bot_test.says("U2", "ねえ", group="C1").replies == ["ねえ"]
