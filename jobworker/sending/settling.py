"""What follows a try of a send: again, done, or given up, each durable before the next step."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from jobworker.effects import Send, of_effect
from jobworker.errors import LineError, NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.gate import Gate
from jobworker.line.rate_limits import RateLimits
from jobworker.metrics import WorkerMetrics
from jobworker.record.conversations import Conversations
from jobworker.record.dead_letters import DeadLetters
from jobworker.record.schedule import Schedule
from jobworker.sending.delivery import (
    MOST_UNANSWERED,
    QUOTA,
    ReplyUnknown,
    SendOutcome,
    SendVerdict,
)
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, WriteRefused

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
STORE_PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class Tools:
    """What an outbox and its sends work with."""

    conversations: Conversations
    deadletters: DeadLetters
    schedule: Schedule
    gate: Gate
    holdback: RateLimits
    call: Callable[..., Any]
    """Posts to LINE: `call(path, body, retry_key=…, **context) -> Answer`, or raises LineError."""
    step: Callable[[Callable[[], None]], None]
    later: Callable[[float, Callable[[], None]], None]
    reply_unknown: ReplyUnknown
    figures: WorkerMetrics = field(default_factory=WorkerMetrics)
    quota_met: Callable[[], None] = lambda: None
    """Told of a send that LINE refused since the month's messages are used up."""


class Settling(ABC):
    """A send whose tries are settled in its outbox.

    `failed` is told of each try that has to be made again, `finished` of the end.
    """

    def __init__(
        self,
        tools: Tools,
        conversation_id: str,
        send: Send,
        *,
        failed: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        self.send = send
        self.because: str | None = None
        """Why it rests, in words for a person; None while it is under way or at the gate."""
        self._tools = tools
        self._conversation_id = conversation_id
        self._failed = failed
        self._finished = finished
        self._calls = 0
        self._failures = 0
        self._unanswered = 0
        self._answer: LineAnswer | LineError = OutcomeUnknown("not called")

    @abstractmethod
    def begin(self) -> None:
        """It is the first of its outbox, or its pause is over: wait for a turn."""

    @abstractmethod
    def _rest(self, seconds: float) -> None:
        """Begin again after a pause."""

    def _settle(self, outcome: SendOutcome) -> None:
        if outcome.unproved:
            log.warning("reply of unknown outcome, not provable id=%s", self.send.id)
            self._tools.figures.unproved_replies.inc()
        if outcome.cause == QUOTA:
            self._tools.quota_met()
        if outcome.ending is SendVerdict.AGAIN:
            self._again(outcome)
        elif outcome.ending is SendVerdict.DEAD:
            # The letter tells whether a try is of unknown outcome: a replay goes by it.
            self.send = outcome.send
            self._bury(outcome.cause)
        else:
            self._remove()

    def _again(self, outcome: SendOutcome) -> None:
        # guard: refusal-is-durable-first
        if (error := self._rewrite(outcome.send)) is not None:
            self._later(lambda: self._again(outcome), error)
            return
        self._unanswered += outcome.unanswered
        if self._unanswered >= MOST_UNANSWERED:
            self._bury(f"no verdict of LINE's in {self._unanswered} tries")
            return
        self._failures += 1
        self._tools.figures.send_retries.inc()
        self._failed()
        pause = outcome.wait_seconds
        if pause is None:
            pause = pause_seconds(
                self._failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
            )
        if pause:
            log.warning(
                "send not accepted, trying again id=%s answer=%s seconds=%.1f",
                self.send.id,
                told_of(self._answer),
                pause,
            )
            self.because = next_try_words(words_of(self._answer), pause)
            self._rest(pause)
        else:
            self.begin()

    def _rewrite(self, changed: Send) -> StoreUnavailable | None:
        """Make durable what the answer changed of the try; why it is not known to be."""
        if changed != self.send:
            try:
                self._tools.conversations.note_try(self._conversation_id, changed.as_document())
            except StoreUnavailable as error:
                log.warning("answer not written down, waiting id=%s error=%s", changed.id, error)
                return error
            self.send = changed
        return None

    def _bury(self, cause: str) -> None:
        """Give it up: no successor tries it again from here on, whoever dies before the end."""
        log.error(
            "send given up id=%s cause=%s answer=%s", self.send.id, cause, told_of(self._answer)
        )
        letter = of_effect(
            self.send.as_document(), self._conversation_id, cause=cause, attempts=self._calls
        )
        self._write_letter(letter)

    def _write_letter(self, letter: Document) -> None:
        """The outbox has it as a letter before others can see and replay it: else a successor
        might send what was replayed as well.
        """
        try:
            # guard: letter-in-the-outbox-first
            self._tools.conversations.give_up(self._conversation_id, letter)
            self._tools.deadletters.write(letter)
        except StoreUnavailable as error:
            log.warning("dead letter not written, trying again error=%s", error)
            self._later(lambda: self._write_letter(letter), error)
            return
        self._remove()

    def _remove(self) -> None:
        try:
            self._tools.conversations.remove(self._conversation_id, self.send.id)
        except StoreUnavailable as error:
            log.warning("send not removed, trying again id=%s error=%s", self.send.id, error)
            self._later(self._remove, error)
            return
        self._finished()

    def _later(self, step: Callable[[], None], error: StoreUnavailable) -> None:
        """Have a thread do it after a pause, since MongoDB did not confirm."""
        self._tools.later(self._store_pause(error), lambda: self._tools.step(step))

    def _store_pause(self, error: StoreUnavailable) -> float:
        self._failures += 1
        refused = isinstance(error, WriteRefused)
        self.because = str(error) if refused else "MongoDB did not confirm in time"
        return pause_seconds(self._failures, most=STORE_PAUSE_SECONDS)


def told_of(answer: LineAnswer | LineError) -> str:
    """What LINE said, for a log line: a status or the kind of failure, never a text."""
    return str(answer.status) if isinstance(answer, LineAnswer) else f"{type(answer).__name__}"


def words_of(answer: LineAnswer | LineError) -> str:
    """What LINE said, for a person."""
    if isinstance(answer, LineAnswer):
        return f"LINE answered {answer.status}"
    return "no connection to LINE" if isinstance(answer, NotSent) else "LINE did not answer"


def next_try_words(why: str, seconds: float) -> str:
    """Why something rests, and until when, in UTC as in the log."""
    return f"{why}, next try at {datetime.now(UTC) + timedelta(seconds=seconds):%H:%M:%S} UTC"
