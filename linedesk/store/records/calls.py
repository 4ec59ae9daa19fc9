"""`calls`: one row for each call of LINE's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from typing import Any, Final

from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.runs import WAITED_MS

REQUEST_ID: Final = "requestId"
PAID: Final = "paid"
REASON: Final = "reason"
ALSO_EVENT: Final = f"also.{EVENT_ID}"

PUSH: Final = "/v2/bot/message/push"
MULTICAST: Final = "/v2/bot/message/multicast"
SENDS: Final = frozenset(
    f"/v2/bot/message/{way}" for way in ("reply", "push", "multicast", "narrowcast", "broadcast")
)
"""The endpoints that send messages to users."""


class TurnClass(IntEnum):
    """The value of a turn. A class is served before the next one."""

    LIVE = 1
    """An answer with a valid reply token, which is free; or a read that such an answer waits
    for.
    """
    CHAT = 2
    """A push to the event's own chat, and linedesk's own periodic requests."""
    OTHER = 3
    """A multicast, a push to another chat, a reply that is too late to be free."""
    IDLE = 4
    """Work that nothing waits for."""

    @property
    def word(self) -> str:
        """Its name in rows, figures and reasons."""
        return self.name.lower()


# The number of details of a refusal on one line.
MOST_DETAILS_TOLD: Final = 3


def is_taken(status: Any) -> bool:
    """Whether LINE accepted a call, now or before (409); None means no answer."""
    return isinstance(status, int) and (200 <= status < 300 or status == 409)


@dataclass(frozen=True)
class LineReason:
    """The reason in LINE's error body for a refused call, without the users' messages."""

    message: str
    details: Sequence[Mapping[str, str]] = ()
    """`{property, message}` each, as far as LINE sends them."""

    @classmethod
    def from_document(cls, found: Any) -> LineReason | None:
        """Read the reason of a row; None if there is none, as in rows of older releases."""
        if not isinstance(found, Mapping) or not isinstance(found.get("message"), str):
            return None
        details = found["details"] if isinstance(found.get("details"), list) else []
        return cls(found["message"], [one for one in details if isinstance(one, Mapping)])

    def to_document(self) -> dict[str, Any]:
        return {"message": self.message, "details": [dict(one) for one in self.details]}

    def about(self, messages: range) -> LineReason:
        """The reason for these of the call's messages, counted from 0; whole if none is named."""
        own = []
        for number, name in enumerate(f"messages[{one}]" for one in messages):
            named = [one for one in self.details if one.get("property", "").startswith(name)]
            place = f"messages[{number}]"
            own += [{**one, "property": place + one["property"][len(name) :]} for one in named]
        return LineReason(self.message, own) if own else self

    @property
    def words(self) -> str:
        """On one line: the message, and the first details."""
        told = [
            " ".join(str(one[name]) for name in ("property", "message") if one.get(name))
            for one in self.details[:MOST_DETAILS_TOLD]
        ]
        more = len(self.details) - len(told)
        told += [f"{more} more"] if more > 0 else []
        return f"{self.message}: {'; '.join(told)}" if told else self.message


@dataclass(slots=True)
class CallRecord:
    """One call; the caller fills in `status` and `request_id` when there is an answer."""

    at: datetime | None
    method: str | None
    endpoint: str | None
    event_id: str | None
    key: str | None
    attempt: int
    ms: float = 0.0
    status: int | None = None
    """None if LINE did not answer."""
    request_id: str | None = None
    reason: LineReason | None = None
    """The reason for LINE's refusal, from its error body."""
    turn_class: str | None = None
    """Its class at the gate: live, chat, other or idle."""
    waited_ms: float | None = None
    """The time that it waited there."""
    people: int | None = None
    """The number of users that LINE counts for an accepted call; None if only LINE knows."""
    also: Sequence[Mapping[str, Any]] = field(default_factory=list)
    """The further sends in the call, `{eventId, key}` each; omitted if there are none."""

    @property
    def is_sent(self) -> bool:
        """Whether it delivered messages to LINE."""
        return self.endpoint in SENDS and is_taken(self.status)

    @classmethod
    def from_document(cls, row: Mapping[str, Any]) -> CallRecord:
        """A row of `calls`; fields missing in a row made by hand are None or 0."""
        also = row["also"] if isinstance(row.get("also"), list) else []
        return cls(
            at=row.get("at"),
            method=row.get("method"),
            endpoint=row.get("endpoint"),
            event_id=row.get(EVENT_ID),
            key=row.get("key"),
            attempt=row.get("attempt") or 1,
            ms=row.get("ms") or 0.0,
            status=row.get("status"),
            request_id=row.get(REQUEST_ID),
            reason=LineReason.from_document(row.get(REASON)),
            turn_class=row.get("class"),
            waited_ms=row.get(WAITED_MS),
            people=row.get(PAID),
            also=[one for one in also if isinstance(one, Mapping)],
        )

    def to_document(self) -> dict[str, Any]:
        """The row in `calls`; `paid` only if LINE accepted the call."""
        gate = {"class": self.turn_class, WAITED_MS: self.waited_ms}
        return {
            "at": self.at,
            "ms": self.ms,
            "method": self.method,
            "endpoint": self.endpoint,
            "status": self.status,
            REQUEST_ID: self.request_id,
            EVENT_ID: self.event_id,
            "key": self.key,
            "attempt": self.attempt,
            **{name: value for name, value in gate.items() if value is not None},
            **({REASON: self.reason.to_document()} if self.reason else {}),
            **({PAID: self.people} if self.is_sent else {}),
            **({"also": list(self.also)} if self.also else {}),
        }
