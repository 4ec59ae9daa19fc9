"""Carries out the same sends of many conversations in one call.

The conversation whose turn it is takes along those that wait with the same sends; none waits for
others. They are claimed in MongoDB before the call, and leave their outboxes after it
(`jobworker.record.batches`).
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any

from jobworker.effects import SendMethod
from jobworker.line.answer import LineAnswer
from jobworker.line.gate import Turn
from jobworker.line.gate_order import Ticket, TurnClass
from jobworker.line.quota import Quota
from jobworker.line.side_call import Action, Line
from jobworker.record.batches import Batches, ReadyBatch
from jobworker.sending.batch import Batch, company_of
from jobworker.sending.conversation_outbox import (
    Caller,
    CallState,
    ConversationOutbox,
    Go,
    MakeLetters,
    Moment,
    NextStep,
    Rest,
    SendLimits,
    told_of,
)
from jobworker.sending.verdict import QUOTA, CallOutcome, SendVerdict
from linedesk.runtime.clock import boottime
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

MULTICAST = SendMethod.MULTICAST.path


@dataclass(frozen=True)
class Boxes:
    """The outbox's conversations, and its functions for those that have left a batch."""

    lock: Lock
    waiting: Collection[ConversationOutbox]
    """Those that are not empty; under the lock."""
    do: Callable[[ConversationOutbox, NextStep | None], None]
    go_on: Callable[[Caller, NextStep | None], None]
    """The same for a caller that is not given up."""
    leave: Callable[[ConversationOutbox, Sequence[str]], None]
    """These sends have left the conversation's outbox."""
    gone: Callable[[str, Sequence[str]], None]
    """Under the lock: the same for a conversation that is not in memory yet."""
    make_letters: Callable[..., None]
    """Like the outbox's own: `(box, places, cause, unknown=…)`."""
    until_confirmed: Callable[[Callable[[], Action | None], str], None]
    """Repeat it until MongoDB has confirmed it; then run what follows."""


@dataclass(frozen=True)
class Company:
    """Conversations whose first sends are the same, as they were when the turn came. Later records
    are sent later.
    """

    boxes: Sequence[ConversationOutbox]
    places: Mapping[str, Sequence[str]]
    """Of the first sends, by conversation."""
    messages: Sequence[Mapping[str, Any]]


