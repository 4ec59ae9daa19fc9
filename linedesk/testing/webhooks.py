"""Events as LINE sends them, made for tests: the same ids in the same order on each run. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from linedesk.store.documents import Document

# LINE's reference: the events to which a bot can reply.
REPLYABLE = frozenset(
    {
        *("message", "follow", "join", "memberJoined", "postback"),
        *("videoPlayComplete", "beacon", "accountLink", "membership"),
    }
)


class Webhooks:
    """Makes events; `series`, some digits, distinguishes the events of one test from another's."""

    def __init__(self, series: str = "") -> None:
        self._series = series
        self._numbers = itertools.count(1)

    def event(self, kind: str, source: Mapping[str, str], *, at: datetime, **more: Any) -> Document:
        """An event with the common fields, and a reply token if LINE sends one."""
        number = next(self._numbers)
        made: Document = {
            "type": kind,
            **more,
            "webhookEventId": f"01{self._series}{number:0{24 - len(self._series)}d}",
            "deliveryContext": {"isRedelivery": False},
            "timestamp": int(at.timestamp() * 1000),
            "source": dict(source),
            "mode": "active",
        }
        if kind in REPLYABLE:
            made["replyToken"] = f"{self._series}{number:0{32 - len(self._series)}d}"
        return made

    def message(
        self, message: Mapping[str, Any], source: Mapping[str, str], *, at: datetime
    ) -> Document:
        """The event of a message; it gets an id if it has none."""
        content = {"id": self.message_id(), "quoteToken": "q", **message}
        return self.event("message", source, at=at, message=content)

    def message_id(self) -> str:
        """The id of a message: digits in a text, as LINE's are."""
        return f"5{self._series}{next(self._numbers):0{17 - len(self._series)}d}"


def source_of(user_id: str | None, group_id: str | None) -> dict[str, str]:
    """The source of an event: a user, or a group or room with the user if there is one.

    As in LINE a group's id begins with C and a room's with R.
    """
    if group_id is None:
        return {"type": "user", "userId": user_id or ""}
    kind = "room" if group_id.startswith("R") else "group"
    found = {"type": kind, f"{kind}Id": group_id}
    return {**found, "userId": user_id} if user_id else found


def media(kind: str, size: int, name: str) -> Document:
    """The message of a photo, video, voice message or file."""
    if kind == "file":
        return {"type": kind, "fileName": name, "fileSize": size}
    length = {} if kind == "image" else {"duration": 2_000}
    return {"type": kind, **length, "contentProvider": {"type": "line"}}
