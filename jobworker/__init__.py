"""The bot API, conversations, effects, the gate and the LINE client.

A bot is written against what stands here: `Bot`, `Talk` and the errors a handler may meet; one
written with line-bot-sdk takes its `ApiClient` from here.
"""

from typing import TYPE_CHECKING, Any

from jobworker.bot import Bot
from jobworker.content import Content
from jobworker.errors import (
    BadHandler,
    BadMessage,
    BadRecipient,
    BadState,
    BadTimer,
    BotError,
    ContentError,
    ContentFailed,
    ContentGone,
    ContentNotFound,
    ContentNotReady,
    ContentRefused,
    ContentTooLarge,
    ExternalContent,
    GateClosed,
    LineAway,
    NobodyToAnswer,
    NoContent,
    NoMessages,
    NotRunning,
    StateTooLarge,
    TalkEnded,
    TooManyMessages,
    TooManyTimers,
    TooManyUsers,
)
from jobworker.events import TimerEvent
from jobworker.talk import Talk

if TYPE_CHECKING:
    from jobworker.apiclient import ApiClient

__all__ = [
    "ApiClient",
    "BadHandler",
    "BadMessage",
    "BadRecipient",
    "BadState",
    "BadTimer",
    "Bot",
    "BotError",
    "Content",
    "ContentError",
    "ContentFailed",
    "ContentGone",
    "ContentNotFound",
    "ContentNotReady",
    "ContentRefused",
    "ContentTooLarge",
    "ExternalContent",
    "GateClosed",
    "LineAway",
    "NoContent",
    "NoMessages",
    "NobodyToAnswer",
    "NotRunning",
    "StateTooLarge",
    "Talk",
    "TalkEnded",
    "TimerEvent",
    "TooManyMessages",
    "TooManyTimers",
    "TooManyUsers",
]


def __getattr__(name: str) -> Any:
    """`ApiClient`, when somebody asks for it: it takes all of line-bot-sdk's client to import."""
    if name != "ApiClient":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jobworker.apiclient import ApiClient

    return ApiClient
