"""Which handler runs for which event."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from linebot.v3.webhooks import (
    FollowEvent,
    MessageEvent,
    StickerMessageContent,
    TextMessageContent,
)

from jobworker.bot.events import model_of
from jobworker.errors import NoTimerHandler
from linedesk import Bot, BotError, TimerEvent
from linedesk.store.timers import STATE_TIMER

COMMON = {
    "mode": "active",
    "timestamp": 1,
    "webhookEventId": "01",
    "deliveryContext": {"isRedelivery": False},
    "source": {"type": "user", "userId": "U1"},
    "replyToken": "T",
}
TEXT = model_of(
    {
        **COMMON,
        "type": "message",
        "message": {"type": "text", "id": "1", "text": "a", "quoteToken": "q"},
    }
)
STICKER = model_of(
    {
        **COMMON,
        "type": "message",
        "message": {
            "type": "sticker",
            "id": "1",
            "packageId": "1",
            "stickerId": "1",
            "stickerResourceType": "STATIC",
            "quoteToken": "q",
        },
    }
)
FOLLOW = model_of({**COMMON, "type": "follow", "follow": {"isUnblocked": False}})


def chosen(bot: Bot, event: Any) -> Any:
    rule = bot.rule_for(event)
    return rule and rule.handler


def test_the_default_gets_the_rest() -> None:
    bot = Bot()

    @bot.default()
    def rest(event: Any, talk: Any) -> None: ...

    @bot.add(FollowEvent)
    def follow(event: Any, talk: Any) -> None: ...

    assert chosen(bot, TEXT) is rest
    assert chosen(bot, FOLLOW) is follow
    assert chosen(bot, model_of({"type": "brandNew"})) is rest


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


# A handler that would never run is refused when the bot's module is imported, not silently ignored.


async def coroutine(event: Any, talk: Any) -> None: ...


def generator(event: Any, talk: Any) -> Any:
    yield


async def both(event: Any, talk: Any) -> Any:
    yield


@pytest.mark.parametrize("handler", [coroutine, generator, both, None, "handler"])
def test_a_function_that_does_not_run_when_called_is_no_handler(handler: Any) -> None:
    for decorate in (
        Bot().add(MessageEvent),
        Bot().default(),
        Bot().timer("a"),
        Bot().timeout("a"),
    ):
        with pytest.raises(BotError, match="function"):
            decorate(handler)


@pytest.mark.parametrize(
    ("event", "message"),
    [
        ("message", None),
        (generator, None),
        (TextMessageContent, None),
        (TimerEvent, None),
        (MessageEvent, "text"),
        (MessageEvent, [TextMessageContent, MessageEvent]),
    ],
)
def test_a_handler_is_for_classes_that_can_be_met(event: Any, message: Any) -> None:
    with pytest.raises(BotError, match="takes a class"):
        Bot().add(event, message)


def test_a_handler_is_for_states_that_a_conversation_can_have() -> None:
    handler = chosen
    for state in (5, "", ["asked", 5]):
        with pytest.raises(BotError, match="a state is a text"):
            Bot().add(MessageEvent, state=state)(handler)  # type: ignore[arg-type]
        with pytest.raises(BotError, match="a state is a text"):
            Bot().default(state=state)(handler)  # type: ignore[arg-type]
    with pytest.raises(BotError, match="a state is a text"):
        Bot().timeout(chosen)  # type: ignore[arg-type]
    with pytest.raises(BotError, match="is not a function"):
        Bot().timer(chosen)  # type: ignore[arg-type]


# Time limits.


def test_a_handler_may_have_a_time_limit_of_its_own() -> None:
    bot = Bot()

    def handler(event: Any, talk: Any) -> None: ...

    bot.add(MessageEvent, message=[TextMessageContent, StickerMessageContent], limit=120)(handler)
    bot.default(limit=0.5)(handler)
    bot.timer("tea", limit=90.0)(handler)
    bot.timeout("asked", limit=3600)(handler)
    tea = TimerEvent("tea", {}, datetime.now(UTC), "main/U1/tea", 1)
    over = TimerEvent(STATE_TIMER, {"state": "asked"}, datetime.now(UTC), "main/U1/-", 1)
    events = (TEXT, STICKER, FOLLOW, tea, over)
    found = [rule.limit if (rule := bot.rule_for(event)) else None for event in events]
    assert found == [120, 120, 0.5, 90.0, 3600]


@pytest.mark.parametrize("limit", [0, -1, 3600.5, float("nan"), float("inf"), "60", True])
def test_a_limit_that_is_no_number_of_seconds_is_refused(limit: Any) -> None:
    with pytest.raises(BotError, match="limit= takes seconds above 0, 3600 at most"):
        Bot().default(limit=limit)(lambda event, talk: None)


# Messages that are gathered.


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"gather": 31}, "gather= takes seconds above 0, 30 at most"),
        ({"gather": 2.0, "most": 100}, "most= takes a whole number, 2 to 99"),
        ({"most": 5}, "most= is for a handler with gather="),
    ],
)
def test_a_rule_that_cannot_gather_is_refused(options: Any, why: str) -> None:
    with pytest.raises(BotError, match=why):
        Bot().add(MessageEvent, **options)(lambda events, talk: None)
