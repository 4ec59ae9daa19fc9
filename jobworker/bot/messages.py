"""Messages that a bot may send, as JSON for LINE. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jobworker.errors import BotError
from linedesk.store.limits import MOST_MESSAGES

# LINE's reference, "Text message": at most 5,000 characters, counted in UTF-16 code units.
TEXT_UNITS = 5_000

ZERO_WIDTH_JOINER = "\u200d"
SKIN_TONES = range(0x1F3FB, 0x1F400)
# Two of them form a flag; tags form a region's flag; half-width kana have separate sound marks.
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
TAGS = range(0xE0020, 0xE0080)
HALF_WIDTH_MARKS = range(0xFF9E, 0xFFA0)
INVALID = "invalid message"
# LINE's reference, "quoteToken" of messages to send.
QUOTING = ("text", "textV2", "sticker")

Message = dict[str, Any]


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
        if isinstance(item, (list, tuple)):
            yield from _flat(item)
        else:
            yield item


def _one(item: Any) -> list[Message]:
    if isinstance(item, str):
        if not item:
            raise BotError("an empty text: LINE refuses it", reason=INVALID)
        return [{"type": "text", "text": part} for part in split_text(item)]
    if hasattr(item, "to_dict") and not isinstance(item, type):
        item = item.to_dict()
    if not isinstance(item, Mapping) or not isinstance(item.get("type"), str):
        raise BotError(f"not a message: {type(item).__name__}", reason=INVALID)
    return _split(_as_sent(item))


def _split(message: Message) -> list[Message]:
    """A text message in parts: the first one quotes, the last one has the quick reply."""
    text = message.get("text")
    if message["type"] != "text" or not isinstance(text, str) or "emojis" in message:
        return [message]
    parts = [{**message, "text": part} for part in split_text(text)]
    for name, ones in (("quoteToken", parts[1:]), ("quickReply", parts[:-1])):
        for one in ones:
            one.pop(name, None)
    return parts


def add_quote(messages: Iterable[Message], token: str) -> None:
    """Let the first of the messages that can quote do so. Raises BotError if none can."""
    found = next((one for one in messages if one["type"] in QUOTING), None)
    if found is None:
        raise BotError("quote=True needs a text or a sticker", reason=INVALID)
    found["quoteToken"] = token


class MentionText:
    """A text with mentions, by `talk.mention(...)` and `+`: LINE's "Text message (v2)"."""

    def __init__(self, *parts: str | tuple[str]) -> None:
        self.parts = parts
        """Texts, and the ids of users, each in a tuple."""

    def __add__(self, more: str | MentionText) -> MentionText:
        return MentionText(*self.parts, *([more] if isinstance(more, str) else more.parts))

    def __radd__(self, before: str) -> MentionText:
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


def mentions(message: Message) -> bool:
    """Whether the message mentions people: LINE's reference, "Mention object"."""
    parts = message.get("substitution")
    values = parts.values() if isinstance(parts, dict) else ()
    return any(isinstance(one, dict) and one.get("type") == "mention" for one in values)


def _as_sent(item: Mapping[str, Any]) -> Message:
    """A copy that contains only JSON, as LINE will get it."""
    try:
        text = json.dumps(dict(item), ensure_ascii=False, allow_nan=False)
        text.encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise BotError(f"a message that is not JSON: {error}", reason=INVALID) from error
    message: Message = json.loads(text)
    return message


def units(text: str) -> int:
    """Return the length of a text as LINE counts it: in UTF-16 code units."""
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def split_text(text: str, *, most: int = TEXT_UNITS) -> list[str]:
    """Return the text in parts of at most `most` units; joined they equal the text."""
    if units(text) <= most:
        return [text]
    parts: list[str] = []
    part: list[str] = []
    used = 0
    for cluster in _clusters(text):
        size = units(cluster)
        if part and used + size > most:
            parts.append("".join(part))
            part, used = [], 0
        part.append(cluster)
        used += size
    parts.append("".join(part))
    return parts


def _clusters(text: str) -> Iterator[str]:
    """The visible characters: with combining marks, variation selectors, joined emoji.

    A very long run is cut, so that every cluster fits in a message.
    """
    cluster = ""
    for character in text:
        if cluster and (not _joins(cluster, character) or units(cluster) >= 100):
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster


def _joins(cluster: str, character: str) -> bool:
    return (
        cluster.endswith(ZERO_WIDTH_JOINER)
        or character == ZERO_WIDTH_JOINER
        or unicodedata.category(character) in ("Mn", "Mc", "Me")
        or any(ord(character) in joining for joining in (SKIN_TONES, TAGS, HALF_WIDTH_MARKS))
        or (ord(character) in FLAG_LETTERS and len(cluster) == 1 and ord(cluster) in FLAG_LETTERS)
    )
