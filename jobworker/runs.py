"""One run of a job: its outcome for the metrics, and its row in `jobs`.

A row names the event, times, the outcome and the type of an error, never a user's text.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pymongo.collection import Collection

from dispatcher.conversations.mailbox import Condemned, Job, JobResult, Wait
from jobworker.async_handlers import Awaited
from jobworker.bot.bot import Profiles, Rule
from jobworker.bot.gather import Gathering, answered
from jobworker.handler_context import HandlerContext
from jobworker.metrics import WorkerMetrics
from jobworker.record.conversations import Decision, Recording
from jobworker.record.edits import HandledEdits
from jobworker.row_log import RowLog
from jobworker.sending.button import OfferedButton
from linedesk.store.documents import Document, name_of, text_of
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID
from linedesk.store.records.runs import GATHERED_WITH, PLACE, WAITED_MS

log = logging.getLogger(__name__)

# At most this many rows of events without a result wait to be written. In a flood of thousands a
# second, their rows would cost a tenth of the machine and overwrite more useful rows within
# minutes.
MOST_PLAIN = 500
TYPE_CHARACTERS = 40

UNHEARD = "unheard"
NO_HANDLER, UNREADABLE = "no_handler", "unreadable"
FAILED = "failed"
TIMEOUT = "timeout"
AGAIN = "again"
GATHERED = "gathered"
OWN_DECISIONS = (JobResult.RECORDED, JobResult.DONE)


@dataclass(slots=True)
class JobRun:
    """One run, from its start on a thread."""

    at: datetime = field(default_factory=lambda: datetime.now(UTC))
    began: float = field(default_factory=time.monotonic)
    thread: str = field(default_factory=lambda: threading.current_thread().name)
    handler_began: float | None = None
    """None while the handler was not called; it also is if no worker process was free for it."""
    handler_seconds: float | None = None
    is_cut_off: bool = False
    outcome: str | None = None
    """If it differs from the verdict's."""
    error: str | None = None
    place: str | None = None
    """File and line where it was raised."""

    def end_handler(self) -> None:
        """Note that it has returned or raised an error."""
        if self.handler_began is not None:
            self.handler_seconds = time.monotonic() - self.handler_began


@dataclass
class JobMemo:
    """The worker's state of a job between its runs."""

    decision: Decision | None = None
    recording: Recording | None = None
    """Its record, if the outcome is not known yet."""
    profile: Document | None = None
    profile_asked: bool = False
    rule: Rule | None = None
    """The rule that the last run found."""
    is_unreadable: bool = False
    """Whether line-bot-sdk cannot read the event."""
    learns: Profiles = False
    """Which names to fetch once this is recorded."""
    forgets: bool = False
    gathering: Gathering | None = None
    """The state of its gathering, if its handler gets several messages."""
    gathered: Sequence[Document] = ()
    """The messages that are decided together, its own first; empty until they are known."""
    edits: HandledEdits = field(default_factory=HandledEdits)
    """Of the messages that the handler gets."""
    heard: Sequence[Document] = ()
    """Those of them that the handler gets: the others were taken back."""
    found_applied: frozenset[str] = frozenset()
    """Names found applied by another process's record."""
    first_at: datetime | None = None
    """When the handler was first tried."""
    tries: int = 0
    """How many times the handler was called."""
    failures: int = 0
    passing_failures: int = 0
    """Those of them that are not the handler's fault and do not count as tries."""
    passing_at: datetime | None = None
    """Since when it has failed only in this way."""
    bugs: int = 0
    """Those of them that come again (`jobworker.errors.COME_AGAIN`)."""
    given_up: Condemned | None = None
    """Why its handler is not tried again; `@bot.failed` may still have to decide."""
    store_failures: int = 0
    away: int = 0
    """How many times in a row no worker process was free for it."""
    checked: bool = False
    """Whether no predecessor has decided it."""
    call: HandlerContext | None = None
    """The last call of the handler, or of `@bot.failed`."""
    had_sent: bool = False
    """Whether a call before that one has sent by itself."""
    button: OfferedButton | None = None
    """The button shown instead of an answer that is too late for the event's token."""
    awaited: Awaited | None = None
    """The call of the handler outside the pool, until a run takes its result."""
    run: JobRun = field(default_factory=JobRun)
    """The run under way, or the last one."""
    lost_by: frozenset[str] = frozenset()
    """Worker processes that had it and lost it."""

    def decided_with(self, document: Document) -> Sequence[Document]:
        """Return the documents decided together with the event's own, which is the first."""
        return self.gathered or (document,)

    def heard_with(self, document: Document) -> Sequence[Document]:
        """Return those of them that the handler gets."""
        return self.heard if self.gathered else (document,)

    def begin_call(self, document: Document) -> HandlerContext:
        """Return the next call of the handler, or of `@bot.failed`."""
        self.had_sent = self.given_up is not None and self.has_sent
        self.call = HandlerContext(
            document,
            answered=answered(self.heard) if self.heard else None,
            number=self.failed_tries + 1,
            lost_by=self.lost_by,
        )
        return self.call

    def disband(self, job: Job) -> None:
        """Decide the event alone; the messages gathered with it are gathered again behind it."""
        if self.gathered:
            job.take_along(0)
            self.edits.times.clear()
        self.gathered, self.heard, self.gathering = (), (), None

    @property
    def failed_tries(self) -> int:
        """How many tries count as failed."""
        return self.failures - self.passing_failures

    @property
    def has_sent(self) -> bool:
        """Whether the handler has sent by itself, which no record shows."""
        return self.had_sent or (self.call is not None and self.call.has_sent)


