"""One send on its way: waiting at the gate, written down as tried, called."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any

import pymongo

from jobworker.effects import Send, SendMethod
from jobworker.line.answer import LineAnswer
from jobworker.line.client import answer_or_error
from jobworker.metrics import since_ms
from jobworker.sending.delivery import expired, judge, way_of
from jobworker.sending.settling import Settling, Tools, next_try_words
from linedesk.runtime.clock import boottime
from linedesk.store.errors import StoreUnavailable, WriteRefused

log = logging.getLogger(__name__)

# For writing a try down, since the gate is held for it; usually it takes a few milliseconds.
NOTE_SECONDS = 2.0


class Stage(Enum):
    """Where a send is, as far as its own steps go."""

    AWAY = "away"
    """With a thread; a place left over at the gate counts for nothing."""
    RESTING = "resting"
    """Waiting for the clock, and otherwise as while away."""
    AT_GATE = "at the gate"
    CHOSEN = "chosen"
    """The gate has its turn come, or had it come in vain."""
    NOTED = "noted"
    """Chosen and written down as tried, but not called yet."""


class Sending(Settling):
    """The first send of an outbox as an entry of the gate (see `jobworker.line.entry.GateEntry`).

    It waits there as long as LINE must not be called.
    """

    patient = True

    def __init__(
        self,
        tools: Tools,
        conversation_id: str,
        send: Send,
        deadline: float,
        *,
        failed: Callable[[], None],
        finished: Callable[[], None],
    ) -> None:
        super().__init__(tools, conversation_id, send, failed=failed, finished=finished)
        self.deadline = deadline
        # Held for a change of the stage by whoever takes the send up; only one of them can.
        self._lock = threading.Lock()
        self._stage = Stage.AWAY
        self._given_up: str | None = None
        self._entered = 0.0
        self._way = send.way
        # Whether an earlier try is of unknown outcome.
        self._was_tried = False
        self._started = send.at
        self._made = datetime.now(UTC), boottime()

    def begin(self) -> None:
        """It is the first of its outbox, or its pause is over: wait for a turn."""
        self._entered = time.monotonic()
        self.because = None
        if self._is_left_alone(Stage.AT_GATE):
            self._tools.gate.enter(self)

    def hurry(self) -> None:
        """Its deadline became earlier."""
        if self._stage not in (Stage.AWAY, Stage.RESTING):
            self._tools.gate.enter(self, since=self._entered)

    def give_up(self, cause: str) -> None:
        """Have it become a dead letter: at once if nobody is at it, else when its turn is over."""
        with self._lock:
            if self._given_up is not None:
                return
            self._given_up = cause
            # guard: call-under-way-ends-first -> waits = True
            waits = self._stage in (Stage.AT_GATE, Stage.RESTING)
            if waits:
                self._stage = Stage.AWAY
        if waits:
            self._tools.step(lambda: self._bury(cause))

    def _is_left_alone(self, stage: Stage) -> bool:
        """Enter a stage in which nobody is at it; False where it was given up meanwhile."""
        with self._lock:
            cause = self._given_up
            self._stage = Stage.AWAY if cause is not None else stage
        if cause is not None:
            self._tools.step(lambda: self._bury(cause))
        return cause is None

    def _rest(self, seconds: float) -> None:
        if self._is_left_alone(Stage.RESTING):
            self._tools.later(seconds, self._wake)

    def _wake(self) -> None:
        with self._lock:
            if self._stage is not Stage.RESTING:
                # It was given up, and is with a thread, or gone.
                return
            self._stage = Stage.AWAY
        self.begin()

    # The gate's side.

    def sent_away(self) -> None:
        """The process stops: a try that was written down and not made is struck out again, or a
        successor would take it for one of unknown outcome.
        """
        # guard: stop-strikes-out
        if self._stage is Stage.NOTED:
            self._stage = Stage.CHOSEN
            with pymongo.timeout(NOTE_SECONDS):
                self._rewrite(self.send.refused())

    def prepare(self) -> bool:
        """Choose the way and write the try down, before anything leaves the house."""
        with self._lock:
            before = self._stage
            # guard: given-up-before-its-turn
            if before in (Stage.AWAY, Stage.RESTING):
                return False
            self._stage = Stage.CHOSEN
        if before is Stage.NOTED:
            # The gate did not let it call, so the try that stands there is none.
            self.send = self.send.refused()
        now = self._now()
        if cause := self._given_up or expired(self.send, now):
            self._leave_gate(lambda: self._bury(cause))
            return False
        way = way_of(self.send, now)
        if seconds := self._held_seconds(way, now):
            self.because = next_try_words("LINE answered 429 for all such calls", seconds)
            self._rest(seconds)
            return False
        self._was_tried = self.send.tried_at is not None
        if not self._was_tried and not self._note(self.send.tried(way, now)):
            return False
        self._way = way
        return True

    def _held_seconds(self, way: SendMethod, now: datetime) -> float:
        """How long its endpoint is held back, or until a reply travels as push instead."""
        seconds = self._tools.holdback.seconds(way.path)
        if (
            way is SendMethod.REPLY
            and self.send.tried_at is None
            and self.send.token_until is not None
        ):
            return min(seconds, (self.send.token_until - now).total_seconds())
        return seconds

    def _note(self, tried: Send) -> bool:
        """Write the try down; False if this is not the moment to call."""
        note, id_ = self._tools.conversations.note_try, self._conversation_id
        try:
            with pymongo.timeout(NOTE_SECONDS):
                pending = note(id_, tried.as_document())
        except WriteRefused as error:
            # No call without its note; as a dead letter it leaves room for those behind it.
            cause = str(error)
            self._leave_gate(lambda: self._bury(cause))
            return False
        except StoreUnavailable as error:
            log.warning("try not written down, waiting id=%s error=%s", tried.id, error)
            # Nothing was called, so it stays fresh here; a successor may see it as tried, and
            # then takes the careful road for nothing.
            pause = self._store_pause(error)
            self._leave_gate(lambda: self._rest(pause))
            return False
        if not pending:
            log.info("send is no longer pending id=%s", tried.id)
            self._leave_gate(self._finished)
            return False
        self.send = tried
        self._stage = Stage.NOTED
        return True

    def _now(self) -> datetime:
        """The time by a clock that nobody sets: were it set back, a token that has run out would
        look good, and LINE's refusal of it like a proof that an earlier try has used it.
        """
        at, since = self._made
        # guard: time-since-boot -> return datetime.now(UTC)
        return at + timedelta(seconds=boottime() - since)

    def _leave_gate(self, then: Callable[[], None]) -> None:
        self._stage = Stage.AWAY
        self._tools.step(then)

    def call(self) -> None:
        """The one call, under the gate."""
        self._stage = Stage.AWAY
        self._calls += 1
        self._started = self._now()
        log.debug(
            "sending id=%s way=%s wait_ms=%.1f since_accept_ms=%.1f",
            self.send.id,
            self._way.value,
            (time.monotonic() - self._entered) * 1000,
            since_ms(self.send.token_from or self.send.at),
        )
        self._answer = answer_or_error(self._post)
        # Before the gate is free for the next to the same endpoint.
        self._tools.holdback.note(self._way.path, self._answer)

    def _post(self) -> LineAnswer:
        send, way = self.send, self._way
        body: dict[str, Any] = {"messages": send.messages}
        if way is SendMethod.REPLY:
            body["replyToken"] = send.token
        else:
            body["to"] = send.to
        answer: LineAnswer = self._tools.call(
            way.path,
            body,
            retry_key=None if way is SendMethod.REPLY else send.retry_key,
            eventId=send.event_id,
            key=self._conversation_id.partition("/")[2],
            attempt=self._calls,
        )
        return answer

    def after(self) -> None:
        """Settle the answer in the outbox."""
        self._settle(
            judge(
                self.send,
                self._way,
                self._answer,
                was_tried=self._was_tried,
                started=self._started,
                reply_unknown=self._tools.reply_unknown,
            )
        )
