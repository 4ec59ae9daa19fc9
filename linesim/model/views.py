"""The simulator's records as JSON, for pages and other processes; `at` is Unix milliseconds."""

from typing import Any

from linesim.model.calls import Call
from linesim.model.clock import Clock
from linesim.model.deliveries import Delivery
from linesim.model.world import Bubble, Group, User

View = dict[str, Any]


def clock_view(clock: Clock) -> View:
    """The time in Unix seconds, and the seconds by which the clock was moved ahead."""
    return {"now": clock.time(), "ahead": clock.ahead}


def _view(record: object, *names: str) -> View:
    """Fields of a record, under their names in JSON."""
    return {_camel(name): getattr(record, name) for name in names}


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


def user_view(user: User) -> View:
    return _view(user, "user_id", "name", "friend", "blocked")


def group_view(group: Group) -> View:
    told = _view(group, "chat_id", "name", "kind", "present")
    return {**told, "members": list(group.members)}


def bubble_view(bubble: Bubble) -> View:
    told = _view(
        bubble,
        *("number", "chat_id", "speaker", "user_id", "message", "message_id", "event_id"),
        *("fate", "status", "error", "via", "unsent", "edited", "read", "quoted"),
    )
    return {**told, "at": int(bubble.at * 1000)}


def delivery_view(delivery: Delivery) -> View:
    told = _view(
        delivery,
        *("number", "started", "answered", "milliseconds", "status", "error", "delivered"),
        *("event_ids", "events"),
    )
    return {**told, "at": int(delivery.at * 1000)}


def call_view(call: Call) -> View:
    told = _view(
        call,
        *("number", "started", "finished", "endpoint", "method", "path", "request_id"),
        *("retry_key", "body", "status", "message", "accepted", "fault", "chat_id", "user_id"),
        *("details", "event_id", "accepted_request_id", "retry_differs", "paid", "token_lapsed"),
    )
    return {**told, "at": int(call.at * 1000), "unreached": dict(call.unreached)}
