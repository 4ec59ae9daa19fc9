"""Decides whether a failed handler is tried again or its event becomes a dead letter."""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dispatcher.conversations.mailbox import Condemned
from jobworker import errors
from jobworker.bot.places import deepest
from jobworker.effects import of_event
from jobworker.record.conversations import Decision
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.documents import Document
from linedesk.store.records.letters import HANDLER, Cause


@dataclass(frozen=True)
class RetryLimits:
    """How long a job waits before its next try, and for how long it is tried."""

    backoff: Sequence[float] = (1.0, 10.0, 60.0, 180.0, 300.0)
    """Seconds before each further try after an error that may pass; the last one repeats."""
    quick_tries: int = 3
    """How often a handler is tried whose error comes again (`errors.COME_AGAIN`)."""
    first_pause_seconds: float = 1.0
    """The pause before the second of these, and while LINE is not ready; it grows with each."""
    longest_pause_seconds: float = 30.0
    store_pause_seconds: float = 5.0
    """The longest pause while MongoDB, the gate or a lack of workers delays the decision."""
    away_pause_seconds: float = 0.2
    """The pause while no worker process is free; it grows with each further check."""
    trying_seconds: float = 6 * 3600.0
    """A handler is not tried beyond this time since its first try: the answer would be too late,
    and all later messages of the user wait behind it.
    """
    passing_seconds: float = 600.0
    """The same for a failure of LINE's data host, or a long video, so that no photo is lost."""


LIMITS = RetryLimits()


@dataclass(frozen=True)
class Failure:
    """Why a try failed. `what`, a code or the class of an error, and `place` go to the log, so they
    never quote a user.
    """

    what: str
    place: str
    traceback: str
    lasting: bool
    """Whether each further try would fail in the same way."""
    passing: bool = False
    """Whether it is temporary and not the handler's fault."""
    has_sent: bool = False
    """Whether the handler had called LINE itself: another try would send twice."""
    comes_again: bool = False
    """Whether it is an error of the bot's code, which waiting would not help."""
    after: float | None = None
    """Seconds before the next try, if the handler asked for them (`Retry`)."""

    def ends_it(
        self, *, failures: int, tries: int, first_at: datetime, limits: RetryLimits = LIMITS
    ) -> bool:
        """Whether the handler is given up after so many failed tries."""
        most = self.most(tries, limits)
        if self.lasting or (failures >= most and not self.passing):
            return True
        most_seconds = limits.passing_seconds if self.passing else limits.trying_seconds
        return datetime.now(UTC) - first_at > timedelta(seconds=most_seconds)

    def most(self, tries: int, limits: RetryLimits = LIMITS) -> int:
        """How many of a handler's tries its error gets."""
        return min(tries, limits.quick_tries) if self.comes_again else tries

    def pause_seconds(
        self, *, failures: int, backoff: Sequence[float] = (), limits: RetryLimits = LIMITS
    ) -> float:
        """Return the pause after so many failed tries; `backoff` is the handler's own."""
        if self.after is not None:
            return min(max(0.0, self.after), limits.trying_seconds)
        if self.passing or self.comes_again:
            first, most = limits.first_pause_seconds, limits.longest_pause_seconds
            return pause_seconds(failures, first=first, most=most)
        pauses = backoff or limits.backoff
        return pauses[min(failures, len(pauses)) - 1] * random.uniform(0.9, 1.1)

    def give_up(self, *, attempts: int, first_at: datetime) -> Condemned:
        """Return why its event is given up after so many tries."""
        cause = Cause(HANDLER, {"error": self.what}).after_a_send(self.has_sent)
        return Condemned(cause, attempts, first_at, self.traceback)


class ConditionFailed(errors.WorkerError):
    """A filter's condition failed in a worker process."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.what)
        self.failure = failure


def letters_of(documents: Iterable[Document], give_up: Condemned) -> Decision:
    """Return the decision "a dead letter for each document"."""
    return Decision({}, [of_event(document, give_up) for document in documents])


def raised(
    error: BaseException, *, has_sent: bool = False, masked: Callable[[str], str] = str
) -> Failure:
    """Return the failure of a handler that raised an error.

    A handler that has sent by itself is not tried again, since that would send twice. `masked`
    removes secrets from the error's text: the traceback is stored and exported.
    """
    if isinstance(error, ConditionFailed):
        return error.failure
    return Failure(
        what=_name(error),
        place=deepest(traceback.extract_tb(error.__traceback__)),
        traceback=masked("".join(traceback.format_exception(error))),
        lasting=has_sent or isinstance(error, errors.PermanentError),
        passing=isinstance(error, errors.TransientError),
        has_sent=has_sent,
        comes_again=isinstance(error, errors.COME_AGAIN),
        after=error.after if isinstance(error, errors.Retry) else None,
    )


def did_not_return(stack: str, *, has_sent: bool = False) -> Failure:
    """Return the failure of a handler that was abandoned at `stack`."""
    return Failure("did_not_return", "-", stack, lasting=has_sent, has_sent=has_sent)


def _name(error: BaseException) -> str:
    """The error's class, with the reason that it has for operators; never its text."""
    reason = error.reason if isinstance(error, errors.BotError | errors.GiveUp) else ""
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__