class Runs:
    """Counts and records the runs of all jobs."""

    def __init__(self, collection: Collection[Any], figures: WorkerMetrics) -> None:
        self._figures = figures
        self._unwritten = figures.unwritten("jobs")
        self.rows = RowLog(collection, unwritten=self._unwritten)
        # What was logged about a kind of event. `setdefault` is atomic.
        self._told: dict[tuple[str, str], object] = {}

    def waited(self, document: Document, at: datetime) -> None:
        """Note that an event's handler starts for the first time."""
        seconds = (at - document[ACCEPT_TIME]).total_seconds()
        self._figures.observe("wait_seconds", max(0.0, seconds))

    def ended(self, document: Document, memo: JobMemo, verdict: JobResult | Wait) -> None:
        """Record a run that has ended; one without a handler's call and a decision gets no row."""
        figures, run = self._figures, memo.run
        if run.handler_seconds is not None:
            figures.observe("handler_seconds", run.handler_seconds)
        if run.outcome == FAILED:
            figures.add("failed_handlers", "error")
        if isinstance(verdict, Wait):
            has_run = run.handler_began is not None or run.outcome is not None
            if has_run and memo.awaited is None:
                self._add(document, memo, run.outcome or AGAIN)
            return
        count = max(1, len(memo.gathered))
        figures.add(
            "decided_events", UNHEARD if run.outcome == UNHEARD else verdict.value, by=count
        )
        outcome = run.outcome or verdict.value
        if memo.is_unreadable or outcome == NO_HANDLER:
            self._unhandled(document, UNREADABLE if memo.is_unreadable else NO_HANDLER)
        if outcome in (JobResult.DONE.value, NO_HANDLER) and self.rows.waiting >= MOST_PLAIN:
            self._unwritten(1)
            return
        recorded = memo.decision if verdict is JobResult.RECORDED else None
        effects = len(recorded.effects) if recorded is not None else 0
        self._add(document, memo, outcome, effects)
        of_heard = run.outcome or (GATHERED if verdict in OWN_DECISIONS else verdict.value)
        for one in memo.gathered[1:]:
            outcome = of_heard if one in memo.heard else UNHEARD
            self._add(one, memo, outcome, first=name_of(memo.gathered[0]))

    def _unhandled(self, document: Document, why: str) -> None:
        """Count an event that no handler takes or line-bot-sdk cannot read; log each kind once."""
        self._figures.add("unhandled_events", why)
        event, mark = document["event"], object()
        types = text_of(event, "type"), text_of(event, "message", "type")
        kind = "/".join(filter(None, types))[: 2 * TYPE_CHARACTERS]
        if self._told.setdefault((why, kind), mark) is mark:
            told = "unhandled kind of event kind=%s cause=%s event_id=%s"
            log.warning(told, kind, why, name_of(document))

    def abandoned(self, document: Document, memo: JobMemo) -> None:
        """Note that the last run's handler was abandoned; its later result is not reported.

        Harmless a second time, and if the last run called no handler.
        """
        run = memo.run
        if run.handler_began is None or run.is_cut_off:
            return
        run.is_cut_off = True
        run.end_handler()
        self._figures.add("failed_handlers", TIMEOUT)
        self._figures.observe("handler_seconds", run.handler_seconds or 0.0)
        self._add(document, memo, TIMEOUT)

    def _add(
        self,
        document: Document,
        memo: JobMemo,
        outcome: str,
        effects: int = 0,
        *,
        first: str | None = None,
    ) -> None:
        run, call = memo.run, memo.call
        waited = run.at - document[ACCEPT_TIME]
        row = {
            "at": run.at,
            "ms": round((time.monotonic() - run.began) * 1000, 1),
            EVENT_ID: name_of(document),
            "channel": document["channel"],
            "key": document["key"],
            "type": (text_of(document, "event", "type") or "")[:TYPE_CHARACTERS] or None,
            WAITED_MS: round(max(waited, timedelta(0)).total_seconds() * 1000, 1),
            "attempt": max(memo.tries, 1),
            "outcome": outcome,
            "effects": effects,
            "error": run.error,
            **({PLACE: run.place} if run.place else {}),
            **({UNREADABLE: True} if memo.is_unreadable else {}),
            "thread": run.thread if call is None or run.handler_began is None else call.thread,
        }
        self.rows.add(row if first is None else {**row, GATHERED_WITH: first})
