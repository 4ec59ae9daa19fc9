"""Which handler runs for which event."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from linebot.v3.webhooks import MessageEvent, TextMessageContent

from jobworker.errors import NoTimerHandler
from linedesk import Bot, BotError, TimerEvent


def chosen(bot: Bot, event: Any) -> Any:
    rule = next(bot.rules_for(event), None)
    return rule and rule.handler


def test_a_timer_goes_to_the_handler_of_its_name_or_of_the_part_before_the_colon() -> None:
    bot = Bot()

    @bot.timer("ring")
    def ring(event: Any, talk: Any) -> None: ...

    @bot.timer("ring:last")
    def last(event: Any, talk: Any) -> None: ...

    def rung(name: str) -> Any:
        return chosen(bot, TimerEvent(name, {}, datetime.now(UTC), f"main/U1/{name}", 1))

    assert [rung(name) for name in ("ring", "ring:1", "ring:1:2")] == [ring] * 3
    assert rung("ring:last") is last
    for unknown in ("rings", "r", ":ring", "wake:ring"):
        with pytest.raises(NoTimerHandler):
            rung(unknown)


# Rules that would never run are refused when the bot's module is imported, not silently ignored.


def generator(event: Any, talk: Any) -> Any:
    yield


def handler(event: Any, talk: Any) -> None: ...


def with_more(event: Any, talk: Any, *, name: str) -> None: ...


@pytest.mark.parametrize(
    ("add", "why"),
    [
        (lambda bot: bot.default()(generator), "generator"),
        (lambda bot: bot.timer("a")(generator), r"without yield \(.*test_bot.py:\d+\)"),
        (lambda bot: bot.default()(lambda event: None), r"\(event, talk\): .*test_bot.py:\d+"),
        (lambda bot: bot.add(MessageEvent)(with_more), "'name'.*test_bot.py"),
        (lambda bot: bot.timeout("a")(None), "function"),
        (lambda bot: bot.timer(handler), "is not a function"),
        (lambda bot: bot.add("message"), "takes a class"),
        (lambda bot: bot.add(TimerEvent), "takes a class"),
        (lambda bot: bot.add(MessageEvent, [TextMessageContent, MessageEvent]), "takes a class"),
        (lambda bot: bot.add(MessageEvent, state=["asked", 5])(handler), "a state is a text"),
        (lambda bot: bot.timeout(handler), "a state is a text"),
        (lambda bot: bot.default(limit=0), "limit= takes seconds above 0, 3600 at most"),
        (lambda bot: bot.add(MessageEvent, gather=31), "gather= takes seconds above 0, 30 at most"),
        (lambda bot: bot.add(MessageEvent, gather=2.0, most=100), "most= takes a whole number"),
        (lambda bot: bot.add(MessageEvent, most=5), "most= is for a handler with gather="),
    ],
)
def test_a_rule_that_would_never_run_is_refused(add: Callable[[Bot], Any], why: str) -> None:
    with pytest.raises(BotError, match=why):
        add(Bot())(handler)
