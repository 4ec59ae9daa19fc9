"""A WebhookHandler of line-bot-sdk's in the real processes."""

from __future__ import annotations

import signal

import pytest

from linedesk.operate.dead_letters import explained
from tests.acceptance.conftest import House
from tests.rows import rows_of


@pytest.mark.long
def test_an_sdk_bot_answers_each_message_in_order_and_loses_none_by_a_kill(house: House) -> None:
    house.start_frontdesk()
    bot = {"BOT": "tests.sdk_bots.echo:handler"}
    first = house.start_dispatcher(**bot)
    users = [house.sim.add_user(name) for name in ("花子", "太郎", "次郎")]
    said = [f"{number}" for number in range(10)]
    for text in said[:5]:
        for user in users:
            house.sim.say(user, text)
    house.stop(first, signal.SIGKILL)
    second = house.start_dispatcher(ready=False, **bot)
    for text in said[5:]:
        for user in users:
            house.sim.say(user, text)
    for user in users:
        house.wait_for(lambda user=user: house.sim.answers(user)[-1:], second)
        house.wait_for(lambda user=user: house.sim.answers(user)[-1].text == said[-1], second)
        texts = [bubble.text for bubble in house.sim.answers(user)]
        # A killed handler runs again. A reply token works once, so nothing comes twice here.
        assert texts == said
    assert house.stop(second) == 0
    # A reply that was through when its handler was killed is refused the second time.
    letters = list(house.database.deadletters.find())
    assert {explained(letter) for letter in letters} <= {"handler: ApiException"}
    [row, *_] = rows_of(house.database.calls, key=users[0].user_id, status=200)
    assert row["endpoint"] == "/v2/bot/message/reply"
