"""The figures of a worker: they report events, and never a user's text."""

import json
from typing import Any

from prometheus_client import generate_latest

from jobworker.bot.talk import Talk
from linedesk import Bot
from linesim import Sim
from tests.jobworker.worker_harness import Rooms
from tests.rows import rows_of
from tests.waiting import eventually

REPLY = "/v2/bot/message/reply"
SECRET_WORDS = "秘密の言葉"


def a_bot() -> Bot:
    """Fails on 壊, answers all other texts."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if event.message.text.startswith("壊"):
            raise ValueError(f"{event.message.text} of {talk.user_id}")
        if event.message.text != "黙":
            talk.reply(event.message.text)

    return bot


def test_an_answer_is_counted_all_the_way_and_names_no_user(room: Rooms, sim: Sim) -> None:
    desk = room(a_bot(), tries=2)
    user = sim.add_user("花子")
    sim.answer_next("reply", 500)
    desk.says(user, SECRET_WORDS)
    desk.says(user, f"壊{SECRET_WORDS}")
    desk.says(user, "黙")
    desk.until_quiet()
    jobs = eventually(lambda: len(found := rows_of(desk.database.jobs)) == 4 and found)
    eventually(lambda: desk.figures().get("deadLettersKept") == 1)
    assert desk.figures()["deadLettersOpen"] == 1

    found = desk.figures()
    assert found["decidedEvents"] == {"recorded": 2, "finished": 1, "applied": 0, "unheard": 0}
    assert found["failedHandlers"] == {"error": 2, "timeout": 0}
    assert found["deadLetters"] == {"event": 1, "send": 0, "timer": 0}
    assert found["calls"] == {"api": {REPLY: {"200": 1, "500": 1}}}
    assert (found["sendRetries"], found["unprovedReplies"]) == (1, 0)
    assert (found["gateTurns"], found["gateWaiting"]) == ({"api": 2}, {"api": 0})
    assert (found["outboxEffects"], found["unwrittenRows"]) == (0, {"calls": 0, "jobs": 0})
    # Of each event the first start, and of the one that failed both runs.
    seconds = {name: found[f"{name}Seconds"]["count"] for name in ("wait", "handler")}
    assert seconds == {"wait": 3, "handler": 4}
    assert found["callSeconds"][REPLY]["count"] == found["gateWaitSeconds"]["api"]["count"] == 2

    metrics = generate_latest(desk.registry).decode()
    rows = json.dumps(jobs, default=str, ensure_ascii=False)
    for text in (SECRET_WORDS, sim.token, "花子", "replyToken"):
        assert text not in metrics + rows
    assert user.user_id not in metrics
    for row in jobs:
        assert row.pop("key") == user.user_id
        assert user.user_id not in str(row)


# Pauses are drawn between nothing and the first one, so none ends within the test.
