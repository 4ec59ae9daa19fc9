"""LINE's JSON as the SDK's event model, where the SDK can read it. Pure.

The SDK (3.27) turns a known event with one unknown part into `UnknownEvent` and drops its
message, token and user; so the raw event always goes along, and what the SDK cannot read at all
still becomes an `UnknownEvent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import Event

from linedesk.store.documents import Document, text_of
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.timers import RUN_AT
from linedesk.store.timers import TIMER


@dataclass(frozen=True)
class TimerEvent:
    """A timer that rang: its name, what was given along when it was set, and when it was due.

    `id` and `n` name the row in `schedule`. A timer that fell due while nothing ran rings late.
    """

    name: str
    data: Document
    due: datetime
    id: str
    n: int

    @classmethod
    def from_raw(cls, raw: Mapping[str, Any]) -> TimerEvent:
        """From an event of `linedesk.store.timers`. Raises KeyError, TypeError for others."""
        timer = raw[TIMER]
        return cls(timer["name"], timer["data"], timer[RUN_AT], timer["id"], timer["n"])


def is_event(document: Mapping[str, Any]) -> bool:
    """Whether it has what every document of the front desk has; one typed in a shell may not."""
    return (
        isinstance(document.get("event"), dict)
        and isinstance(document.get(ACCEPT_TIME), datetime)
        and all(isinstance(document.get(name), str) for name in ("channel", "key"))
    )


def is_fired_timer(raw: Mapping[str, Any]) -> bool:
    """Whether the event becomes a TimerEvent."""
    return raw.get("type") == TIMER and isinstance(model_of(raw), TimerEvent)


def model_of(raw: Mapping[str, Any]) -> Any:
    """The SDK's model of an event, UnknownEvent if the SDK cannot read it; our own of a timer."""
    try:
        if raw.get("type") == TIMER and TIMER in raw:
            return TimerEvent.from_raw(raw)
        return Event.from_dict(raw)
    except (ValueError, KeyError, TypeError, AttributeError):
        # pydantic's ValidationError is a ValueError; a part of the wrong JSON type raises the rest.
        return _unknown(raw)


def _unknown(raw: Mapping[str, Any]) -> Any:
    try:
        return UnknownEvent.new_from_json_dict(raw)
    except (ValueError, KeyError, TypeError, AttributeError):
        # Not even what every event has; made without a check, since there is nothing to check.
        return UnknownEvent.construct(
            type=text_of(raw, "type") or "",
            source=None,
            timestamp=raw.get("timestamp"),
            mode=raw.get("mode"),
            webhook_event_id=raw.get("webhookEventId"),
            delivery_context=None,
        )
