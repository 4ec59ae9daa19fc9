"""Handlers in worker processes, for a turn: a job is sent, a decision comes back.

The decision is repeated with the leader's own talk, and recorded like any other.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, cast

from dispatcher.conversations.mailbox import Job
from jobworker.bot.bot import Bot, Rule
from jobworker.bot.talk import Talk
from jobworker.errors import NoTimerHandler, WorkerAway
from jobworker.handler_retry import Failure
from jobworker.handlers import Handlers
from jobworker.remote.actions import INVALID, Replay
from jobworker.remote.job import failure_of, job_of
from jobworker.remote.leader import GRACE_SECONDS, Workers
from jobworker.remote.rules import RemoteHandler
from jobworker.runs import JobMemo
from linedesk.store.documents import conversation_id, name_of

POISON = "took its worker down"


class RemoteHandlers(Handlers):
    """The handlers in worker processes. `handler_seconds` is HANDLER_LIMIT_SECONDS."""

    def __init__(
        self,
        workers: Workers,
        *,
        handler_seconds: float,
        now: Callable[[], datetime],
        masked: Callable[[str], str] = str,
    ) -> None:
        self.workers = workers
        self._handler_seconds = handler_seconds
        self._now = now
        self._masked = masked

    def bot(self) -> Bot:
        bot = self.workers.bot()
        if bot is None:
            raise WorkerAway(self.workers.none_words())
        return bot

    def rule_in(self, talk: Talk, event: Any) -> Rule | None:
        try:
            return super().rule_in(talk, event)
        except NoTimerHandler:
            # guard: timer-of-another-version -> never
            if any(bot.has_timer(event.name) for bot in self.workers.others()):
                raise WorkerAway("its handler is in another version of the bot") from None
            raise

    def limit_of(self, rule: Rule) -> float | None:
        """A worker abandons its handler first; the leader does so if the worker is silent."""
        return (rule.limit or self._handler_seconds) + GRACE_SECONDS

    def call(self, job: Job, rule: Rule, event: Any, talk: Talk) -> Failure | None:
        handler, memo = rule.handler, cast(JobMemo, job.memo)
        run, call, documents = memo.run, memo.call, memo.heard_with(job.document)
        assert isinstance(handler, RemoteHandler), "the rules are a worker's"
        assert call is not None, "it is under way"
        if deaths := self.workers.condemned_by(memo.died_with):
            return Failure(f"{POISON} {deaths} times", "-", "", lasting=True)
        began = talk.now
        attempt = self.workers.take(
            version=handler.version,
            key=conversation_id(job.document),
            event_id=name_of(job.document),
            died_with=memo.died_with,
        )
        try:
            run.thread = attempt.worker.name
            call.when_abandoned(attempt.over.set)
            message = job_of(
                talk,
                documents,
                rule=handler.name,
                is_list=isinstance(event, list),
                limit_seconds=rule.limit or self._handler_seconds,
                epoch=self.workers.epoch,
                tries=memo.failed_tries + 1,
            )
            decision = self.workers.run(attempt, {**message, "attempt": attempt.id})
        finally:
            self.workers.end(attempt)
        if isinstance(decision, Failure):
            return decision
        try:
            failure = failure_of(decision, self._masked)
        except ValueError as error:
            failure = Failure(f"{INVALID}: {error}", "-", "", lasting=False)
        if failure is not None:
            return failure
        replay = Replay(talk, began=began, now=self._now)
        replay.carry_out(decision.get("actions"), decision.get("data"))
        return None
