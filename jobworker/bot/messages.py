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

Message = dict[str, Any]


def to_messages(*items: Any) -> list[Message]:
    """Return message objects from texts, SDK message objects, LINE's own JSON, or lists of these.

    A text over LINE's limit becomes several messages, cut between visible characters. Raises
    BotError for none, for more than five in all, and for objects that are no message.
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
    return [_as_sent(item)]


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
