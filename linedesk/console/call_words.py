"""What a row of `calls` tells of one send: LINE's reason, its company, wait and cost. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from linedesk.console.format import brief
from linedesk.store.records.calls import PAID, CallRecord
from linedesk.store.records.events import EVENT_ID


def cost_words(row: Mapping[str, Any]) -> str | None:
    """What LINE counts for a call that it took; None for any other, and for older rows."""
    call = CallRecord.from_document(row)
    if not call.is_sent or PAID not in row:
        return None
    if call.people is None:
        return "counted, LINE alone knows for how many people"
    if not call.people:
        return "free"
    return f"{call.people:,} counted message{'' if call.people == 1 else 's'}"


def reason_words(row: Mapping[str, Any]) -> str | None:
    """Why LINE refused the call, as LINE says; None where it took it or gave no reason."""
    reason = CallRecord.from_document(row).reason
    return reason.words if reason else None


def company_words(row: Mapping[str, Any], event_id: str) -> str | None:
    """What travelled in the call besides the event's own send; None where nothing did."""
    call = CallRecord.from_document(row)
    keys = {call.key, *(one.get("key") for one in call.also)}
    if len(keys) > 1:
        return f"in one multicast to {max(len(keys), call.people or 0):,} people"
    others = 1 + len(call.also) - max(1, sends_of(row, event_id))
    if not others:
        return None
    return f"travelled with {others} other send{'' if others == 1 else 's'} of this conversation"


def sends_of(row: Mapping[str, Any], event_id: str) -> int:
    """How many sends of the event a call carried."""
    call = CallRecord.from_document(row)
    return [call.event_id, *(one.get(EVENT_ID) for one in call.also)].count(event_id)


def wait_words(row: Mapping[str, Any]) -> str | None:
    """How long it waited at the gate, and in which class; None for older rows."""
    call = CallRecord.from_document(row)
    if not isinstance(call.waited_ms, (int, float)):
        return None
    return f"after {brief(call.waited_ms / 1000)} at the gate, class {call.turn_class}"
