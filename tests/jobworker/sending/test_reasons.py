"""LINE's reason for a refusal, from its error body to every place where an operator looks."""

import logging
from typing import Any

import pytest

from jobworker.bot.talk import Talk
from linedesk import Bot
from linedesk.operate.calls import Wanted, newest_calls
from linedesk.operate.dead_letters import Choice, found, summary
from linedesk.operate.events.story import tell
from linesim import Sim
from tests.jobworker.worker_harness import Room, Rooms
from tests.rows import Db

EMPTY = "The request body has 1 error(s): messages[0].text May not be empty"


def saying(words: str) -> Bot:
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.push({"type": "text", "text": words})

    return bot


def pushes(database: Db, desk: Room) -> list[Any]:
    desk.desk.rows.write()
    return [row for row in newest_calls(database, Wanted()) if "push" in row["endpoint"]]


def test_a_refused_message_says_why_in_the_call_the_letter_the_story_and_the_log(
    database: Db, room: Rooms, sim: Sim, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "jobworker")
    desk = room(saying(""), send_check="off")
    document = desk.says(sim.add_user("花子"), "?")
    desk.until_quiet()
    (call,) = pushes(database, desk)
    assert (call["status"], call["reason"]) == (
        400,
        {
            "message": "The request body has 1 error(s)",
            "details": [{"property": "messages[0].text", "message": "May not be empty"}],
        },
    )
    (letter,) = found(database.deadletters, Choice())
    assert summary(letter)["explained"] == f"LINE refused it with 400: {EMPTY}"
    words = [step.words for step in tell(database, document["eventId"]).steps]
    assert any("LINE answered 400 in" in one and f"({EMPTY})" in one for one in words)
    assert any(f"given up after 1 try: LINE refused it with 400: {EMPTY}" in one for one in words)
    assert f'reason="{EMPTY}"' in caplog.text
