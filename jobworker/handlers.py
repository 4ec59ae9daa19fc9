"""Where handlers run: on the worker's own threads, or elsewhere (`jobworker.remote`)."""

from __future__ import annotations

from typing import Any

from dispatcher.conversations.mailbox import Job
from jobworker.bot.bot import Bot, Rule
from jobworker.bot.talk import Talk
from jobworker.handler_retry import Failure


class Handlers:
    """The bot's rules and the calls of its handlers; here those of a bot in this process."""

    def __init__(self, bot: Bot) -> None:
        self._bot = bot

    def bot(self) -> Bot:
        """The rules in force. Raises WorkerAway if none are known."""
        return self._bot

    def rule_in(self, talk: Talk, event: Any) -> Rule | None:
        """The rule of an event (`Bot.rule_in`). Raises WorkerAway, NoTimerHandler."""
        return self.bot().rule_in(talk, event)

    def limit_of(self, rule: Rule) -> float | None:
        """Return the dispatcher's time limit of a handler; None for HANDLER_LIMIT_SECONDS."""
        return rule.limit

    def call(self, job: Job, rule: Rule, event: Any, talk: Talk) -> Failure | None:
        """Run the rule's handler; returns why it failed in another process.

        `event` is the event's model, or a list of them if messages are gathered. Raises the error
        of a handler in this process, and WorkerAway if it has to be tried again without a failed
        try.
        """
        rule.handler(event, talk)
        return None
