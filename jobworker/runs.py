"""One run of a job: its row in `jobs`, its counts, and whether a failed handler is tried again.

A row names the event, times, the outcome and the type of an error, never what people wrote.
`Failure` decides between another try after a pause and a dead letter.
"""

from __future__ import annotations

import logging
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.collection import Collection

from jobworker.bot.bot import Profiles
from jobworker.effects import of_event
from jobworker.errors import BotError, GateClosed, LineAway, PermanentError, TransientError
from jobworker.handler_call import HandlerContext
from jobworker.metrics import WorkerMetrics
from jobworker.record.conversations import Decision
from jobworker.row_log import RowLog
from jobworker.sending.send import next_try_words
from linedesk.contract import GiveUp, JobResult
from linedesk.store.documents import Document, name_of
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.runs import RunRecord

# Of events that came to nothing so many wait at most to be written: at a flood of thousands a
# second their rows would cost a tenth of the machine, and overwrite within minutes what tells more.
MOST_PLAIN = 500
TYPE_CHARACTERS = 40

UNHEARD = "unheard"
FAILED = "failed"
TIMEOUT = "timeout"
AGAIN = "again"


@dataclass
class JobMemo:
    """What the worker remembers of a job between its runs."""

    first_at: datetime | None = None
    """When the handler was tried first."""
    tries: int = 0
    """How often the handler was called."""
    failures: int = 0
    store_failures: int = 0
    checked: bool = False
    profile: Document | None = None
    profile_asked: bool = False
    learns: Profiles = False
    """Which names are to be asked for once this is recorded."""
    forgets: bool = False
    decision: Decision | None = None
    doing: HandlerContext | None = None
    """The last call of the handler."""
    lap: JobRun | None = None
    """The run that is under way, or was last."""

    @property
    def has_sent(self) -> bool:
        """Whether the handler has sent something by itself, which no record tells of."""
        return self.doing is not None and self.doing.has_sent


class JobRun:
    """One run, from its start on a thread."""

    __slots__ = (
        *("at", "began", "error", "handler_began", "handler_seconds"),
        *("is_cut_off", "outcome", "thread"),
    )

    def __init__(self) -> None:
        self.at = datetime.now(UTC)
        self.began = time.monotonic()
        self.thread = threading.current_thread().name
        # None while the handler was not called, or has not ended.
        self.handler_began: float | None = None
        self.handler_seconds: float | None = None
        self.is_cut_off = False
        # Where it is another than the verdict tells.
        self.outcome: str | None = None
        self.error: str | None = None

    def begin_handler(self) -> None:
        """The handler is called now."""
        self.handler_began = time.monotonic()

    def end_handler(self) -> None:
        """It has returned or raised."""
        if self.handler_began is not None:
            self.handler_seconds = time.monotonic() - self.handler_began


class Runs:
    """Counts and notes the runs of all jobs."""

    def __init__(self, collection: Collection[Any], figures: WorkerMetrics) -> None:
        self._figures = figures
        self._unwritten = figures.unwritten_rows["jobs"].inc
        self.rows = RowLog(collection, unwritten=self._unwritten)

    def waited(self, document: Document, at: datetime) -> None:
        """An event's handler starts for the first time."""
        seconds = (at - document[ACCEPT_TIME]).total_seconds()
        self._figures.wait_seconds.observe(max(0.0, seconds))

    def ended(self, document: Document, run: JobMemo, lap: JobRun, verdict: JobResult) -> None:
        """A run has ended; one that neither called the handler nor decided is not worth a row."""
        figures = self._figures
        if lap.handler_seconds is not None:
            figures.handler_seconds.observe(lap.handler_seconds)
        if lap.outcome == FAILED:
            figures.failed["error"].inc()
        if verdict is not JobResult.DEFERRED:
            figures.decided[UNHEARD if lap.outcome == UNHEARD else verdict.value].inc()
        elif lap.handler_began is None and lap.outcome is None:
            return
        outcome = lap.outcome or (AGAIN if verdict is JobResult.DEFERRED else verdict.value)
        if outcome == JobResult.DONE.value and self.rows.waiting >= MOST_PLAIN:
            self._unwritten()
            return
        recorded = run.decision if verdict is JobResult.RECORDED else None
        effects = len(recorded.effects) if recorded is not None else 0
        self._add(document, run, lap, outcome, effects)

    def abandoned(self, document: Document, run: JobMemo) -> None:
        """The handler of the last run was given up; whatever it comes to is not told.

        Harmless a second time, and where the last run called no handler.
        """
        lap = run.lap
        if lap is None or lap.handler_began is None or lap.is_cut_off:
            return
        lap.is_cut_off = True
        lap.end_handler()
        self._figures.failed[TIMEOUT].inc()
        self._figures.handler_seconds.observe(lap.handler_seconds or 0.0)
        self._add(document, run, lap, TIMEOUT, 0)

    def _add(
        self, document: Document, run: JobMemo, lap: JobRun, outcome: str, effects: int
    ) -> None:
        waited = lap.at - document[ACCEPT_TIME]
        record = RunRecord(
            at=lap.at,
            ms=round((time.monotonic() - lap.began) * 1000, 1),
            event_id=name_of(document),
            channel=document["channel"],
            key=document["key"],
            type=_type_of(document),
            waited_ms=round(max(waited, timedelta(0)).total_seconds() * 1000, 1),
            attempt=max(run.tries, 1),
            outcome=outcome,
            effects=effects,
            error=lap.error,
            thread=lap.thread,
        )
        self.rows.add(record.to_document())


