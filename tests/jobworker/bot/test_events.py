"""LINE's JSON as the SDK's model: no event of LINE stops a job."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import FollowEvent, MessageEvent, TextMessageContent

from jobworker.bot.events import model_of
from linedesk.store.documents import text_of

TEXT: dict[str, Any] = {
    "type": "message",
    "mode": "active",
    "timestamp": 1_700_000_000_000,
    "webhookEventId": "01FZ74A0TDDPYRVKNK77XKC3ZR",
    "deliveryContext": {"isRedelivery": False},
    "replyToken": "38ef843bde154d9b91c21320ffd17a0f",
    "source": {"type": "user", "userId": "U4af4980629"},
    "message": {"type": "text", "id": "444573844083572737", "text": "やあ", "quoteToken": "q3Plxr"},
}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


def with_part(event: Any, path: list[str], value: Any) -> Any:
    """The event with another value at a path."""
    if not path:
        return value
    return {**event, path[0]: with_part(event.get(path[0], {}), path[1:], value)}


def test_a_known_event_is_the_sdk_s_model() -> None:
    event = model_of(TEXT)
    assert isinstance(event, MessageEvent)
    assert isinstance(event.message, TextMessageContent)
    assert event.message.text == "やあ"


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({}, id="nothing at all"),
        pytest.param({"type": "brandNew"}, id="a type of the future"),
        pytest.param({"type": None}, id="a type that is null"),
        pytest.param({"type": ["message"]}, id="a type that is a list"),
        pytest.param({**TEXT, "mode": "sleepy"}, id="an unknown mode"),
        pytest.param({**TEXT, "message": {"type": "hologram", "id": "1"}}, id="an unknown message"),
        pytest.param({**TEXT, "message": "text"}, id="a message that is a text"),
        pytest.param({**TEXT, "message": None}, id="a message that is null"),
        pytest.param({**TEXT, "source": {"type": "alien"}}, id="an unknown source"),
        pytest.param({**TEXT, "deliveryContext": []}, id="a context that is a list"),
        pytest.param(
            with_part(TEXT, ["message"], {"type": "text", "id": "1", "text": "a"}),
            id="a text without its quoteToken",
        ),
    ],
)
def test_an_event_that_the_sdk_cannot_read_becomes_an_unknown_event(event: dict[str, Any]) -> None:
    assert isinstance(model_of(event), UnknownEvent)


def test_a_follow_of_older_days_becomes_an_unknown_event() -> None:
    follow = {**TEXT, "type": "follow"}
    assert isinstance(model_of(follow), UnknownEvent)
    assert isinstance(model_of({**follow, "follow": {"isUnblocked": True}}), FollowEvent)


PATHS = [["type"], ["source"], ["source", "type"], ["message"], ["message", "type"], ["mode"]]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([*PATHS, ["message", "text"], ["deliveryContext"], ["timestamp"]]), JSON)
def test_garbage_in_any_place_never_raises(path: list[str], garbage: Any) -> None:
    event = with_part(TEXT, path, garbage)
    model_of(event)
    text_of(event, "message", "id")
    text_of(event, "source", "userId")
