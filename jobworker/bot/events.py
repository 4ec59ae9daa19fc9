"""LINE's JSON as the SDK's event model, if the SDK can read it. Pure.

The SDK (3.27) turns a known event with one unknown part into `UnknownEvent` and drops its message,
token and user. The raw event is therefore always passed along. An event that the SDK cannot read at
all also becomes an `UnknownEvent`.

`from_dict` lets pydantic check and copy each object several times. `make_event`, six times as fast,
makes it once, if every part has exactly the JSON type that its class asks for; everything else is
left to `from_dict`. The types are read from the fields of the class. A class of another version of
the SDK is therefore made with its own fields, and one that is built in another way is left to
`from_dict` as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from bson.int64 import Int64
from linebot.v3 import webhooks
from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import Event

from linedesk.store.documents import Document, text_of
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.timers import RUN_AT
from linedesk.store.timers import TIMER

# pydantic's ValidationError is a ValueError; a part of the wrong JSON type raises the other errors.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)
# MongoDB's driver reads a large number as Int64.
JSON = frozenset({str, bool, int, Int64, float, list, dict})
# The exact types of a value that stays as it is, by its type in the SDK.
STAYS: Mapping[str, frozenset[type]] = {
    "str": frozenset({str}),
    "StrictStr": frozenset({str}),
    "StrictInt": frozenset({int, Int64}),
    "StrictBool": frozenset({bool}),
}

Read = Callable[[Any], Any]


@dataclass(frozen=True)
class TimerEvent:
    """A timer that fired: its name, the data it was set with, and when it was due.

    `id` and `n` name the row in `schedule`. A timer that was due during a downtime fires late.
    """

    name: str
    data: Document
    due: datetime
    id: str
    n: int

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> TimerEvent:
        """Return the timer of an event of `linedesk.store.timers`. Raises KeyError, TypeError."""
        timer = raw[TIMER]
        return cls(timer["name"], timer["data"], timer[RUN_AT], timer["id"], timer["n"])


def is_event(document: Mapping[str, Any]) -> bool:
    """Whether it has the fields of every front desk document; one typed in a shell may not."""
    return (
        isinstance(document.get("event"), dict)
        and isinstance(document.get(ACCEPT_TIME), datetime)
        and all(isinstance(document.get(name), str) for name in ("channel", "key"))
    )


def is_fired_timer(raw: Mapping[str, Any]) -> bool:
    """Whether the event becomes a TimerEvent."""
    return raw.get("type") == TIMER and isinstance(model_of(raw), TimerEvent)


def model_of(raw: Mapping[str, Any]) -> Any:
    """Return a TimerEvent, or the SDK's model: UnknownEvent if the event cannot be read."""
    is_timer = raw.get("type") == TIMER and TIMER in raw
    first = TimerEvent.from_raw if is_timer else make_event
    for read in (first, Event.from_dict, UnknownEvent.new_from_json_dict):
        with suppress(*UNREADABLE):
            return read(raw)
    # It lacks even the common fields; made without validation: there is nothing to validate.
    return UnknownEvent.construct(
        type=text_of(raw, "type") or "",
        source=None,
        timestamp=raw.get("timestamp"),
        mode=raw.get("mode"),
        webhook_event_id=raw.get("webhookEventId"),
        delivery_context=None,
    )


# Models without pydantic's checks.


def make_event(raw: Mapping[str, Any]) -> Any:
    """Return the same as the SDK's `Event.from_dict`.

    Raises ValueError, LookupError or TypeError if only that can tell.
    """
    if type(raw) is not dict:
        raise ValueError(type(raw).__name__)
    return _maker(webhooks.Event)(raw)


@cache
def _maker(base: Any) -> Read:
    """Return the function that makes an object of the class, or of the subclass that its `type`
    names.
    """
    names = getattr(base, f"_{base.__name__}__discriminator_value_class_map", None)
    if names is None:
        return _maker_of_exactly(base)
    makers = {kind: _maker_of_exactly(getattr(webhooks, name)) for kind, name in names.items()}
    return lambda raw: makers[raw["type"]](raw)


def _maker_of_exactly(cls: Any) -> Read:
    fields = vars(cls).get("__fields__", {})
    if not _is_as_known(cls, fields):
        return _left
    names = set(fields)
    parts = [(field.alias, name, *_reading(field)) for name, field in fields.items()]

    def make(raw: dict[str, Any]) -> Any:
        values = {}
        for key, name, types, read in parts:
            value = raw.get(key)
            if type(value) not in types:
                raise ValueError(key)
            values[name] = value if read is None or value is None else read(value)
        made = cls.__new__(cls)
        object.__setattr__(made, "__dict__", values)
        object.__setattr__(made, "__fields_set__", names.copy())
        return made

    return make


def _is_as_known(cls: Any, fields: Mapping[str, Any]) -> bool:
    """Whether it is a class of pydantic's first version whose JSON has just its fields."""
    properties = getattr(cls, f"_{cls.__name__}__properties", ())
    if not fields or {field.alias for field in fields.values()} != {*properties}:
        return False
    return not (
        cls.__pre_root_validators__ or cls.__post_root_validators__ or cls.__private_attributes__
    )


def _reading(field: Any) -> tuple[frozenset[type], Read | None]:
    """Return the exact types of a field's values, and what is done with one that is not null."""
    kind, is_one = field.type_, field.outer_type_ is field.type_
    types: frozenset[type]
    read: Read | None = None
    if hasattr(kind, "from_dict"):
        types, read = frozenset({dict}), lambda value: _maker(kind)(value)
        if not is_one:
            types, read = frozenset({list}), lambda values: [_maker(kind)(one) for one in values]
    elif hasattr(kind, "__members__"):
        types, read = frozenset({str}), {one.value: one for one in kind}.__getitem__
    else:
        types = STAYS.get(getattr(kind, "__name__", ""), JSON) if is_one else JSON
    # Lists, unions and constraints: pydantic checks that one value.
    if types is JSON or not is_one or field.class_validators:
        read = _checked(field, read)
    may_be_null = field.validate(None, {}, loc=field.alias) == (None, None)
    return (types | {type(None)} if may_be_null else types), read


def _checked(field: Any, read: Read | None) -> Read:
    def checked(value: Any) -> Any:
        value, errors = field.validate(read(value) if read else value, {}, loc=field.alias)
        if errors:
            raise ValueError(field.alias)
        return value

    return checked


def _left(raw: Any) -> Any:
    raise ValueError(type(raw).__name__)
