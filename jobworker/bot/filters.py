"""Filters of `bot.add`: what an event must have besides its classes. Pure.

A filter has parts that are data and parts that are code. With worker processes the leader judges
the first and asks a worker about the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from linebot.v3.webhooks import PostbackEvent, TextMessageContent

from jobworker.errors import BotError

if TYPE_CHECKING:
    from jobworker.bot.talk import Talk

Condition = Callable[[Any, "Talk"], object]


@dataclass(frozen=True)
class Filter:
    """What an event must have. All parts that are given must hold."""

    text: str | None = None
    """The whole text of the message, apart from blanks around it."""
    mentioned: bool = False
    """The bot is mentioned, or the chat is 1:1."""
    postback: str | None = None
    """Pairs that the postback's data must have, such as "action=buy"."""
    pattern: re.Pattern[str] | None = None
    """Found in the text of the message."""
    when: Condition | None = None

    @property
    def is_code(self) -> bool:
        """Whether only the bot itself can judge it."""
        return self.pattern is not None or self.when is not None

    def fits(self, event: Any) -> bool:
        """Judge the parts that are data."""
        if self.text is not None and _text(event) != self.text:
            return False
        if self.mentioned and not _is_addressed(event):
            return False
        if self.postback is None:
            return True
        data = pairs(getattr(event.postback, "data", None))
        return pairs(self.postback).items() <= data.items()

    def holds(self, event: Any, talk: Talk) -> bool:
        """Judge the parts that are code. Raises the errors of the bot's condition."""
        if self.pattern is not None:
            text = _text(event)
            if text is None or self.pattern.search(text) is None:
                return False
        return self.when is None or bool(self.when(event, talk))


def filter_of(
    event: type,
    message: Any,
    *,
    text: str | re.Pattern[str] | None,
    when: Condition | None,
    mentioned: bool,
    postback: str | None,
) -> Filter | None:
    """Return the filter of these keywords, None without any. Raises BotError for one that never
    holds.
    """
    if not (
        text is None or isinstance(text, re.Pattern) or (isinstance(text, str) and text.strip())
    ):
        raise BotError(f"text= takes a text or a pattern of re.compile, not {text!r:.80}")
    if text is not None and not (_has_message(event) and message in (None, TextMessageContent)):
        raise BotError("text= is for MessageEvent with TextMessageContent")
    if mentioned and not _has_message(event):
        raise BotError(f"mentioned= is for MessageEvent, not for {event.__name__}")
    if postback is not None and event is not PostbackEvent:
        raise BotError(f"postback= is for PostbackEvent, not for {event.__name__}")
    if postback is not None and not pairs(postback):
        raise BotError(f"postback= takes pairs such as 'action=buy', not {postback!r:.80}")
    if when is not None and not callable(when):
        raise BotError(f"when= takes a function of event and talk, not {when!r:.80}")
    exact = text.strip() if isinstance(text, str) else None
    pattern = text if isinstance(text, re.Pattern) else None
    found = Filter(exact, bool(mentioned), postback, pattern, when)
    return None if found == Filter() else found


def pairs(data: object) -> Mapping[str, str]:
    """Return the pairs in a postback's data, such as "action=buy&item=3"; none for other data."""
    return dict(parse_qsl(data, keep_blank_values=True)) if isinstance(data, str) else {}


def _has_message(event: type) -> bool:
    return "message" in getattr(event, "__annotations__", {})


def _text(event: Any) -> str | None:
    text = getattr(event.message, "text", None)
    return text.strip() if isinstance(text, str) else None


def _is_addressed(event: Any) -> bool:
    """Whether the bot is meant. LINE's reference, "Text": `isSelf` of a mentionee."""
    if getattr(event.source, "type", None) == "user":
        return True
    mention = getattr(event.message, "mention", None)
    return any(getattr(one, "is_self", False) for one in getattr(mention, "mentionees", None) or ())
