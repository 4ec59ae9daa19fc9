"""Filters and `@bot.failed` of a bot in worker processes: as in the dispatcher."""

import re
from typing import Any

from linebot.v3.webhooks import MessageEvent

from jobworker.bot.talk import Talk
from linedesk import Bot, GiveUp
from linedesk.operate.dead_letters import explained
from tests.jobworker.remote.house import House
from tests.jobworker.remote.wire import Wire
from tests.waiting import eventually

RUNS: list[str] = []


def filtering_bot() -> Bot:
    """A bot whose first filters are code, which the leader does not have."""
    bot = Bot()

    def word(name: str) -> Any:
        return lambda event, talk: talk.reply(name)

    bot.add(MessageEvent)(word("ほか"))
    bot.add(MessageEvent, text=re.compile("^予約"))(word("予約"))
    bot.add(MessageEvent, text="予約する")(word("遅い"))
    bot.add(MessageEvent, text="取消")(word("取消"))
    bot.add(MessageEvent, when=lambda event, talk: event.message.text == "無" and talk.no)(
        word("無")
    )
    bot.add(MessageEvent, when=lambda event, talk: talk.data.get("vip"))(word("会員"))

    @bot.add(MessageEvent, text="会員になる")
    def join(event: Any, talk: Talk) -> None:
        talk.data["vip"] = True

    @bot.add(MessageEvent, text=re.compile("^品"), gather=1.0, most=3)
    def items(events: Any, talk: Talk) -> None:
        talk.reply(" ".join(one.message.text for one in events))

    @bot.add(MessageEvent, text="だめ")
    def no(event: Any, talk: Talk) -> None:
        raise GiveUp("満席")

    @bot.add(MessageEvent, text="誤り")
    def wrong(event: Any, talk: Talk) -> None:
        RUNS.append("誤り")
        raise KeyError("a user's words")

    @bot.failed
    def failed(event: Any, talk: Talk) -> None:
        talk.reply(f"申し訳ありません：{event.message.text}")
        if event.message.text == "誤り":
            raise RuntimeError

    return bot


def test_a_worker_judges_the_filters_that_are_code(house: House) -> None:
    user, wire = house.sim.add_user("花子"), Wire(house.node)
    room = house.leader(wire)
    house.worker(filtering_bot())
    said = {"予約する": "予約", "取消": "取消", "何": "ほか", "会員になる": None, "何 ": "会員"}
    for text in said:
        room.says(user, text)
    room.until_quiet()
    assert house.texts(user) == [one for one in said.values() if one]
    asked = [one["choose"] for one in wire.out.of("job") if "choose" in one]
    # One question a message, and none about what the leader knows after it.
    assert len(asked) == len(said)
    other = house.sim.add_user("太郎")
    for text in ("品1", "品2", "品3", "取消"):
        room.says(other, text)
    room.until_quiet()
    assert house.texts(other) == ["品1 品2 品3", "取消"]


def test_a_worker_says_sorry_and_its_errors_keep_their_kind(house: House) -> None:
    user = house.sim.add_user("花子")
    room = house.leader(tries=6)
    house.worker(filtering_bot())
    for text in ("だめ", "誤り", "無"):
        room.says(user, text)
    room.until_quiet()
    assert house.texts(user) == ["申し訳ありません：だめ", "申し訳ありません：無"]
    assert len(RUNS) == 3
    letters = eventually(room.letters)
    causes = [explained(one) for one in letters]
    assert causes == ["handler: GiveUp: 満席", "handler: KeyError", "handler: AttributeError"]
    assert "test_choosing.py" in letters[1]["traceback"]
