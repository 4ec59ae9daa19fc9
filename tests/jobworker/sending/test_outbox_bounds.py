"""The bound of a conversation's outbox in bytes."""

from dataclasses import replace
from typing import Any

from jobworker.bot.talk import Talk
from linedesk import Bot
from linesim import Sim
from tests.jobworker.worker_harness import SHORT_PAUSES, Rooms
from tests.waiting import eventually

LINES = [{"type": "text", "text": "あ" * 100}] * 70
BUBBLE = {"type": "bubble", "body": {"type": "box", "layout": "vertical", "contents": LINES}}
# 24 kB, of 30 that LINE takes.
FLEX = {"type": "flex", "altText": "大きなカード", "contents": BUBBLE}


def flex_bot() -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.reply(FLEX)

    return bot


def test_a_conversation_whose_outbox_has_many_bytes_waits_and_others_continue(
    room: Rooms, sim: Sim
) -> None:
    limits = replace(SHORT_PAUSES, most_bytes_per_conversation=130_000)
    desk = room(flex_bot(), send_limits=limits)
    hanako, taro = sim.add_user("花子"), sim.add_user("太郎")
    sim.answer_next("reply", 500, times=1_000)
    for number in range(20):
        desk.says(hanako, str(number))
    box = f"main/{hanako.user_id}"
    # Beyond 130 kB none of her further events is decided.
    eventually(lambda: desk.desk.outbox.waits_for_room(box, lambda: None))
    waiting = desk.conversation(hanako.user_id)["outbox"]
    assert len(waiting) < 10
    assert desk.unfinished == 20 - len(waiting)
    sim.clear_faults()
    desk.says(taro, "!")
    desk.until_quiet(seconds=60)
    assert [len(sim.answers(user)) for user in (hanako, taro)] == [20, 1]
