"""Runs handlers in worker processes, for a turn: a job is sent, a decision comes back.

The decision is repeated with the leader's own talk, and recorded like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from typing import Any

from jobworker.async_handlers import Awaited
from jobworker.bot.bot import Bot, Choose, Rule, first_of
from jobworker.bot.talk import Talk
from jobworker.errors import NoTimerHandler, WorkerAway
from jobworker.handler_context import HandlerContext
from jobworker.handler_retry import ConditionFailed, Failure
from jobworker.handler_runner import HandlerRunner
from jobworker.remote.actions import INVALID, Replay
from jobworker.remote.job import failure_of, job_of
from jobworker.remote.leader import GRACE_SECONDS, MOST_DEATHS, Attempt, Workers
from jobworker.remote.rules import RemoteHandler

# A condition of a filter runs for no longer.
CONDITION_SECONDS = 5.0


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

    def rule_in(self, talk: Talk, event: Any, choose: Choose = first_of) -> Rule | None:
        try:
            return super().rule_in(talk, event, choose)
        except NoTimerHandler:
            # guard: timer-of-another-version -> never
            if any(bot.has_timer(event.name) for bot in self._workers.versions.others()):
                raise WorkerAway("other_bot_version") from None
            raise

    def choose(
        self, rules: Iterator[Rule], event: Any, talk: Talk, *, lost_by: frozenset[str]
    ) -> Rule | None:
        """Ask a worker, which judges filters that are code. Raises WorkerAway, ConditionFailed."""
        asked: dict[str, Rule] = {}
        certain = None
        for rule in rules:
            if rule.filter is None or not rule.filter.is_code:
                certain = rule
                break
            asked[_handler_of(rule).name] = rule
        if not asked:
            return certain
        handler = _handler_of(next(iter(asked.values())))
        limit = min(self._handler_seconds, CONDITION_SECONDS)
        more: Any = {"limit_seconds": limit, "choose": [*asked]}
        decision = self._decision(handler, talk, lost_by, **more)
        if isinstance(decision, Failure):
            raise ConditionFailed(decision)
        return asked.get(str(decision.get("rule")), certain)

    def limit_of(self, rule: Rule) -> float:
        """A worker abandons its handler first; the leader does so if the worker is silent."""
        return (rule.limit or self._handler_seconds) + GRACE_SECONDS

    def run(self, rule: Rule, event: Any, talk: Talk, call: HandlerContext) -> Failure | None:
        began = talk.now
        more = self._more(rule, event)
        decision = self._decision(_handler_of(rule), talk, call.lost_by, call=call, **more)
        return self._repeated(talk, decision, began)

    def begin(self, rule: Rule, event: Any, one: Awaited) -> None:
        workers, talk = self._workers, one.talk
        handler, began = _handler_of(rule), talk.now
        attempt = self._take(handler, talk, one.call.lost_by)
        if isinstance(attempt, Failure):
            one.fail(attempt)
            return
        one.at_end.callback(workers.end, attempt)
        one.outcome = lambda: self._repeated(talk, self._read(attempt.result()), began)
        one.call.thread = attempt.worker.name
        attempt.ended = lambda: one.end() if one.handling.end() else None
        one.begin()
        message = self._job(attempt, handler, talk, **self._more(rule, event))
        if (failure := workers.send(attempt, message)) is not None:
            one.fail(failure)

    def _more(self, rule: Rule, event: Any) -> dict[str, Any]:
        seconds = rule.limit or self._handler_seconds
        return {"is_list": isinstance(event, list), "limit_seconds": seconds}

    def _decision(
        self,
        handler: RemoteHandler,
        talk: Talk,
        lost_by: frozenset[str],
        *,
        call: HandlerContext | None = None,
        **more: Any,
    ) -> Mapping[str, Any] | Failure:
        """Send a job and return its decision, or why it failed. Raises WorkerAway."""
        attempt = self._take(handler, talk, lost_by)
        if isinstance(attempt, Failure):
            return attempt
        try:
            if call is not None:
                call.thread = attempt.worker.name
                call.when_abandoned(attempt.over.set)
            failure = self._workers.send(attempt, self._job(attempt, handler, talk, **more))
            return failure or self._read(attempt.result())
        finally:
            self._workers.end(attempt)

    def _take(
        self, handler: RemoteHandler, talk: Talk, lost_by: frozenset[str]
    ) -> Attempt | Failure:
        if self._workers.deaths(lost_by) >= MOST_DEATHS:
            return Failure("took_worker_down", "-", "", lasting=True)
        return self._workers.take(
            version=handler.version,
            key=f"{talk.channel}/{talk.key}",
            event_id=talk.document_name,
            died_with=lost_by,
            is_async=handler.is_async,
        )

    def _job(
        self, attempt: Attempt, handler: RemoteHandler, talk: Talk, **more: Any
    ) -> Mapping[str, Any]:
        message = job_of(talk, rule=handler.name, epoch=self._workers.epoch, **more)
        return {**message, "attempt": attempt.id}

    def _read(self, decision: Mapping[str, Any]) -> Mapping[str, Any] | Failure:
        try:
            return failure_of(decision, self._masked) or decision
        except ValueError as error:
            return Failure(f"{INVALID}: {error}", "-", "", lasting=False, comes_again=True)

    def _repeated(
        self, talk: Talk, decision: Mapping[str, Any] | Failure, began: datetime
    ) -> Failure | None:
        """Repeat a worker's decision with the leader's talk."""
        if isinstance(decision, Failure):
            return decision
        replay = Replay(talk, began=began, now=self._now)
        replay.carry_out(decision.get("actions"), decision.get("data"))
        return None


def _handler_of(rule: Rule) -> RemoteHandler:
    assert isinstance(rule.handler, RemoteHandler), "the rules are a worker's"
    return rule.handler