class Batching:
    """All batches of the process."""

    def __init__(
        self,
        boxes: Boxes,
        *,
        line: Line,
        rows: Batches,
        quota: Quota,
        limits: SendLimits,
    ) -> None:
        self._boxes = boxes
        self._line = line
        self._rows = rows
        self._quota = quota
        self._limits = limits
        # Under the lock of the boxes: the batches on their way.
        self._batches: dict[str, Batch] = {}

    # A turn of a conversation with company.

    def company(self, box: ConversationOutbox, go: Go) -> Company | None:
        """Under the lock: return the conversations to take along; a thread has all of them from now
        on.
        """
        if (
            not go.is_new
            or go.is_noted
            or go.call.way is not SendMethod.PUSH
            or self._line.rate_limits.seconds(MULTICAST)
        ):
            return None
        left = self._quota.month.left
        others = company_of(box, self._boxes.waiting, boottime())
        # The rest of the month is for those that have waited longest.
        others = others if left is None else others[: max(0, left - 1)]
        if not others:
            return None
        runs = {one.id: one.together() for one in (box, *others)}
        places = {id_: tuple(one.place for one in run) for id_, run in runs.items()}
        messages = [message for one in runs[box.id] for message in one.send.messages]
        return Company([box, *others], places, messages)

    def go(self, company: Company, turn: Turn) -> Action:
        """Claim their sends and call; returns what follows once the gate is free."""
        at = company.boxes[0].sends[0].made.now(boottime())
        ready = ReadyBatch(str(uuid.uuid4()), at, {})
        try:
            friends = self._rows.friends(company.places)
            members = {id_: company.places[id_] for id_ in company.places if id_ in friends}
            ready = replace(ready, members=members)
            seconds = self._limits.note_seconds
            is_ready = len(members) > 1 and self._rows.make(ready, seconds=seconds)
        except StoreUnavailable as error:
            log.warning("batch not recorded, waiting error=%s", error)
            # It may be stored later.
            return partial(self._call_off, ready, partial(self._release, company.boxes))
        strangers = [box for box in company.boxes if box.id not in members]
        claimed = [box for box in company.boxes if box.id in members]
        for box in strangers:
            box.most_users = 1
        if not is_ready:
            # MongoDB does not say which of them cannot be claimed.
            for box in claimed:
                box.most_users = max(1, len(claimed) // 2)
            return partial(self._release, company.boxes)
        self._release(strangers)
        with self._boxes.lock:
            batch = self._batch(ready, company.messages, claimed)
            batch.take_along()
        return self._make_call(batch, turn)

    def _batch(
        self,
        ready: ReadyBatch,
        messages: Sequence[Mapping[str, Any]],
        boxes: Sequence[ConversationOutbox],
        *,
        was_tried: bool = False,
    ) -> Batch:
        """Under the lock."""
        batch = self._batches[ready.key] = Batch(
            ready,
            messages,
            boxes,
            now=time.monotonic(),
            made=Moment(datetime.now(UTC), boottime()),
            limits=self._limits,
            granted=self._take_turn,
            was_tried=was_tried,
        )
        return batch

    # A batch on its way.

    def _take_turn(self, batch: Batch, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        self._line.in_turn(ticket, partial(self._called, batch, ticket))

    def _called(self, batch: Batch, ticket: Ticket, turn: Turn) -> Action | None:
        with self._boxes.lock:
            if not batch.turn(ticket):
                return None
            plan = batch.plan(boottime(), self._line.rate_limits.seconds(MULTICAST))
        if isinstance(plan, Go):
            return self._make_call(batch, turn)
        return partial(self._do, batch, plan)

    def _make_call(self, batch: Batch, turn: Turn) -> Action:
        if not turn.may_call():
            return partial(self._called_off, batch)
        batch.calls += 1
        for box in batch.boxes.values():
            box.calls += 1
        log.debug("sending batch=%s users=%d", batch.ready.key, len(batch.users))
        batch.answer = self._line.call(turn, MULTICAST, partial(self._post, batch))
        return partial(self._judge, batch)

    def _post(self, batch: Batch) -> LineAnswer:
        with self._boxes.lock:
            senders = [
                {EVENT_ID: one.send.event_id, "key": box.chat}
                for box in batch.boxes.values()
                for one in box.sends
                if one.place in batch.ready.members[box.id]
            ]
        body = {"to": batch.users, "messages": batch.messages}
        key = batch.ready.key
        return self._line.post(MULTICAST, body, senders, retry_key=key, attempt=batch.calls)

    def _called_off(self, batch: Batch) -> None:
        """The gate refused the call: the lease is not fresh, or the process stops."""
        if self._line.gate.is_closed and not batch.was_tried:
            # A successor would treat it as a call of unknown outcome.
            release = partial(self._release, list(batch.boxes.values()))
            self._call_off(batch.ready, release)
            return
        with self._boxes.lock:
            step = batch.again(time.monotonic())
        self._do(batch, step)

    def _judge(self, batch: Batch) -> None:
        """Settle the answer on this thread, as for a call of one conversation."""
        outcome = batch.judged(batch.answer)
        ready = batch.ready
        if outcome.cause == QUOTA:
            self._quota.met()
        if outcome.ending is SendVerdict.SENT:
            self._quota.paid(len(ready.members))

            def end() -> Action:
                self._rows.end(ready, done=True)
                return partial(self._sent, batch)

            self._boxes.until_confirmed(end, f"batch not removed batch={ready.key}")
        elif outcome.stands and outcome.ending is SendVerdict.AGAIN:
            self._try_again(batch, outcome)
        elif outcome.stands:
            self._give_up(batch, outcome.cause)
        else:
            self._call_off(ready, partial(self._refused, batch, outcome))

    def _sent(self, batch: Batch) -> None:
        members = batch.ready.members
        with self._boxes.lock:
            boxes = self._forget(batch)
            for id_, places in members.items():
                if id_ not in batch.boxes:
                    # Its outbox may have been read before they left, and be loaded later.
                    self._boxes.gone(id_, places)
        for box in boxes:
            self._boxes.leave(box, members[box.id])

    def _try_again(self, batch: Batch, outcome: CallOutcome) -> None:
        """Its outcome is unknown, so the next try is the same call."""
        batch.was_tried = True
        with self._boxes.lock:
            step = batch.failed(outcome, time.monotonic())
            for box in batch.boxes.values():
                box.reason = batch.reason
            given_up = [box for box in batch.boxes.values() if box.given_up_for]
            dropped = [self._drop(batch, box) for box in given_up]
        for drop in dropped:
            drop()
        if isinstance(step, Rest):
            log.warning(
                "batch not accepted, trying again batch=%s answer=%s seconds=%.1f",
                *(batch.ready.key, told_of(batch.answer), step.seconds),
            )
        self._do(batch, step)

    def _refused(self, batch: Batch, outcome: CallOutcome) -> None:
        """None of it has reached LINE, and its conversations are free."""
        half = max(1, len(batch.ready.members) // 2)
        is_dead = outcome.ending is SendVerdict.DEAD
        now = time.monotonic()
        with self._boxes.lock:
            boxes = self._forget(batch)
            free = [box for box in boxes if box.id not in outcome.refused]
            for box in boxes:
                box.answer = batch.answer
                box.most_users = half if outcome.narrower else box.most_users
            # All in one step: the first one that gets a turn takes the others along.
            steps = [box.again(now) if is_dead else box.failed(outcome, now) for box in free]
        for box in boxes:
            if box.id in outcome.refused:
                self._boxes.make_letters(box, batch.ready.members[box.id], outcome.cause)
        for box, step in zip(free, steps, strict=True):
            self._boxes.do(box, step)

    def _give_up(self, batch: Batch, cause: str) -> None:
        """Its outcome is unknown, and it is not repeated any more."""

        def give_up() -> Action:
            with self._boxes.lock:
                boxes, batch.boxes = list(batch.boxes.values()), {}
            for box in boxes:
                self._letters(batch, box, cause)
            if self._rows.messages(batch.ready) is not None:
                raise StoreUnavailable("not all of its conversations have left it yet")
            self._rows.remove(batch.ready.key)
            return partial(self._ended, batch)

        self._boxes.until_confirmed(give_up, f"batch not given up batch={batch.ready.key}")

    def _ended(self, batch: Batch) -> None:
        with self._boxes.lock:
            self._forget(batch)

    def _letters(self, batch: Batch, box: ConversationOutbox, cause: str) -> None:
        box.answer = batch.answer
        self._boxes.make_letters(box, batch.ready.members[box.id], cause, unknown=batch.call)

    def waits_for(self, box: ConversationOutbox, at_gate: Callable[[TurnClass], str]) -> str | None:
        """Under the lock: return for operators why a conversation's batch waits; None without a
        batch.
        """
        for batch in self._batches.values():
            if box.id in batch.boxes:
                travels = f"travels in one multicast to {len(batch.ready.members):,} people"
                return f"{travels}, which {batch.waits_for(at_gate)}"
        return None

    def given_up(self, box: ConversationOutbox) -> Action | None:
        """Under the lock: an operator gave up a send that may be in a batch; returns an action."""
        for batch in self._batches.values():
            if box.id in batch.boxes and batch.state is not CallState.BUSY:
                return self._drop(batch, box)
        # A call under way ends first.
        return None

    def _drop(self, batch: Batch, box: ConversationOutbox) -> Action:
        """Under the lock: the conversation leaves it; LINE may have its send all the same."""
        del batch.boxes[box.id]
        return partial(self._letters, batch, box, box.given_up_for or "")

    def _do(self, batch: Batch, step: NextStep | None) -> None:
        if isinstance(step, MakeLetters):
            self._line.step(partial(self._give_up, batch, step.cause))
        else:
            self._boxes.go_on(batch, step)

    # Cancelled calls.

    def _call_off(self, ready: ReadyBatch, follow: Action) -> None:
        """LINE does not have it."""

        def call_off() -> Action:
            self._rows.end(ready, done=False)
            return follow

        self._boxes.until_confirmed(call_off, f"batch not called off batch={ready.key}")

    def _release(self, boxes: Iterable[ConversationOutbox]) -> None:
        """They wait for turns of their own, each in its old place."""
        free, now = list(boxes), time.monotonic()
        with self._boxes.lock:
            steps = [box.again(now) for box in free]
        for box, step in zip(free, steps, strict=True):
            self._boxes.do(box, step)

    # Batches of predecessors.

    def take_over(self) -> None:
        """Repeat the batches that a predecessor left, before any outbox is loaded. Raises
        StoreUnavailable.
        """
        for ready in self._rows.left():
            if ready.key in self._batches:
                # The take-over failed behind it, and is made again.
                continue
            messages = self._rows.messages(ready)
            if messages is None:
                # Its conversations were deleted by hand.
                self._rows.remove(ready.key)
                continue
            with self._boxes.lock:
                batch = self._batch(ready, messages, (), was_tried=True)
                step = batch.begin(time.monotonic())
            log.info("batch of a predecessor is repeated batch=%s", ready.key)
            self._do(batch, step)

    def claimed(self, box: ConversationOutbox, key: str) -> bool:
        """Under the lock: whether the first sends of a conversation, which a predecessor claimed,
        are in a batch. Without one the next call's note replaces the claim.
        """
        batch = self._batches.get(key)
        if batch is None or box.id not in batch.ready.members:
            return False
        box.take_along()
        batch.boxes[box.id] = box
        return True

    def _forget(self, batch: Batch) -> list[ConversationOutbox]:
        """Under the lock: the batch has ended; returns its conversations."""
        self._batches.pop(batch.ready.key, None)
        return list(batch.boxes.values())
