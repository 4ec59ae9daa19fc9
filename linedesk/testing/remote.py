"""Handlers as worker processes run them: rules, jobs and decisions pass through JSON."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.talk import Talk
from jobworker.errors import BotError
from jobworker.remote.actions import Replay
from jobworker.remote.job import DECIDED, Job, decide, job_of, written
from jobworker.remote.rules import RemoteHandler, bot_of, rules_of
from jobworker.remote.values import from_line, to_line

LIMIT_SECONDS = 60.0


class RemoteBot:
    """A bot behind the contract of worker processes; `rules` are the ones the leader knows."""

    def __init__(
        self, bot: Bot, *, settings: Mapping[str, Any], secrets: Mapping[str, str]
    ) -> None:
        table, self._by_name = rules_of(bot)
        self.rules = bot_of(from_line(to_line(table)), "test")
        self._settings = settings
        self._secrets = secrets

    def handler_of(self, rule: Rule) -> Callable[..., object]:
        """The bot's own handler for a rule of `rules`."""
        return self._by_name[_name(rule)].handler

    def call(self, rule: Rule, talk: Talk) -> object:
        """Run the handler on its job, and apply its decisions to the talk.

        Returns the handler's result and raises its exceptions.
        """
        message = job_of(
            talk,
            rule=_name(rule),
            is_list=rule.gather is not None,
            limit_seconds=rule.limit or LIMIT_SECONDS,
            epoch=1,
            tries=1,
        )
        job = Job.from_message(from_line(to_line({**message, "attempt": "test"})))
        handler, returned = self.handler_of(rule), []
        decision = decide(
            job,
            lambda event, remote: returned.append(handler(event, remote)),
            settings=self._settings,
            secrets=self._secrets,
            # The test's clock does not move while a handler runs.
            elapsed=lambda: 0.0,
        )
        decision = from_line(written(decision))
        if decision["outcome"] != DECIDED:
            raise BotError(decision["what"])
        now = talk.now
        replay = Replay(talk, began=now, now=lambda: now)
        replay.carry_out(decision["actions"], decision.get("data"))
        return returned[0]


def _name(rule: Rule) -> str:
    assert isinstance(rule.handler, RemoteHandler), "the rules are those of a remote bot"
    return rule.handler.name
