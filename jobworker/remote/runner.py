"""Runs handlers in worker processes, for a turn: a job is sent, a decision comes back.

The decision is repeated with the leader's own talk, and recorded like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from jobworker.bot.bot import Bot, Rule
from jobworker.bot.talk import Talk
from jobworker.errors import NoTimerHandler, WorkerAway
from jobworker.handler_context import HandlerContext
from jobworker.handler_retry import Failure
from jobworker.handler_runner import HandlerRunner
from jobworker.remote.actions import INVALID, Replay
from jobworker.remote.job import failure_of, job_of
from jobworker.remote.leader import GRACE_SECONDS, MOST_DEATHS, Workers
from jobworker.remote.rules import RemoteHandler


class RemoteRunner(HandlerRunner):
    """The runner of worker processes. `handler_seconds` is HANDLER_LIMIT_SECONDS."""

    def __init__(
        self,
        workers: Workers,
        *,
        handler_seconds: float,
        now: Callable[[], datetime],
        masked: Callable[[str], str] = str,
    ) -> None:
        super().__init__(None)
        self._workers = workers
        self._handler_seconds = handler_seconds
        self._now = now
        self._masked = masked

    def bot(self) -> Bot:
        bot = self._workers.versions.bot
        if bot is None:
            raise WorkerAway(self._workers.broker.trouble() or "no_worker_connected")
        return bot

    def rule_in(self, talk: Talk, event: Any) -> Rule | None:
        try:
            return super().rule_in(talk, event)
        except NoTimerHandler:
            # guard: timer-of-another-version -> never
            if any(bot.has_timer(event.name) for bot in self._workers.versions.others()):
                raise WorkerAway("other_bot_version") from None
            raise

    def limit_of(self, rule: Rule) -> float:
        """A worker abandons its handler first; the leader does so if the worker is silent."""
        return (rule.limit or self._handler_seconds) + GRACE_SECONDS

    def run(self, rule: Rule, event: Any, talk: Talk, call: HandlerContext) -> Failure | None:
        workers, handler = self._workers, rule.handler
        assert isinstance(handler, RemoteHandler), "the rules are a worker's"
        if workers.deaths(call.lost_by) >= MOST_DEATHS:
            return Failure("took_worker_down", "-", "", lasting=True)
        began = talk.now
        attempt = workers.take(
            version=handler.version,
            key=f"{talk.channel}/{talk.key}",
            event_id=talk.document_name,
            died_with=call.lost_by,
        )
        try:
            call.thread = attempt.worker.name
            call.when_abandoned(attempt.over.set)
            message = job_of(
                talk,
                rule=handler.name,
                is_list=isinstance(event, list),
                limit_seconds=rule.limit or self._handler_seconds,
                epoch=workers.epoch,
            )
            decision = workers.run(attempt, {**message, "attempt": attempt.id})
        finally:
            workers.end(attempt)
        if isinstance(decision, Failure):
            return decision
        try:
            failure = failure_of(decision, self._masked)
        except ValueError as error:
            failure = Failure(f"{INVALID}: {error}", "-", "", lasting=False)
        if failure is None:
            replay = Replay(talk, began=began, now=self._now)
            replay.carry_out(decision.get("actions"), decision.get("data"))
        return failure
