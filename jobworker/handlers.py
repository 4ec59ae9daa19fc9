"""Where handlers run: on the worker's own threads, or elsewhere (`jobworker.remote`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.talk import Talk
from jobworker.handler_context import HandlerContext
from jobworker.runs import JobMemo, JobRun
from linedesk.contract import Job
from linedesk.store.documents import Document


@dataclass(frozen=True)
class HandlerTry:
    """One try of a handler: what it gets, and for whom."""

    job: Job
    memo: JobMemo
    run: JobRun
    rule: Rule
    event: Any
    """The event's model, or a list of them where messages are gathered."""
    talk: Talk
    documents: Sequence[Document]
    context: HandlerContext


class Handlers(Protocol):
    """Knows the bot's rules and calls its handlers."""

    def bot(self) -> Bot:
        """The rules that are in force. Raises WorkerAway where none are known."""
        ...

    def rule_in(self, talk: Talk, event: Any) -> Rule | None:
        """The rule of an event (`Bot.rule_in`). Raises WorkerAway, NoTimerHandler."""
        ...

    def limit_of(self, rule: Rule) -> float | None:
        """When the dispatcher gives a handler up, in seconds; None for HANDLER_LIMIT_SECONDS."""
        ...

    def call(self, one: HandlerTry) -> None:
        """Have the handler decide, with the talk.

        Raises what the handler raises, HandlerFailed, or WorkerAway where it has to be tried again
        without a failed try.
        """
        ...


class LocalHandlers:
    """The bot in this process."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot
        self.bot: Callable[[], Bot] = lambda: bot

    def rule_in(self, talk: Talk, event: Any) -> Rule | None:
        return self._bot.rule_in(talk, event)

    def limit_of(self, rule: Rule) -> float | None:
        return rule.limit

    def call(self, one: HandlerTry) -> None:
        one.rule.handler(one.event, one.talk)
