"""LINE's JSON as the SDK's event model, where the SDK can read it. Pure.

The SDK (3.27) turns a known event with one unknown part into `UnknownEvent` and drops its
message, token and user; so the raw event always goes along, and what the SDK cannot read at all
still becomes an `UnknownEvent`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import Event


def model_of(raw: Mapping[str, Any]) -> Any:
    """The SDK's model of an event, UnknownEvent if the SDK cannot read it."""
    try:
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


def text_of(raw: Mapping[str, Any], *path: str) -> str | None:
    """The non-empty text at a path of the raw event; None for anything else."""
    value: Any = raw
    for name in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value if isinstance(value, str) and value else None


def since_ms(moment: datetime) -> float:
    """Milliseconds from a moment to now, for a log line."""
    return (datetime.now(UTC) - moment).total_seconds() * 1000
