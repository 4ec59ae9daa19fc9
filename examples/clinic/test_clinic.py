from datetime import datetime

import pytest

import clinic


@pytest.fixture
def bot():
    return clinic.bot


def books(bot_test, moment):
    bot_test.says("U1", "予約")
    (flex,) = bot_test.picks_date("U1", moment).replies
    return flex["altText"], bot_test.taps("U1", "予約する").replies


def test_a_booking_is_confirmed_and_remembered_the_day_before_at_18(bot_test):
    asked, confirmed = books(bot_test, "2027-01-08T10:30")
    assert (asked, confirmed) == ("1月8日10:30でよろしいですか？", ["1月8日10:30に承りました。"])
    assert [timer.name for timer in bot_test.timers("U1")] == ["reminder"]
    assert bot_test.advance(to=datetime(2027, 1, 7, 17, 59, tzinfo=clinic.JAPAN)).pushes == []
    assert bot_test.advance(60).pushes == ["ご予約の1月8日10:30にお待ちしております。"]


def test_the_user_picks_again_on_a_closed_day_and_may_give_up(bot_test):
    bot_test.says("U1", "予約")
    assert "ほかの日時" in bot_test.picks_date("U1", "2027-01-10T10:00").texts[0]
    bot_test.picks_date("U1", "2027-01-09T11:00")
    assert bot_test.taps("U1", "やめる").replies == ["ご予約をやめました。"]
    assert "期限切れ" in bot_test.taps("U1", "予約する").texts[0]
    bot_test.says("U1", "予約")
    assert bot_test.advance(600).pushes == ["またいつでも「予約」と送ってください。"]


def test_a_booking_that_is_replaced_or_cancelled_has_no_old_reminder(bot_test):
    books(bot_test, "2027-01-08T10:30")
    bot_test.advance(10 * 3600)
    books(bot_test, "2027-01-05T09:00")
    assert bot_test.timers("U1") == []
    assert bot_test.says("U1", "キャンセル").replies == ["ご予約を取り消しました。"]
    assert bot_test.says("U1", "キャンセル").replies == ["ご予約はありません。"]


def test_friends_get_news_each_week_and_each_month(bot_test):
    bot_test.follows("U1")
    assert bot_test.advance(to="12:00").pushes == ["今週の診療時間は月〜土の9:00〜18:00です。"]
    pushes = bot_test.advance(to=datetime(2027, 2, 1, 9, 0, tzinfo=clinic.JAPAN)).pushes
    assert (len(pushes), pushes[-1][:7]) == (4, "今月の健康診断")


def test_a_photo_is_kept(bot_test, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert bot_test.image("U1", b"JPEG").replies == ["写真をお預かりしました。"]
    assert [file.read_bytes() for file in tmp_path.glob("photos/*.jpg")] == [b"JPEG"]


def test_in_a_group_only_a_mention_is_answered(bot_test):
    assert bot_test.sends_mention("U1", "@bot 予約", group="C1").texts[0].startswith("@U1 さん、")
    assert bot_test.says("U1", "予約", group="C1").sent == ()


def test_a_slow_answer_is_a_push_and_a_failure_an_apology(bot_test):
    bot_test.takes(90)
    assert bot_test.says("U1", "質問 薬は？").pushes[0].startswith("「質問 薬は？」")
    bot_test.fails()
    assert bot_test.says("U1", "質問 薬は？").replies[0].startswith("申し訳ありません。")
