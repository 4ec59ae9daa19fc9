"""The seam between a turn and the place where the bot's handlers run.

A turn asks its runner for the rule of an event, and then to run the rule's handler. It counts the
tries, abandons a handler that takes too long, and records the decision, wherever the handler ran. A
runner

* calls the handler at most once in a `run`, and returns only when that call has ended or is lost,
* leaves the handler's decisions in the talk, and nothing of a call that failed or was lost,
* returns soon after `call.when_abandoned` is called; another run then decides,
* notes in `call.thread` where the handler runs, if that is not this thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jobworker.async_handlers import AsyncHandlers, Awaited
from jobworker.bot.bot import Bot, Choose, Rule, first_of
from jobworker.bot.places import note_unused
from jobworker.bot.talk import Talk
from jobworker.handler_context import HandlerContext
from jobworker.handler_retry import Failure


class HandlerRunner:
    """Runs the handlers of a bot of this process, on the thread of the turn.

    `jobworker.remote.runner` has the one of worker processes.
    """

    def __init__(self, bot: Bot | None, handlers: AsyncHandlers | None = None) -> None:
        self._bot = bot
        self._handlers = handlers

    def bot(self) -> Bot:
        """The rules in force. Raises WorkerAway if none are known."""
        assert self._bot is not None, "without worker processes the bot runs here"
        return self._bot

    def rule_in(self, talk: Talk, event: Any, choose: Choose = first_of) -> Rule | None:
        """The rule of an event (`Bot.rule_in`). Raises WorkerAway, NoTimerHandler, and the errors
        of the bot's conditions.
        """
        return self.bot().rule_in(talk, event, choose)

    def choose(
        self, rules: Iterator[Rule], event: Any, talk: Talk, *, lost_by: frozenset[str]
    ) -> Rule | None:
        """The first rule whose filter holds. `lost_by`: worker processes that lost its job."""
        return first_of(rules, event, talk)

    def limit_of(self, rule: Rule) -> float | None:
        """The dispatcher's time limit of a handler; None for HANDLER_LIMIT_SECONDS."""
        return rule.limit

    def run(self, rule: Rule, event: Any, talk: Talk, call: HandlerContext) -> Failure | None:
        """Run the rule's handler; returns why it failed elsewhere.

        `event` is the event's model, or a list of them if messages are gathered. Raises the error
        of a handler that runs on this thread, and WorkerAway if it has to be tried again without a
        failed try.
        """
        answer: object
        if rule.is_async:
            answer = self._async.run(rule.handler, event, talk)
        else:
            answer = rule.handler(event, talk)
        note_unused(rule.handler, answer)
        return None

    def begin(self, rule: Rule, event: Any, one: Awaited) -> None:
        """Run an async handler outside the pool; `one` ends with it. Raises WorkerAway."""
        self._async.begin(rule.handler, event, one)

    @property
    def _async(self) -> AsyncHandlers:
        assert self._handlers is not None, "a bot with async handlers has a loop"
        return self._handlers
