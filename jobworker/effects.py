"""The contents of a conversation's `outbox` and `call`, as typed values and as documents: sends,
timers, dead letters. Pure.

This module defines what an effect looks like. Sends are processed by `jobworker.sending`, timers
and dead letters by `jobworker.record`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any

from dispatcher.conversations.mailbox import Condemned
from linedesk.store.documents import Document, name_of
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.effects import ANSWER_TO, RETRY_KEY, TOKEN_FROM, TRIED_AT
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER, FIRST_AT, LAST_AT, Cause
from linedesk.store.records.timers import ENDED_AT, RUN_AT, SET_ASIDE, SET_BY
from linedesk.store.timers import TIMER

# Fields that a row copies from its effect.
TAKEN = ("channel", "key", "name", "n", RUN_AT, "every", "data", "source")
TRACEBACK_CHARACTERS = 20_000


# Sends.


class SendMethod(Enum):
    """How a send is made: its endpoint at LINE."""

    REPLY = "reply"
    PUSH = "push"
    MULTICAST = "multicast"

    @property
    def path(self) -> str:
        """The endpoint's path."""
        return f"/v2/bot/message/{self.value}"


@dataclass(frozen=True)
class Send:
    """One recorded send, in the outbox or in a dead letter."""

    id: str
    event_id: str
    way: SendMethod
    to: str | list[str] | None
    messages: list[dict[str, Any]]
    retry_key: str | None
    """For a call of its own. None in a letter whose try was part of a call with other sends."""
    at: datetime
    token: str | None = None
    """Also None after LINE reported that it is used or too old."""
    token_from: datetime | None = None
    """When the webhook with the token arrived."""
    until: datetime | None = None
    """It is not called from then on, unless it was called before."""
    may_be_late: bool = False
    """Whether it is sent even if late and at the cost of a push: its handler is a slow one."""
    answer_to: str | None = None
    """The event whose answer it is, requested by a tap on its button. It is sent only as a reply;
    otherwise it waits for another tap.
    """
    tried_at: datetime | None = None
    """In a letter: when the call of unknown outcome began. Its replay under the same key is that
    call again and keeps this time.
    """
    tried_as: SendMethod | None = None

    def as_document(self) -> dict[str, Any]:
        """The effect as a document."""
        tried = {TRIED_AT: self.tried_at, "as": self.tried_as.value if self.tried_as else None}
        return {
            "id": self.id,
            "type": "send",
            EVENT_ID: self.event_id,
            "way": self.way.value,
            "to": self.to,
            "messages": self.messages,
            RETRY_KEY: self.retry_key,
            "at": self.at,
            "token": self.token,
            TOKEN_FROM: self.token_from,
            **({"until": self.until} if self.until else {}),
            **({"mayBeLate": True} if self.may_be_late else {}),
            **({ANSWER_TO: self.answer_to} if self.answer_to else {}),
            **(tried if self.tried_at else {}),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Send:
        """The send that `as_document` wrote."""
        return cls(
            id=document["id"],
            event_id=document[EVENT_ID],
            way=SendMethod(document["way"]),
            to=document["to"],
            messages=document["messages"],
            retry_key=document[RETRY_KEY],
            at=document["at"],
            token=document["token"],
            token_from=document[TOKEN_FROM],
            until=document.get("until"),
            may_be_late=bool(document.get("mayBeLate")),
            answer_to=document.get(ANSWER_TO),
            tried_at=document.get(TRIED_AT),
            tried_as=SendMethod(document["as"]) if document.get("as") else None,
        )

    @property
    def token_until(self) -> datetime | None:
        """When its reply token expires; None for a send that never was a reply."""
        return self.token_from + TOKEN_LIFE if self.token_from else None

    def tried(self, call: Call) -> Send:
        """Return the send for its letter, after a call of unknown outcome."""
        key = call.key if len(call.members) == 1 else None
        return replace(self, retry_key=key, tried_at=call.at, tried_as=call.way)


@dataclass(frozen=True)
class Call:
    """The one call of LINE for a conversation that is under way or of unknown outcome.

    Its body is fixed: the messages of its members, in order.
    """

    at: datetime
    way: SendMethod
    members: tuple[str, ...]
    """The places of its sends in the outbox."""
    key: str | None = None
    """The retry key; None for a reply."""
    token: str | None = None
    """The reply token; None for all others."""

    def is_same(self, other: Call) -> bool:
        """Whether both carry the same sends in the same way, whenever they were stored."""
        return replace(self, at=other.at) == other

    def as_document(self) -> dict[str, Any]:
        """The call as a field of the conversation."""
        return {
            "at": self.at,
            "as": self.way.value,
            "key": self.key,
            "token": self.token,
            "members": list(self.members),
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Call:
        """The call that `as_document` wrote."""
        return cls(
            at=document["at"],
            way=SendMethod(document["as"]),
            members=tuple(document["members"]),
            key=document["key"],
            token=document["token"],
        )


# Timers.


def is_timer(effect: Mapping[str, Any]) -> bool:
    """Whether an effect sets or cancels a timer."""
    return bool(effect["type"] == TIMER)


def is_whole(effect: Mapping[str, Any]) -> bool:
    """Whether a timer's effect has all fields that `schedule` needs. Raises KeyError."""
    names = (effect[name] for name in ("id", "timer", EVENT_ID, "name", "channel", "key"))
    return bool(row_of(effect)) and all(isinstance(name, str) for name in names)


def row_of(effect: Mapping[str, Any]) -> Document:
    """Return the update that makes the row of an effect. Raises KeyError for an invalid one."""
    fields = {**{name: effect[name] for name in TAKEN}, SET_BY: effect[EVENT_ID]}
    if effect[RUN_AT] is None:
        ended = {ENDED_AT: datetime.now(UTC)}
        return {"$set": {**fields, **ended}, "$unset": {SET_ASIDE: ""}}
    return {"$set": fields, "$unset": {ENDED_AT: "", SET_ASIDE: ""}}


# Dead letters.


def of_event(document: Document, give_up: Condemned) -> Document:
    """Return the effect "dead letter" of an event; its `id` is the event's name."""
    return {
        "id": name_of(document),
        "type": DEADLETTER,
        "channel": document["channel"],
        "key": document["key"],
        "document": document,
        **give_up.cause.fields,
        "traceback": _storable(give_up.stack),
        "attempts": give_up.attempts,
        FIRST_AT: give_up.first_at,
        LAST_AT: datetime.now(UTC),
    }


def of_effect(
    effect: Mapping[str, Any], conversation_id: str, *, cause: Cause, attempts: int
) -> Document:
    """Return the effect "dead letter" of a send or timer that is given up, under its own `id`."""
    now = datetime.now(UTC)
    channel, _, key = conversation_id.partition("/")
    return {
        "id": effect["id"],
        "type": DEADLETTER,
        "channel": channel,
        "key": key,
        "effect": dict(effect),
        **cause.fields,
        "traceback": None,
        "attempts": attempts,
        FIRST_AT: effect.get("at", now),
        LAST_AT: now,
    }


def _storable(traceback: str) -> str:
    """Return its end as text that MongoDB always accepts, whatever the error's message
    contained.
    """
    return traceback[-TRACEBACK_CHARACTERS:].encode(errors="backslashreplace").decode()
