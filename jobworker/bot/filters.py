"""Filters of `bot.add`: what an event must have besides its classes. Pure.

A filter has parts that are data and parts that are code. With worker processes the leader judges
the first and asks a worker about the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from linebot.v3.webhooks import PostbackEvent, TextMessageContent

from jobworker.bot.places import is_coroutine
from jobworker.errors import BotError

Condition = Callable[[Any, Any], object]


@dataclass(frozen=True)
class Filter:
    """The filters of one handler. All that are given must hold."""

    text: str | re.Pattern[str] | None = None
    """The whole text of the message, apart from a mention of the bot and blanks around it, or a
    pattern found in it.
    """
    mentioned: bool = False
    postback: str | None = None
    """Pairs that the postback's data must have, such as "action=buy"."""
    when: Condition | None = None

    @property
    def is_code(self) -> bool:
        """Whether a part of it can only be judged where the bot is."""
        return isinstance(self.text, re.Pattern) or self.when is not None

    def fits(self, event: Any) -> bool:
        """Judge the parts that are data."""
        is_text = not isinstance(self.text, str) or self.text.strip() == _text(event)
        wanted = pairs(self.postback).items()
        has_pairs = not wanted or wanted <= pairs(event.postback.data).items()
        return is_text and has_pairs and (not self.mentioned or _is_addressed(event))

    def holds(self, event: Any, talk: Any) -> bool:
        """Judge the parts that are code. Raises the errors of the bot's condition."""
        if isinstance(self.text, re.Pattern) and self.text.search(_text(event)) is None:
            return False
        answer = self.when is None or self.when(event, talk)
        if isinstance(answer, Coroutine):
            raise BotError("when= returned a coroutine, which does not run", reason="async when=")
        return bool(answer)


def filter_of(event: type, message: Any, given: Filter) -> Filter | None:
    """Return the filter, None if it is empty. Raises BotError if it never holds for the classes."""
    text, postback, when = given.text, given.postback, given.when
    has_message = "message" in getattr(event, "__annotations__", {})
    of_text = has_message and message in (None, TextMessageContent)
    is_pattern = isinstance(text, re.Pattern) and isinstance(text.pattern, str)
    is_text = is_pattern or (isinstance(text, str) and text.strip() != "")
    wrong = {
        "text= takes a text or a pattern of re.compile": text is not None and not is_text,
        "text= is for MessageEvent with texts": text is not None and not of_text,
        "mentioned= is for MessageEvent": given.mentioned and not has_message,
        "postback= is for PostbackEvent": postback is not None and event is not PostbackEvent,
        "postback= takes pairs such as 'action=buy'": not (postback is None or pairs(postback)),
        "when= takes a plain function, not an async one": when is not None and is_coroutine(when),
    }
    if told := next((one for one, is_wrong in wrong.items() if is_wrong), None):
        raise BotError(told)
    return None if given == Filter() else given


def pairs(data: object) -> Mapping[str, str]:
    """Return the pairs in a postback's data, such as "action=buy&item=3"; none for other data."""
    return dict(parse_qsl(data, keep_blank_values=True)) if isinstance(data, str) else {}


def _text(event: Any) -> str:
    """The text without mentions of the bot; LINE counts their places in UTF-16 units."""
    units = str(event.message.text).encode("utf-16-le", "surrogatepass")
    for one in sorted(_of_bot(event), key=lambda one: -one.index):
        units = units[: 2 * one.index] + units[2 * (one.index + one.length) :]
    return units.decode("utf-16-le", "replace").strip()


def _of_bot(event: Any) -> list[Any]:
    """The mentions of the bot (LINE's reference, "Text": `isSelf`)."""
    mention = getattr(event.message, "mention", None)
    everyone = mention.mentionees if mention is not None else ()
    return [one for one in everyone if getattr(one, "is_self", False)]


def _is_addressed(event: Any) -> bool:
    """Whether the bot is mentioned, or the chat is 1:1."""
    return getattr(event.source, "type", None) == "user" or bool(_of_bot(event))
