"""What the test kit says is what the real processes do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest
import requests

from linedesk.store.recurrence import Recurrence
from linedesk.testing import BotTest
from tests.linedesk.testing.kit_bot import bot
from tests.real_stack import RealStack, real_stack

TEXTS = ("やあ", "count", "name", "花子", "daily", "stop")
# Sums of these are no times of a timer, so none is due at the end of one.
SPANS = (71.0, 131.0, 313.0, 86_417.0)
# As in memory.
START = Recurrence.parse("9:00", "Asia/Tokyo")


@pytest.fixture(scope="module")
def stack() -> Iterator[RealStack]:
    with real_stack() as stack:
        stack.play("tests.linedesk.testing.kit_bot:bot")
        yield stack


def test_the_simulators_clock_stops_at_each_timer_on_its_way(stack: RealStack) -> None:
    """Also at those that are set by a timer on the way."""
    user = stack.sim.add_user("太郎")
    stack.deliver(stack.sim.drafts.text(user, "count"))
    began = stack.now().timestamp()
    answer = requests.post(f"{stack.sim.url}/sim/clock", json={"advance": 86_400}, timeout=60)
    assert answer.json()["now"] - began == pytest.approx(86_400, abs=30)
    at = {bubble.text: bubble.at - began for bubble in stack.sim.answers(user)}
    assert [at["1"], at["2"], at["3"]] == pytest.approx([60, 120, 180], abs=15)
    assert at["1"] < at["2"] < at["3"]


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2))
def test_acts_of_chance_have_the_same_answers(stack: RealStack, seed: int) -> None:
    chance = Random(seed)
    stack.clear()
    stack.move_to(START.after(stack.now()))
    users = {name: stack.sim.add_user(name) for name in ("U1", "U2")}
    group = stack.sim.add_group("C1", members=[*users.values()])
    in_memory = BotTest(bot)
    for _ in range(40):
        user, chat = chance.choice(("U1", "U2")), chance.choice((None, "C1"))
        if chance.random() < 0.5:
            text = chance.choice(TEXTS)
            in_memory.says(user, text, group=chat)
            stack.deliver(stack.sim.drafts.text(users[user], text, chat=group if chat else None))
            stack.wait_until_quiet()
        else:
            seconds = chance.choice(SPANS)
            in_memory.advance(seconds)
            stack.move_to(stack.now() + timedelta(seconds=seconds))
        for name, place in {**users, "C1": group}.items():
            sent = [text for one in in_memory.sent if one.to == name for text in one.shown]
            assert [bubble.text for bubble in stack.sim.answers(place)] == sent
