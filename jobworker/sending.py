"""One send on its way: waiting at the gate, written down as tried, called, settled."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from jobworker.client import answer_or_error
from jobworker.conversations import Conversations
from jobworker.deadletters import DeadLetters, of_send
from jobworker.delivery import Answer, Ending, Outcome, ReplyUnknown, Send, Way, judge, way_of
from jobworker.errors import LineError, OutcomeUnknown
from jobworker.events import since_ms
from jobworker.gate import Gate
from recvq.errors import StoreUnavailable
from recvq.pause import pause_seconds

log = logging.getLogger(__name__)

PATHS = {
    Way.REPLY: "/v2/bot/message/reply",
    Way.PUSH: "/v2/bot/message/push",
    Way.MULTICAST: "/v2/bot/message/multicast",
}
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 60.0
STORE_PAUSE_SECONDS = 5.0


@dataclass(frozen=True)
class Tools:
    """What an outbox and its sends work with."""

    conversations: Conversations
    deadletters: DeadLetters
    gate: Gate
    call: Callable[..., Any]
    """Posts to LINE: `call(path, body, retry_key=…, **context) -> Answer`, or raises LineError."""
    step: Callable[[Callable[[], None]], None]
    later: Callable[[float, Callable[[], None]], None]
    reply_unknown: ReplyUnknown


class Sending:
    """The first send of an outbox as an entry of the gate (see `jobworker.gate.Entry`)."""

    def __init__(
        self,
        tools: Tools,
        conversation_id: str,
        send: Send,
        deadline: float,
        *,
        finished: Callable[[], None],
    ) -> None:
        self.send = send
        self.deadline = deadline
        self._tools = tools
        self._conversation_id = conversation_id
        self._finished = finished
        self._at_gate = False
        self._entered = 0.0
        self._calls = 0
        self._failures = 0
        self._way = send.way
        self._was_tried = False
        # Written down as tried, but the gate did not let it call.
        self._uncalled = False
        self._started = send.at
        self._answer: Answer | LineError = OutcomeUnknown("not called")

    def begin(self) -> None:
        """It is the first of its outbox, or its pause is over: wait for a turn."""
        self._at_gate = True
        self._entered = time.monotonic()
        self._tools.gate.enter(self)

    def hurry(self) -> None:
        """Its deadline became earlier."""
        if self._at_gate:
            self._tools.gate.enter(self)

    # The gate's side.

    def prepare(self) -> bool:
        """Choose the way and write the try down, before anything leaves the house."""
        if not self._at_gate:
            return False
        if self._uncalled:
            self._uncalled = False
            self.send = self.send.refused()
        now = datetime.now(UTC)
        way = way_of(self.send, now)
        if way is None:
            self._leave_gate(lambda: self._bury("too old to be sent once"))
            return False
        self._was_tried = self.send.tried_at is not None
        if not self._was_tried and not self._note(self.send.tried(way, now)):
            return False
        self._way = way
        return True

    def _note(self, tried: Send) -> bool:
        """Write the try down; False if this is not the moment to call."""
        try:
            pending = self._tools.conversations.note_try(self._conversation_id, tried.as_document())
        except StoreUnavailable as error:
            log.warning("try not written down, waiting id=%s error=%s", tried.id, error)
            # Nothing was called, so it stays fresh here; a successor may see it as tried, and
            # then takes the careful road for nothing.
            self._leave_gate(lambda: self._tools.later(self._store_pause(), self.begin))
            return False
        if not pending:
            log.info("send is no longer pending id=%s", tried.id)
            self._leave_gate(self._finished)
            return False
        self.send = tried
        self._uncalled = True
        return True

    def _leave_gate(self, then: Callable[[], None]) -> None:
        self._at_gate = False
        self._tools.step(then)

    def call(self) -> None:
        """The one call, under the gate."""
        self._at_gate = self._uncalled = False
        self._calls += 1
        self._started = datetime.now(UTC)
        log.debug(
            "sending id=%s way=%s wait_ms=%.1f since_accept_ms=%.1f",
            self.send.id,
            self._way.value,
            (time.monotonic() - self._entered) * 1000,
            since_ms(self.send.token_from or self.send.at),
        )
        self._answer = answer_or_error(self._post)

    def _post(self) -> Answer:
        send, way = self.send, self._way
        body: dict[str, Any] = {"messages": send.messages}
        if way is Way.REPLY:
            body["replyToken"] = send.token
        else:
            body["to"] = send.to
        answer: Answer = self._tools.call(
            PATHS[way],
            body,
            retry_key=None if way is Way.REPLY else send.retry_key,
            eventId=send.event_id,
            key=self._conversation_id.partition("/")[2],
            attempt=self._calls,
        )
        return answer

    # What follows.

    def after(self) -> None:
        """Settle the answer in the outbox."""
        outcome = judge(
            self.send,
            self._way,
            self._answer,
            was_tried=self._was_tried,
            started=self._started,
            reply_unknown=self._tools.reply_unknown,
        )
        if outcome.unproved:
            log.warning("reply of unknown outcome, not provable id=%s", self.send.id)
        if outcome.ending is Ending.AGAIN:
            self._again(outcome)
        elif outcome.ending is Ending.DEAD:
            self._bury(outcome.cause)
        else:
            self._remove()

    def _again(self, outcome: Outcome) -> None:
        self._failures += 1
        if not self._rewrite(outcome.send):
            self._later(lambda: self._again(outcome))
            return
        pause = outcome.wait_seconds
        if pause is None:
            pause = pause_seconds(
                self._failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS
            )
        if pause:
            log.warning(
                "send not accepted, trying again id=%s answer=%s seconds=%.1f",
                self.send.id,
                _told(self._answer),
                pause,
            )
            self._tools.later(pause, self.begin)
        else:
            self.begin()

    def _rewrite(self, changed: Send) -> bool:
        """Make durable what the answer changed of the try; False if it is not known to be."""
        if changed != self.send:
            try:
                self._tools.conversations.note_try(self._conversation_id, changed.as_document())
            except StoreUnavailable as error:
                log.warning("answer not written down, waiting id=%s error=%s", changed.id, error)
                return False
            self.send = changed
        return True

    def _bury(self, cause: str) -> None:
        """Give it up: a dead letter first, then out of the outbox, so that one of them stays."""
        letter = of_send(self.send.as_document(), cause=cause, attempts=self._calls)
        try:
            self._tools.deadletters.write(letter)
        except StoreUnavailable as error:
            log.warning("dead letter not written, trying again error=%s", error)
            self._later(lambda: self._bury(cause))
            return
        told = _told(self._answer)
        log.error("send given up id=%s cause=%s answer=%s", self.send.id, cause, told)
        self._remove()

    def _remove(self) -> None:
        try:
            self._tools.conversations.remove(self._conversation_id, self.send.id)
        except StoreUnavailable as error:
            log.warning("send not removed, trying again id=%s error=%s", self.send.id, error)
            self._later(self._remove)
            return
        self._finished()

    def _later(self, step: Callable[[], None]) -> None:
        """Have a thread do it after a pause, since MongoDB did not confirm."""
        self._tools.later(self._store_pause(), lambda: self._tools.step(step))

    def _store_pause(self) -> float:
        self._failures += 1
        return pause_seconds(self._failures, most=STORE_PAUSE_SECONDS)


def _told(answer: Answer | LineError) -> str:
    """What LINE said, for a log line: a status or the kind of failure, never a text."""
    return str(answer.status) if isinstance(answer, Answer) else f"{type(answer).__name__}"