def _type_of(document: Document) -> str | None:
    type_ = document["event"].get("type")
    return type_[:TYPE_CHARACTERS] if isinstance(type_, str) else None


# Why a job is parked, for `Job.because`.

FETCHING = "fetching the sender's profile"
FULL = "its outbox is full"


def failed_words(failures: int, seconds: float) -> str:
    """So many tries of the handler failed, and there is another one in so many seconds."""
    times = "once" if failures == 1 else f"{failures} times"
    return next_try_words(f"the handler failed {times}", seconds)


def undecided_words(error: Exception, run: JobMemo, seconds: float) -> str:
    """MongoDB or the gate did not let the job be decided; never what the error says."""
    if isinstance(error, LineAway):
        what = "LINE is not called for now"
    elif isinstance(error, GateClosed):
        what = "its handler got no turn at the gate"
    elif run.decision is not None:
        what = "MongoDB did not take the record"
    else:
        what = "MongoDB did not answer"
    return next_try_words(what, seconds)


log = logging.getLogger(__name__)

# A handler is not tried beyond this since its first try: nobody waits for the answer any more,
# and all that the user wrote since then waits behind it.
MOST_TRYING_SECONDS = 6 * 3600.0
# A fault of LINE's data host, or a long video, is to cost no photo; but all that its sender wrote
# since then waits behind it.
PASSING_SECONDS = 600.0
AFTER_A_SEND = ", after it had called LINE itself: another try would send twice"


@dataclass(frozen=True)
class Failure:
    """Why a try failed. `what` and `place` go to the log, so they never quote a user."""

    what: str
    place: str
    traceback: str
    lasting: bool
    """Whether each further try would fail in the same way."""
    passing: bool = False
    """Whether it is over in a while, and no fault of the handler's."""

    def ends_it(self, *, failures: int, tries: int, first_at: datetime) -> bool:
        """Whether the handler is given up after so many failed tries."""
        if self.lasting or (failures >= tries and not self.passing):
            return True
        most_seconds = PASSING_SECONDS if self.passing else MOST_TRYING_SECONDS
        return datetime.now(UTC) - first_at > timedelta(seconds=most_seconds)

    def decision(self, document: Document, *, attempts: int, first_at: datetime) -> Decision:
        """The decision to give the event up after so many tries."""
        letter = of_event(
            document,
            cause=f"handler: {self.what}",
            traceback=self.traceback,
            attempts=attempts,
            first_at=first_at,
        )
        return Decision({}, [letter])


def given_up(document: Document, given_up_for: GiveUp, *, has_sent: bool = False) -> Decision:
    """The decision to give a condemned event up, without another run of its handler."""
    cause = given_up_for.cause + has_sent * AFTER_A_SEND
    log.error(
        "given up event_id=%s attempts=%d cause=%s", name_of(document), given_up_for.attempts, cause
    )
    letter = of_event(
        document,
        cause=cause,
        traceback=given_up_for.stack,
        attempts=given_up_for.attempts,
        first_at=given_up_for.first_at,
    )
    return Decision({}, [letter])


def raised(
    error: BaseException, *, has_sent: bool = False, masked: Callable[[str], str] = str
) -> Failure:
    """The handler raised. What LINE would refuse it decides again, so that is tried once; so is
    one that has sent something by itself, since another try would send it twice.

    `masked` takes secrets out of what the error quotes: the traceback is stored and exported.
    """
    return Failure(
        what=_name(error) + has_sent * AFTER_A_SEND,
        place=_place(error),
        traceback=masked("".join(traceback.format_exception(error))),
        lasting=has_sent or isinstance(error, PermanentError),
        passing=isinstance(error, TransientError),
    )


def did_not_return(stack: str, *, has_sent: bool = False) -> Failure:
    """The handler was abandoned where `stack` shows."""
    what = "did not return" + has_sent * AFTER_A_SEND
    return Failure(what=what, place="-", traceback=stack, lasting=has_sent)


def _name(error: BaseException) -> str:
    """Its class, with the reason of a bot's mistake; never what it says."""
    reason = error.reason if isinstance(error, BotError) else ""
    return f"{type(error).__name__}: {reason}" if reason else type(error).__name__


def _place(error: BaseException) -> str:
    """Where it was raised, as file:line; never what it says, which may hold a user's words."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "-"
