"""The API for bots: `Bot`, `Talk`, and the errors that a handler may meet.

A bot that is written with line-bot-sdk takes its `ApiClient` from here. Names are imported when
they are used, since line-bot-sdk takes half a second.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobworker.bot.bot import Bot
    from jobworker.bot.content import Content
    from jobworker.bot.events import TimerEvent
    from jobworker.bot.talk import Talk
    from jobworker.errors import (
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
        GiveUp,
        LineAway,
        NotRunning,
        Retry,
        TalkEnded,
        WrongMessage,
    )
    from jobworker.line.month import MonthlyQuota
    from jobworker.sdk.api_client import ApiClient

__all__ = [
    "ApiClient",
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
    "GiveUp",
    "LineAway",
    "MonthlyQuota",
    "NotRunning",
    "Retry",
    "Talk",
    "TalkEnded",
    "TimerEvent",
    "WrongMessage",
]

_MODULES = {
    "jobworker.bot.bot": ("Bot",),
    "jobworker.bot.content": ("Content",),
    "jobworker.bot.events": ("TimerEvent",),
    "jobworker.bot.talk": ("Talk",),
    "jobworker.errors": (
        "BotError",
        "ContentError",
        "ContentFailed",
        "ContentGone",
        "ContentNotFound",
        "ContentNotReady",
        "ContentRefused",
        "ContentTooLarge",
        "ExternalContent",
        "GateClosed",
        "GiveUp",
        "LineAway",
        "NotRunning",
        "Retry",
        "TalkEnded",
        "WrongMessage",
    ),
    "jobworker.line.month": ("MonthlyQuota",),
    "jobworker.sdk.api_client": ("ApiClient",),
}


# A checker of types sees the imports above, so that it refuses a name that is not there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of the API, imported at its first use."""
        from importlib import import_module

        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
