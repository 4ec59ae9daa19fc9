"""The test kit: a bot in memory from the author's view, and the warnings."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from linebot.v3 import webhooks as line
from linebot.v3.messaging import TextMessage

from jobworker.errors import NoTimerHandler
from linedesk import Bot, BotError, ContentNotFound, GiveUp, Talk, TimerEvent
from linedesk.testing import BotTest, BotWarning, EndlessTimers, Sent
from tests.linedesk.testing.kit_bot import bot as kit_bot

pytest_plugins = ["pytester"]


def bot_that(handle: Callable[[Any, Talk], Any], **options: Any) -> BotTest:
    """A bot with one handler for everything."""
    bot = Bot(**options)
    bot.default()(handle)
    return BotTest(bot)


def test_answers_have_texts_as_texts_and_everything_else_as_json() -> None:
    sticker = {"type": "sticker", "packageId": "446", "stickerId": "1988"}

    def handle(event: Any, talk: Talk) -> None:
        talk.reply("一", sticker)
        talk.push(TextMessage(text="二"), to="U2")
        talk.multicast(["U3", "U4"], "三")

    test = bot_that(handle)
    answers = test.says("U1", "やあ")
    assert answers.replies == test.replies == ["一", sticker]
    assert answers.pushes == test.pushes == ["二", "三"]
    assert answers.texts == ["一", "二", "三"]
    assert answers.messages[1] == sticker
    assert [(one.to, one.way) for one in test.sent] == [
        ("U1", "reply"),
        ("U2", "push"),
        (("U3", "U4"), "multicast"),
    ]
    test.clear()
    assert test.sent == []
    assert test.last.sent[0] == Sent("U1", "reply", ({"type": "text", "text": "一"}, sticker))


def test_what_the_token_is_not_good_for_is_a_push() -> None:
    def handle(event: Any, talk: Talk) -> None:
        talk.reply(*"12345")
        talk.reply("6")

    test = bot_that(handle)
    assert (test.says("U1", "やあ").replies, test.pushes) == ([*"12345"], ["6"])
    assert (test.unfollows("U1").replies, test.pushes) == ([], [*"12345", "6"])


@pytest.mark.parametrize(
    ("act", "event", "message"),
    [
        (lambda t: t.says("U1", "やあ"), line.MessageEvent, line.TextMessageContent),
        (lambda t: t.image("U1"), line.MessageEvent, line.ImageMessageContent),
        (lambda t: t.presses("U1", "a=1", params={"date": "2027-01-04"}), line.PostbackEvent, None),
        (lambda t: t.follows("U1", unblocked=True), line.FollowEvent, None),
        (lambda t: t.member_joins("U1", group="C1"), line.MemberJoinedEvent, None),
        (lambda t: t.unsends("U1", "5001", group="C1"), line.UnsendEvent, None),
        (
            lambda t: t.sends("U1", {"type": "beacon", "beacon": {"hwid": "a", "type": "enter"}}),
            line.BeaconEvent,
            None,
        ),
    ],
)
def test_what_people_do_reaches_the_handler_as_the_sdk_s_class(
    act: Callable[[BotTest], Any], event: type, message: type | None
) -> None:
    seen: list[Any] = []
    test = bot_that(lambda event, talk: seen.append(event))
    act(test)
    assert type(seen[0]) is event
    assert message is None or type(seen[0].message) is message


def test_content_is_what_the_user_sent_and_goes_with_the_handler(tmp_path: Any) -> None:
    paths = []

    def handle(event: Any, talk: Talk) -> None:
        paths.append(talk.content(event.message).path)
        kept = talk.content(event.message, tmp_path / "kept")
        talk.reply(f"{kept.type} {kept.size}", paths[-1].read_bytes().decode())

    test = bot_that(handle)
    assert test.file("U1", b"a,b", name="list.csv").replies == ["text/csv 3", "a,b"]
    assert not paths[0].exists()
    assert (tmp_path / "kept").read_bytes() == b"a,b"
    with pytest.raises(ContentNotFound):
        test.sends("U1", {"type": "image", "id": "6", "contentProvider": {"type": "line"}})


def test_data_comes_back_as_mongodb_gives_it() -> None:
    moment = datetime(2027, 1, 4, 0, 0, 0, 123_456, tzinfo=UTC)

    def handle(event: Any, talk: Talk) -> None:
        talk.reply(repr(talk.data.get("kept")))
        talk.data["kept"] = [(1, 2), moment]
        talk.after(60, "later", pair=(1, 2))

    test = bot_that(handle)
    test.bot.timer("later")(handle)
    test.says("U1", "一")
    assert test.timers("U1")[0].data == {"pair": [1, 2]}
    assert test.data("U1") == {"kept": [[1, 2], moment.replace(microsecond=123_000)]}
    assert test.says("U1", "二").replies[0] != repr([(1, 2), moment])


def test_a_handler_that_raises_has_done_nothing() -> None:
    test = BotTest(kit_bot)
    with pytest.raises(RuntimeError) as caught:
        test.says("U1", "fail")
    assert "HANDLER_TRIES" in caught.value.__notes__[0]
    assert (test.sent, test.data("U1"), test.timers("U1")) == ([], {}, [])
    assert test.says("U1", "やあ").replies == ["聞こえました：やあ"]

    refused = bot_that(lambda event, talk: talk.reply(*"123456"))
    with pytest.raises(BotError, match="messages in one send") as caught_too:
        refused.says("U1", "やあ")
    assert "three times" in caught_too.value.__notes__[0]


def test_timers_fire_in_their_order_each_at_its_own_time() -> None:
    seen = []
    bot = Bot()

    @bot.default()
    def start(event: Any, talk: Talk) -> None:
        talk.after(30, "b")
        talk.after(20, "a")

    @bot.timer("a")
    @bot.timer("b")
    def ring(event: TimerEvent, talk: Talk) -> None:
        seen.append((event.name, talk.now, event.due))
        if event.name == "a":
            talk.after(5, "a")

    test = BotTest(bot)
    began = test.now
    test.says("U1", "始め")
    test.advance(29)
    test.advance(1)
    at = [began + timedelta(seconds=n) for n in (20, 25, 30)]
    assert seen == [("a", at[0], at[0]), ("a", at[1], at[1]), ("b", at[2], at[2]), *seen[3:]]
    assert seen[3:] == [("a", at[2], at[2])]
    assert test.now == at[2]


def test_a_timer_fires_by_any_rule_until_its_end() -> None:
    bot = Bot()
    bot.default()(lambda event, talk: talk.every(event.message.text, "news"))
    bot.timer("news")(lambda event, talk: talk.push("ニュース"))
    test = BotTest(bot)
    test.says("U1", "平日 7:30 until 2027-01-06")
    assert test.advance(30 * 24 * 3600).pushes == ["ニュース"] * 2
    assert test.timers("U1") == []
    # From here no day is left: it replaces a timer of the name by none.
    test.says("U1", "0 12 * * mon")
    test.says("U1", "平日 7:30 until 2027-01-06")
    assert test.timers("U1") == []
    for wrong in ("月曜に", "0 0 30 2 *"):
        with pytest.raises(BotError, match="not a time"):
            test.says("U1", wrong)


def test_start_timers_runs_once_for_friends_that_are_known() -> None:
    bot = Bot()
    bot.default()(lambda event, talk: talk.data.update(seen=True))
    bot.timer("news")(lambda event, talk: talk.push("ニュース"))

    @bot.start_timers("monday-news")
    def start(event: TimerEvent, talk: Talk) -> None:
        talk.every("月 12:00", "news")
        talk.push("毎週月曜にお送りします。")

    test = BotTest(bot)
    for user in ("U1", "U2"):
        test.says(user, "やあ")
    test.says("U1", "やあ", group="C1")
    test.unfollows("U2")
    assert [one.to for one in test.starts_timers("monday-news").sent] == ["U1"]
    assert test.starts_timers("monday-news").sent == ()
    assert test.advance(7 * 24 * 3600).pushes == ["ニュース"]
    with pytest.raises(BotError, match="start_timers"):
        bot.start_timers("v1.0")


def test_a_timer_for_now_fires_with_its_event_and_endless_ones_are_reported() -> None:
    bot = Bot()
    bot.default()(lambda event, talk: talk.after(0, event.message.text))
    bot.timer("once")(lambda event, talk: talk.push("鳴った"))
    bot.timer("ever")(lambda event, talk: talk.after(0, "ever"))
    assert BotTest(bot).says("U1", "once").pushes == ["鳴った"]
    with pytest.raises(EndlessTimers, match="ever"):
        BotTest(bot).says("U1", "ever")


@pytest.mark.parametrize("answer", ["はい", TextMessage(text="はい")])
def test_a_message_that_is_returned_and_not_sent_is_warned_of(answer: Any) -> None:
    def handle(event: Any, talk: Talk) -> Any:
        return answer

    with pytest.warns(BotWarning, match="use talk.reply") as caught:
        assert bot_that(handle).says("U1", "やあ").texts == []
    (warning,) = caught
    assert (warning.filename, warning.lineno) == (__file__, handle.__code__.co_firstlineno)


def test_the_fixture_takes_the_bot_and_its_settings_from_the_test(
    pytester: pytest.Pytester,
) -> None:
    pytester.makepyfile(
        test_own="""
        import pytest
        from linedesk import Bot

        @pytest.fixture
        def bot():
            own = Bot(settings={"times": 1})
            own.default()(lambda event, talk: talk.reply(str(talk.settings["times"])))
            return own

        @pytest.fixture
        def bot_settings():
            return {"times": 5}

        def test_own(bot_test):
            assert bot_test.says("U1", "?").replies == ["5"]
        """,
        test_none="def test_none(bot_test): ...",
    )
    answer = pytester.runpytest_inprocess("-p", "linedesk.testing.pytest_plugin", "-W", "ignore")
    answer.assert_outcomes(passed=1, errors=1)
    answer.stdout.fnmatch_lines(["*needs a fixture `bot`*"])


def test_a_timer_without_a_handler_is_reported_when_it_is_set() -> None:
    bot = Bot()

    @bot.add(line.MessageEvent)
    def text(event: line.MessageEvent, talk: Talk) -> None:
        talk.cancel("of_former_days")
        talk.after(60, event.message.text)

    bot.timer("ring")(text)
    test = BotTest(bot)
    test.says("U1", "ring:1")
    with pytest.raises(NoTimerHandler, match="rign"):
        test.says("U1", "rign")
    assert [one.name for one in test.timers("U1")] == ["ring:1"]


def a_slow_bot(limit: float = 60) -> Bot:
    bot = Bot()

    @bot.default(limit=limit)
    def handler(event: Any, talk: Any) -> None:
        talk.data["asked"] = talk.data.get("asked", 0) + 1
        talk.reply("考えました。")

    return bot


def test_a_slow_answer_waits_behind_a_button_for_a_tap() -> None:
    slow = BotTest(a_slow_bot(), slow_answers="button")
    slow.takes(50)
    [button] = slow.says("U1", "?").replies
    assert isinstance(button, dict)
    assert button["template"]["type"] == "buttons"
    assert slow.last.pushes == []
    assert slow.data("U1") == {"asked": 1}
    assert slow.taps("U1").replies == ["考えました。"]
    assert slow.taps("U1").sent == ()
    # The next one is quick again.
    assert slow.says("U1", "?").replies == ["考えました。"]


def test_a_tap_within_a_day_brings_it_and_later_a_sentence() -> None:
    slow = BotTest(a_slow_bot(limit=120), slow_answers="button")
    for user, seconds in (("U1", 23 * 3600.0), ("U2", 25 * 3600.0)):
        slow.takes(120)
        slow.says(user, "?", group="C1")
        slow.advance(seconds)
        in_time = slow.taps("U3", group="C1").replies == ["考えました。"]
        assert in_time is (user == "U1")
    assert slow.last.texts[0].startswith("申し訳ありません")


def test_a_slow_answer_is_a_push_by_default() -> None:
    slow = BotTest(a_slow_bot())
    slow.takes(59)
    assert slow.says("U1", "?").replies == ["考えました。"]
    slow.takes(60)
    assert slow.says("U1", "?").pushes == ["考えました。"]
    with pytest.raises(ValueError, match="no button"):
        slow.taps("U1")


def test_a_test_sees_what_the_bot_says_of_an_event_that_is_given_up() -> None:
    raises: list[Exception] = []

    def handle(event: Any, talk: Talk) -> None:
        talk.reply("はい")
        talk.data["handled"] = True
        if raises:
            raise raises[0]

    test = bot_that(handle)
    test.fails()
    assert test.says("U1", "?").sent == ()
    test.bot.failed(lambda event, talk: talk.reply("申し訳ありません"))
    for raises[:] in ([], [GiveUp("満席")]):
        test.fails()
        test.takes(60)
        assert test.says("U1", "?").pushes == ["申し訳ありません"]
    assert test.data("U1") == {}
    with pytest.raises(GiveUp) as caught:
        test.says("U1", "?")
    assert "at once" in caught.value.__notes__[0]
