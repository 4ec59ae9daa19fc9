"""Webhook events and their message contents, as LINE writes them. Pure: all ids and times are
handed in.
"""

import copy
import re
from collections.abc import Mapping
from typing import Any

from linemessages import units
from linesim.model import ids
from linesim.model.deliveries import Event
from linesim.model.world import Group, User

Source = dict[str, str]
Content = dict[str, Any]

REPLYABLE = frozenset(
    {
        *("message", "messageEdited", "follow", "join", "memberJoined", "postback"),
        *("videoPlayComplete", "beacon", "accountLink"),
    }
)
UNQUOTABLE = frozenset({"audio", "file", "location"})
# Of a message; the chat page shows neither.
TOKENS = ("quoteToken", "markAsReadToken")


def event(kind: str, *, now: float, source: Source, **details: Any) -> Event:
    """An event with its common properties, and a reply token where LINE gives one."""
    made: Event = {
        "type": kind,
        **details,
        "webhookEventId": ids.event_id(now),
        "deliveryContext": {"isRedelivery": False},
        "timestamp": int(now * 1000),
        "source": source,
    }
    if kind in REPLYABLE:
        made["replyToken"] = ids.reply_token()
    made["mode"] = "active"
    return made


def source(user: User | None, group: Group | None = None) -> Source:
    """The source of an event: a user in 1:1, or a group or room with the user if there is one."""
    if group is None:
        if user is None:
            raise ValueError("a source needs a user, a group or both")
        return {"type": "user", "userId": user.user_id}
    found = {"type": group.kind, f"{group.kind}Id": group.chat_id}
    if user is not None:
        found["userId"] = user.user_id
    return found


def redelivered(event: Event) -> Event:
    """The same event once more: id, token and timestamp are the original's (RECV, redelivered
    webhooks).
    """
    again = copy.deepcopy(event)
    again["deliveryContext"]["isRedelivery"] = True
    return again


def standby(event: Event) -> Event:
    """Makes the event one for a bot on standby: it may not answer, so there is no reply token."""
    event["mode"] = "standby"
    event.pop("replyToken", None)
    return event


def content(kind: str, message_id: str, **fields: Any) -> Content:
    """A message's content with LINE's tokens and these fields, without those that are None."""
    made: Content = {"type": kind, "id": message_id, "markAsReadToken": ids.read_token()}
    if kind not in UNQUOTABLE:
        made["quoteToken"] = ids.quote_token()
    return made | {name: value for name, value in fields.items() if value is not None}


def mention(text: str, people: Mapping[str, str], *, bot: str) -> Content | None:
    """The mentions in a text, with the names of people by id (reference, "Text")."""
    who = {
        name: {"type": "user", "userId": id_, "isSelf": id_ == bot} for id_, name in people.items()
    }
    who["All"] = {"type": "all"}
    names = "|".join(map(re.escape, sorted(who, key=len, reverse=True)))
    found = [
        {"index": units(text[: one.start()]), "length": units(one[0]), **who[one[1]]}
        for one in re.finditer(f"@({names})", text)
    ]
    return {"mentionees": found} if found else None


def without(content: Mapping[str, Any], *names: str) -> Content:
    return {name: value for name, value in content.items() if name not in names}


def chat_id_of(event: Event) -> str | None:
    """The group, room or user whose conversation the event belongs to."""
    where: Source = event.get("source") or {}
    return where.get("groupId") or where.get("roomId") or where.get("userId")
