"""Decides whether a failed handler is tried again or its event becomes a dead letter."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from dispatcher.conversations.mailbox import GiveUp
from jobworker.bot.places import is_bots
from jobworker.effects import of_event
from jobworker.errors import BotError, PermanentError, TransientError
from jobworker.record.conversations import Decision
from linedesk.store.documents import Document
from linedesk.store.records.letters import HANDLER, Cause


@dataclass(frozen=True)
class RetryLimits:
    """How long a job waits before its next try, and for how long it is tried."""

    first_pause_seconds: float = 1.0
    """The pause before the second try of a handler; it grows with each further one."""
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

    def ends_it(
        self, *, failures: int, tries: int, first_at: datetime, limits: RetryLimits = LIMITS
    ) -> bool:
        """Whether the handler is given up after so many failed tries."""
        if self.lasting or (failures >= tries and not self.passing):
            return True
        most_seconds = limits.passing_seconds if self.passing else limits.trying_seconds
        return datetime.now(UTC) - first_at > timedelta(seconds=most_seconds)

    def give_up(self, *, attempts: int, first_at: datetime) -> GiveUp:
        """Return why its event is given up after so many tries."""
        cause = Cause(HANDLER, {"error": self.what}).after_a_send(self.has_sent)
        return GiveUp(cause, attempts, first_at, self.traceback)


def letters_of(documents: Iterable[Document], give_up: GiveUp) -> Decision:
    """Return the decision "a dead letter for each document"."""
    return Decision({}, [of_event(document, give_up) for document in documents])


def raised(
    error: BaseException, *, has_sent: bool = False, masked: Callable[[str], str] = str
) -> Failure:
    """Return the failure of a handler that raised an error.

    A decision that LINE would refuse is repeated by every try, so it is tried once. So is a handler
    that has sent by itself, since another try would send twice. `masked` removes secrets from the
    error's text: the traceback is stored and exported.
    """
    return Failure(
        what=_name(error),
        place=_place(error),
        traceback=masked("".join(traceback.format_exception(error))),
        lasting=has_sent or isinstance(error, PermanentError),
        passing=isinstance(error, TransientError),
        has_sent=has_sent,
    )


def did_not_return(stack: str, *, has_sent: bool = False) -> Failure:
    """Return the failure of a handler that was abandoned at `stack`."""
    return Failure("did_not_return", "-", stack, lasting=has_sent, has_sent=has_sent)


def _name(error: BaseException) -> str:
    """The error's class, with the reason of a bot's mistake; never its text."""
    reason = error.reason if isinstance(error, BotError) else ""
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _place(error: BaseException) -> str:
    """The deepest frame in the bot's own files, as file:line; never the error's text, which may
    quote a user.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if is_bots(one.filename)]
    return f"{(own or frames)[-1].filename}:{(own or frames)[-1].lineno}" if frames else "-"
