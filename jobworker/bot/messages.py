"""Messages that a bot may send: as JSON for LINE, and checked as LINE checks them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import methodcaller
from typing import Any

from jobworker.errors import BotError, WrongMessage
from linedesk.store.limits import MOST_MESSAGES
from linemessages import Finding, check_messages, clusters, units

log = logging.getLogger(__name__)

# LINE's reference, "Text message": at most 5,000 characters, counted in UTF-16 code units.
TEXT_UNITS = 5_000

INVALID = "invalid message"
PLACE = re.compile(r"\[\d+\]")
# LINE's reference, "quoteToken" of messages to send.
QUOTING = ("text", "textV2", "sticker")

Message = dict[str, Any]
MessageCheck = Callable[..., None]
"""`check(messages, mentions=…)` raises WrongMessage; without `mentions` LINE takes none."""


def to_messages(*items: Any) -> list[Message]:
    """Return message objects from texts, SDK message objects, LINE's own JSON, or lists of these.

    A text over LINE's limit becomes several messages, cut between visible characters; so does a
    text message, unless it has emojis, which have their places in it. Raises BotError for none, for
    more than five in all, and for objects that are no message.
    """
    messages = [message for item in _flat(items) for message in _one(item)]
    if not messages:
        raise BotError("a send needs at least one message", reason="no messages")
    if len(messages) > MOST_MESSAGES:
        told = f"{len(messages)} messages in one send, LINE takes {MOST_MESSAGES}"
        raise BotError(told, reason="too many messages")
    return messages


def _flat(items: Iterable[Any]) -> Iterator[Any]:
    for item in items:
        yield from _flat(item) if isinstance(item, (list, tuple)) else [item]


def _one(item: Any) -> list[Message]:
    if isinstance(item, str):
        return [{"type": "text", "text": part} for part in split_text(item)]
    if hasattr(item, "to_dict") and not isinstance(item, type):
        item = item.to_dict()
    if not isinstance(item, Mapping):
        raise BotError(f"not a message: {type(item).__name__}", reason=INVALID)
    return _split(_as_sent(item))


def _split(message: Message) -> list[Message]:
    """A text message in parts: the first one quotes, the last one has the quick reply."""
    text = message.get("text")
    if message.get("type") != "text" or not isinstance(text, str) or message.get("emojis"):
        return [message]
    parts = [{**message, "text": part} for part in split_text(text)]
    for name, ones in (("quoteToken", parts[1:]), ("quickReply", parts[:-1])):
        for one in ones:
            one.pop(name, None)
    return parts


def add_quote(messages: Iterable[Message], token: str) -> None:
    """Let the first of the messages that can quote do so. Raises BotError if none can."""
    found = next((one for one in messages if one.get("type") in QUOTING), None)
    if found is None:
        raise BotError("quote=True needs a text or a sticker", reason=INVALID)
    found["quoteToken"] = token


class MentionText:
    """A text with mentions, by `talk.mention(...)` and `+`: LINE's "Text message (v2)"."""

    def __init__(self, *parts: str | tuple[str]) -> None:
        self.parts = parts
        """Texts, and the ids of users, each in a tuple."""

    def __add__(self, more: object) -> MentionText:
        if not isinstance(more, str | MentionText):
            return NotImplemented
        return MentionText(*self.parts, *([more] if isinstance(more, str) else more.parts))

    def __radd__(self, before: object) -> MentionText:
        if not isinstance(before, str):
            return NotImplemented
        return MentionText(before, *self.parts)

    def __str__(self) -> str:
        raise BotError("join a mention by +, not in an f-string", reason=INVALID)

    def to_dict(self) -> Message:
        """The message for LINE."""
        text, people = "", Message()
        for part in self.parts:
            if isinstance(part, str):
                text += part.replace("{", "{{").replace("}", "}}")
                continue
            name = f"user{len(people) + 1}"
            text += f"{{{name}}}"
            people[name] = {"type": "mention", "mentionee": {"type": "user", "userId": part[0]}}
        return {"type": "textV2", "text": text, "substitution": people}


def _as_sent(item: Mapping[str, Any]) -> Message:
    """A copy that contains only JSON, as LINE will get it."""
    try:
        to_dict = methodcaller("to_dict")
        text = json.dumps(dict(item), ensure_ascii=False, allow_nan=False, default=to_dict)
        text.encode()
    except (AttributeError, TypeError, ValueError, RecursionError) as error:
        raise BotError(f"a message that is not JSON: {error}", reason=INVALID) from error
    return dict(json.loads(text))


def split_text(text: str, *, most: int = TEXT_UNITS) -> list[str]:
    """Return the text in parts of at most `most` units; joined they equal the text."""
    if units(text) <= most:
        return [text]
    parts: list[str] = []
    part: list[str] = []
    used = 0
    for cluster in clusters(text):
        size = units(cluster)
        if part and used + size > most:
            parts.append("".join(part))
            part, used = [], 0
        part.append(cluster)
        used += size
    parts.append("".join(part))
    return parts


def refuse_wrong(messages: list[Message], *, mentions: bool = True) -> None:
    """Raise WrongMessage for what LINE refuses; what this release does not know is a warning."""
    found = check_messages(messages, mentions=mentions)
    if wrong := [one for one in found if not one.is_unknown]:
        raise _wrong(wrong)
    for one in found:
        _warn_of_unknown(PLACE.sub("[]", one.place()), one.message)


def refuse_unknown(messages: list[Message], *, mentions: bool = True) -> None:
    """Raise WrongMessage for what LINE refuses, and for what this release does not know."""
    if found := check_messages(messages, mentions=mentions):
        raise _wrong(found)


def take_any(messages: list[Message], *, mentions: bool = True) -> None:
    """Take every message."""


SEND_CHECKS: Mapping[str, MessageCheck] = {"on": refuse_wrong, "off": take_any}
"""By the setting SEND_CHECK."""


def _wrong(found: Sequence[Finding]) -> WrongMessage:
    first, more = found[0], f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return WrongMessage(
        f"{first.property}: {first.message}{more}",
        reason=f"{first.place()}: {first.message}",
        details=[one.as_detail() for one in found],
    )


@lru_cache(maxsize=1_000)
def _warn_of_unknown(place: str, message: str) -> None:
    """Warn once of each place: a bot sends the same message to many."""
    log.warning(
        "a message may be wrong, this release does not know property=%s: %s", place, message
    )
