"""What the test kit says is what the real processes do."""

from collections.abc import Iterator
from datetime import timedelta
from random import Random

import pytest

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
