"""Calls LINE with the sends of conversations, one call at a time for each.

The turn of a conversation takes along others that wait with the same sends: then the call is a
batch, a multicast. Each call is stored in MongoDB before it is made. After a crash the successor
continues by the rules of `jobworker.sending.verdict`.

A send that waits for a turn or for its next try is a ticket at the gate or with the clock, never a
blocked thread.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from jobworker.effects import Call, SendMethod
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import Ticket
from jobworker.line.group_sizes import GroupSizes
from jobworker.line.quota import Quota
from jobworker.line.side_call import Action, Line
from jobworker.metrics import since_ms
from jobworker.record.batches import Batches, ReadyBatch
from jobworker.record.conversations import LateCall, Noted, Placed
from jobworker.sending.batch import Batch, company_of
from jobworker.sending.conversation_outbox import (
    NO_LIMIT,
    Budget,
    Caller,
    CallState,
    ConversationOutbox,
    Go,
    MakeLetters,
    Moment,
    PendingSend,
    Request,
    SendLimits,
)
from jobworker.sending.late_replies import LateReplies
from jobworker.sending.outcomes import Outcomes
from linedesk.runtime.clock import boottime
from linedesk.store.errors import QueueError, StoreUnavailable, WriteRefused
from linedesk.store.limits import day_of
from linedesk.store.records.effects import SEND, TRIED_AT
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import WRITE_REFUSED, Cause

log = logging.getLogger(__name__)

MULTICAST = SendMethod.MULTICAST.path
# Conversations whose first sends are the same, as they were when the turn of the first one came:
# later records are sent later.
Company = Mapping[ConversationOutbox, Sequence[PendingSend]]


class Sender:
    """The calls of all outboxes and batches. `quota` knows the rest of the month.

    The states of both change under the lock of all conversations (see
    `jobworker.sending.conversation_outbox`). Resulting actions at the gate, by the clock or in
    MongoDB are carried out when the lock is free.
    """

    def __init__(
        self,
        line: Line,
        outcomes: Outcomes,
        *,
        batches: Batches,
        quota: Quota,
        groups: GroupSizes,
        limits: SendLimits,
    ) -> None:
        self.outcomes = outcomes
        self._boxes = outcomes.boxes
        self._conversations = outcomes.conversations
        self._line = line
        self._rows = batches
        self._quota = quota
        self._groups = groups
        self.limits = limits
        self._late = LateReplies()
        line.figures.set("late_replies_a_day", limits.late_replies_a_day)
        line.figures.set(
            "late_replies_today",
            lambda: self._late.paid_on(day_of(datetime.now(UTC)).isoformat()),
        )
        self._lock = self._boxes.lock

    # A call that follows its record at once.

    @contextmanager
    def at_once(self, id_: str, effects: Sequence[Placed]) -> Iterator[Call | None]:
        """The call for these effects if it can follow their record at once, else None: nothing else
        waits for the conversation, and one of the few turns to reserve is left. `Outbox.add` has to
        follow the record here.
        """
        call = self._at_once(id_, effects)
        try:
            yield call
        finally:
            with self._lock:
                if call is not None and self._boxes.find(id_) is None:
                    # It is not recorded, or not surely: it needs no turn yet.
                    self._boxes.set_reserved(self._boxes.known.get(id_), False)

    def _at_once(self, id_: str, effects: Sequence[Placed]) -> Call | None:
        gate = self._line.gate
        if not effects or gate.is_away:
            return None
        if not all(one["type"] == SEND and TRIED_AT not in one for _, one in effects):
            return None
        with self._lock:
            if self._boxes.find(id_) is not None:
                return None
            if self._boxes.reserved >= 2 * gate.concurrency:
                return None
            box, made = self.outbox_of(id_), Moment(datetime.now(UTC), boottime())
            for place, effect in effects:
                box.append(box.pending(place, effect, made))
            plan = box.plan(made.boottime, self._line.rate_limits.seconds, self._budget(box))
            if not isinstance(plan, Go) or plan.late_on:
                return None
            is_push = plan.call.way is not SendMethod.REPLY
            # With an interval the turns are too few to wait for one; a push may find company at the
            # gate.
            if (gate.interval_seconds or is_push) and not gate.is_idle:
                return None
            if is_push and self._groups.is_due(box.sends[0].send.to):
                return None
            self._boxes.set_reserved(box.conversation, True)
        return plan.call

    def finish(self) -> None:
        """At a clean stop: write which calls were not made."""
        with self._lock:
            ids = [
                box.id
                for box in self._boxes
                if box.call and not box.is_tried and box.state is not CallState.BUSY
            ]
        # guard: stop-strikes-out -> never
        for id_ in ids:
            try:
                self._conversations.end_call(id_)
            except QueueError as error:
                log.warning("calls that were not made are left at the stop error=%s", error)
                return

    # Under the lock.

    def outbox_of(self, id_: str) -> ConversationOutbox:
        """Return the outbox of a conversation; one that was empty is not entered yet."""
        conversation = self._boxes.known.get(id_)
        box: ConversationOutbox | None = conversation.outbox
        return box or ConversationOutbox(conversation, self.limits, self._take_turn)

    def _budget(self, caller: Caller) -> Budget:
        if not isinstance(caller, ConversationOutbox):
            return NO_LIMIT
        found = self._quota.month
        people = self._groups.people(caller.chat) or 1
        return Budget(self._late, found.is_closed, found.left, people)

    # A turn at the gate.

    def _take_turn(self, caller: Caller, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        self._line.in_turn(ticket, partial(self._called, caller))

    def _called(self, caller: Caller, ticket: Ticket) -> Action | None:
        with self._lock:
            if not caller.turn(ticket):
                return None
            plan = caller.plan(boottime(), self._line.rate_limits.seconds, self._budget(caller))
            company: Company = {}
            if isinstance(caller, ConversationOutbox):
                self._boxes.set_reserved(caller.conversation, False)
                company = self._company(caller, plan)
            tickets = [box.take_along() for box in company if box is not caller]
        for their in tickets:
            if their is not None:
                self._line.gate.cancel(their)
        if company:
            return self._claim(company, ticket)
        if isinstance(plan, Go):
            return self._go(caller, plan, ticket)
        return partial(self.outcomes.do, caller, plan)

    def _go(self, caller: Caller, go: Go, ticket: Ticket) -> Action:
        """Store the call, then make it; returns what follows once the gate is free."""
        with self._lock:
            request = caller.request(go.call)
        to: Any = request.body.get("to")
        if go.is_new and self._groups.is_due(to) and self._line.gate.may_call(ticket):
            self._line.gate.begin(ticket)
            self._groups.ask(to, key=request.sends[0][0])
            return partial(self.outcomes.release, [caller])
        # guard: note-before-the-call -> caller.call, hindrance = go.call, None
        hindrance = self._note(caller, go)
        if hindrance is not None:
            return hindrance
        if not self._line.gate.may_call(ticket):
            return partial(self._called_off, caller, go)
        caller.begin_call()
        path = go.call.way.path
        caller.answer = self._line.call(ticket, path, partial(self._post, caller, request, ticket))
        # After the call: a process that froze before it sent may have sent an expired token.
        with self._lock:
            outcome = caller.judged(go, boottime())
        people = len(to) if isinstance(to, list) else self._groups.people(to) or 1
        return partial(self.outcomes.settle, caller, outcome, people)

    def _note(self, caller: Caller, go: Go) -> Action | None:
        """Store the call before LINE is called; returns what follows if that fails."""
        if go.call is caller.call:
            return None
        assert isinstance(caller, ConversationOutbox), "a batch was stored with its claims"
        box = caller
        late = LateCall(go.late_on, self.limits.late_replies_a_day) if go.late_on else None
        try:
            seconds = self.limits.note_seconds
            noted = self._conversations.note_call(box.id, go.call, late, seconds=seconds)
        except WriteRefused as error:
            # No call without its note; as a dead letter it makes room for those behind it.
            cause = Cause(WRITE_REFUSED, error.about)
            return partial(self.outcomes.do, box, MakeLetters(cause, box.given_up_places()))
        except StoreUnavailable as error:
            log.debug("call not recorded, waiting conversation=%s error=%s", box.id, error)
            # LINE was not called, so the call is new again here. A successor may see it as tried,
            # and is then unnecessarily careful.
            with self._lock:
                step = box.not_stored(error)
            return partial(self.outcomes.do, box, step)
        if noted is Noted.GONE:
            log.info("send has left the outbox conversation=%s", box.id)
            return partial(self.outcomes.remove, box, go.call.members[:1])
        if noted is Noted.TOO_MANY_LATE:
            with self._lock:
                box.conversation.late_on = go.late_on
            return partial(self.outcomes.release, [box])
        if late is not None:
            with self._lock:
                self._late.paid(go.late_on, self._groups.people(box.chat) or 1)
        box.call = go.call
        return None

    def _called_off(self, caller: Caller, go: Go) -> None:
        """The gate refused the call: the lease is not fresh, or the process stops."""
        if isinstance(caller, Batch) and go.is_new and self._line.gate.is_closed:
            # A successor would treat it as a call of unknown outcome.
            self.outcomes.end_batch(caller.ready, partial(self.outcomes.freed, caller))
            return
        self.outcomes.release([caller])

    def _post(self, caller: Caller, request: Request, ticket: Ticket) -> LineAnswer:
        call, sends = caller.call, request.sends
        assert call is not None, "it is stored"
        if sends:
            _, first = sends[0]
            log.debug(
                "sending id=%s way=%s wait_ms=%.1f since_accept_ms=%.1f sends=%d",
                first.id,
                call.way.value,
                ticket.waited_seconds * 1000,
                since_ms(first.token_from or first.at),
                len(sends),
            )
        senders = [{EVENT_ID: send.event_id, "key": chat} for chat, send in sends]
        path, key = call.way.path, call.key
        return self._line.post(path, request.body, senders, retry_key=key, attempt=caller.calls)

    # Batches.

    def _company(self, box: ConversationOutbox, plan: object) -> Company:
        """Under the lock: return the conversations that this one takes along, with itself; a thread
        has all of them from now on. Empty if it is called by itself.
        """
        if (
            not isinstance(plan, Go)
            or not plan.is_new
            or plan.call is box.call
            or plan.call.way is not SendMethod.PUSH
            or self._line.rate_limits.seconds(MULTICAST)
        ):
            return {}
        left = self._quota.month.left
        others = company_of(box, self._boxes, boottime())
        # The rest of the month is for those that have waited longest.
        others = others if left is None else others[: max(0, left - 1)]
        return {one: one.together() for one in (box, *others)} if others else {}

    def _claim(self, company: Company, ticket: Ticket) -> Action:
        """Claim their sends and call; returns what follows once the gate is free."""
        boxes, [first, *_] = list(company), company.values()
        places = {box.id: tuple(one.place for one in run) for box, run in company.items()}
        ready = ReadyBatch(str(uuid.uuid4()), first[0].made.now(boottime()), {})
        try:
            friends = self._rows.friends(places)
            ready = replace(ready, members={id_: places[id_] for id_ in places if id_ in friends})
            seconds = self.limits.note_seconds
            is_ready = len(ready.members) > 1 and self._rows.make(ready, seconds=seconds)
        except StoreUnavailable as error:
            log.warning("batch not recorded, waiting error=%s", error)
            # It may be stored later.
            return partial(self.outcomes.end_batch, ready, partial(self.outcomes.release, boxes))
        strangers = [box for box in boxes if box.id not in ready.members]
        claimed = [box for box in boxes if box.id in ready.members]
        for box in strangers:
            box.most_users = 1
        if not is_ready:
            # MongoDB does not say which of them cannot be claimed.
            for box in claimed:
                box.most_users = max(1, len(claimed) // 2)
            return partial(self.outcomes.release, boxes)
        self.outcomes.release(strangers)
        messages = [message for one in first for message in one.send.messages]
        with self._lock:
            batch = self._batch(ready, messages, claimed)
            batch.take_along()
            plan = batch.plan(boottime(), lambda path: 0.0)
        assert isinstance(plan, Go), "it was made now"
        return self._go(batch, plan, ticket)

    def _batch(
        self,
        ready: ReadyBatch,
        messages: Sequence[Mapping[str, Any]],
        boxes: Sequence[ConversationOutbox],
        *,
        is_tried: bool = False,
    ) -> Batch:
        """Under the lock."""
        batch = self._boxes.batches[ready.key] = Batch(
            ready,
            messages,
            boxes,
            now=time.monotonic(),
            made=Moment(datetime.now(UTC), boottime()),
            limits=self.limits,
            granted=self._take_turn,
            is_tried=is_tried,
        )
        return batch

    def repeat_batches(self) -> None:
        """Repeat the batches that a predecessor left, before any outbox is loaded. Raises
        StoreUnavailable.
        """
        for ready in self._rows.unfinished():
            if ready.key in self._boxes.batches:
                # The take-over failed behind it, and is made again.
                continue
            messages = self._rows.messages(ready)
            if messages is None:
                # Its conversations were deleted by hand.
                self._rows.remove(ready.key)
                continue
            with self._lock:
                batch = self._batch(ready, messages, (), is_tried=True)
                step = batch.begin(time.monotonic())
            log.info("batch of a predecessor is repeated batch=%s", ready.key)
            self.outcomes.do(batch, step)
