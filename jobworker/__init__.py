"""The bot API, conversations, effects, the gate and the LINE client.

A bot is written against what stands here: `Bot`, `Talk` and the errors a handler may meet.
"""

from jobworker.bot import Bot
from jobworker.errors import (
    BadMessage,
    BadRecipient,
    BadState,
    BadTimer,
    BotError,
    NobodyToAnswer,
    NoMessages,
    StateTooLarge,
    TooManyMessages,
    TooManyTimers,
    TooManyUsers,
)
from jobworker.events import TimerEvent
from jobworker.talk import Talk

__all__ = [
    "BadMessage",
    "BadRecipient",
    "BadState",
    "BadTimer",
    "Bot",
    "BotError",
    "NoMessages",
    "NobodyToAnswer",
    "StateTooLarge",
    "Talk",
    "TimerEvent",
    "TooManyMessages",
    "TooManyTimers",
    "TooManyUsers",
]
