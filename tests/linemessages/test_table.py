"""Each message of the table, checked alone, by a bot in a test, and by the simulator over HTTP."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from random import Random
from typing import Any

import pytest
import requests
from hypothesis import given, settings
from hypothesis import strategies as st
from linebot.v3.webhooks import MessageEvent

import linesim
from jobworker.errors import WrongMessage
from linedesk import Bot
from linedesk.testing import BotTest
from linemessages import check_messages, check_request, units
from linemessages.finding import Found
from tests.linemessages.table import OFFER, REQUESTS, RULES, UNKNOWN, Message, Rule, changed, named

ALONE = "messages[0]"
Refused = Callable[[Message], list[str]]


def right_ones() -> Iterator[Message]:
    for rule in RULES:
        yield rule.base
        yield from (changed(rule.base, change) for change in rule.right)


def wrong_ones() -> Iterator[tuple[Message, str]]:
    for rule in RULES:
        for change in rule.wrong:
            where = named(change)
            yield changed(rule.base, change), f"{ALONE}.{where}" if where else ALONE


def is_split(message: Message) -> bool:
    """Whether `talk` makes several messages of it."""
    text = message.get("text")
    is_long = isinstance(text, str) and units(text) > 5_000
    return message.get("type") == "text" and is_long and not message.get("emojis")


def test_the_table_is_as_long_as_it_says() -> None:
    assert sum(1 for _ in wrong_ones()) >= 300
    assert sum(len(rule.right) for rule in RULES) >= 100
    assert max(len(rule.wrong) for rule in RULES) <= 5


@pytest.mark.parametrize("rule", RULES + REQUESTS, ids=lambda rule: f"{rule.at}: {rule.says}"[:80])
def test_a_rule(rule: Rule) -> None:
    def found(one: Message) -> Found:
        return check_request(rule.request, one) if rule.request else check_messages([one])

    for change in rule.wrong:
        where = named(change)
        if not rule.request:
            where = f"{ALONE}.{where}" if where else ALONE
        wrong = [one.property for one in found(changed(rule.base, change)) if not one.is_unknown]
        assert where in wrong, change
    for right in (rule.base, *(changed(rule.base, change) for change in rule.right)):
        assert found(right) == []


def test_what_this_release_does_not_know_is_no_wrong_message() -> None:
    found = {str(one): check_messages([changed(*one)]) for one in UNKNOWN}
    found["reward"] = check_request("CouponCreateRequest", OFFER | {"reward": {"type": "cash"}})
    for change, problems in found.items():
        assert problems, change
        assert all(one.is_unknown for one in problems), change


@pytest.fixture
def in_a_test() -> Refused:
    """The properties for which a handler's reply is refused in a BotTest."""
    bot = Bot()
    shown: list[Message] = []

    @bot.add(MessageEvent)
    def answer(event: MessageEvent, talk: object) -> None:
        talk.reply(shown[-1])  # type: ignore[attr-defined]

    author = BotTest(bot)

    def refused(message: Message) -> list[str]:
        shown.append(message)
        try:
            author.says("U1", "x", group="C1")
        except WrongMessage as error:
            return [one["property"] for one in error.details]
        return []

    return refused


@pytest.fixture
def at_line() -> Iterator[Refused]:
    """The properties for which the simulator refuses a push to a group."""
    with linesim.running(rate_limits=False) as sim, requests.Session() as session:
        session.trust_env = False
        session.headers["authorization"] = f"Bearer {sim.token}"
        group = sim.add_group("家族", [sim.add_user("太郎")])

        def refused(message: Message) -> list[str]:
            body = {"to": group.chat_id, "messages": [message]}
            answer = session.post(f"{sim.url}/v2/bot/message/push", json=body, timeout=10)
            if answer.status_code == 200:
                return []
            assert answer.status_code == 400
            return [one["property"] for one in answer.json()["details"]]

        yield refused


@pytest.mark.parametrize("judge", ["in_a_test", "at_line"])
def test_a_bot_in_a_test_and_the_simulator_refuse_what_line_refuses(
    judge: str, request: pytest.FixtureRequest
) -> None:
    refused: Refused = request.getfixturevalue(judge)
    wrong = [one for one in wrong_ones() if judge == "at_line" or not is_split(one[0])]
    assert [where for message, where in wrong if where not in refused(message)] == []
    assert [right for right in right_ones() if refused(right)] == []
    assert [change for base, change in UNKNOWN if not refused(changed(base, change))] == []


def test_a_message_as_deep_as_python_allows_is_refused() -> None:
    box: Message = {"type": "box", "layout": "vertical", "contents": []}
    for _ in range(400):
        box = {"type": "box", "layout": "vertical", "contents": [box]}
    bubble = {"type": "bubble", "body": box}
    assert check_messages([{"type": "flex", "altText": "深い", "contents": bubble}])


VALUES = ("", 0, -1, 1.5, True, None, [], {}, "x", [None], ["x"], {"a": 1}, [{}], {"type": "new"})


@given(st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_no_message_breaks_the_check(random: Random) -> None:
    message = changed(random.choice(RULES).base, ("altText", "x"))
    for _ in range(random.randint(1, 3)):
        part: Any = message
        while True:
            key = random.choice([*part] if isinstance(part, dict) else range(len(part)))
            if not isinstance(part[key], dict | list) or not part[key] or random.random() < 0.3:
                break
            part = part[key]
        if isinstance(part, dict) and random.random() < 0.3:
            key = random.choice(("contents", "type", "size", "hero", "layout", "action", "items"))
        part[key] = deepcopy(random.choice(VALUES))
    check_messages([message])
