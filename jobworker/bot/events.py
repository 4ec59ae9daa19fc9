"""LINE's JSON as the SDK's event model, if the SDK can read it. Pure.

The SDK (3.27) turns a known event with one unknown part into `UnknownEvent` and drops its message,
token and user. The raw event is therefore always passed along. An event that the SDK cannot read at
all also becomes an `UnknownEvent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import Event

from jobworker.bot.direct_models import make_event
from linedesk.store.documents import Document, text_of
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.timers import RUN_AT
from linedesk.store.timers import TIMER

# pydantic's ValidationError is a ValueError; a part of the wrong JSON type raises the other errors.
UNREADABLE = (ValueError, LookupError, TypeError, AttributeError)


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
