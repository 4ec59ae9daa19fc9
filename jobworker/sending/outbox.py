"""Carries out recorded effects: each conversation's outbox, in order, one call at a time.

A send that waits for a turn or for its next try is a ticket at the gate or with the clock, never a
blocked thread. Dead letters and timers do not wait behind sends. After a crash the successor finds
the effects in the conversation's `outbox` and `call`. It continues by the rules of
`jobworker.sending.verdict`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import bson

from dispatcher.conversations.conversations import Conversation
from jobworker.effects import Call, Send, SendMethod, is_timer, of_effect
from jobworker.line.answer import LineAnswer
from jobworker.line.gate import Turn
from jobworker.line.gate_order import Ticket, TurnClass
from jobworker.line.group_sizes import GroupSizes
from jobworker.line.month import day_of
from jobworker.line.quota import Quota
from jobworker.line.side_call import Action, Line
from jobworker.metrics import since_ms
from jobworker.record.batches import Batches
from jobworker.record.conversations import (
    ConversationStore,
    LateCall,
    Noted,
    NotedCall,
    Outbound,
    Placed,
)
from jobworker.record.dead_letters import DeadLetters, change_of
from jobworker.record.schedule import Schedule
from jobworker.record.waiting_answers import NOT_FETCHED, waiting_again
from jobworker.sending.batching import Batching, Boxes
from jobworker.sending.conversation_outbox import (
    Budget,
    Caller,
    CallState,
    ConversationOutbox,
    Enter,
    Go,
    MakeLetters,
    Moment,
    Move,
    NextStep,
    PendingSend,
    PutBack,
    Rest,
    SendLimits,
    standing_of,
    told_of,
)
from jobworker.sending.late_replies import LateReplies
from jobworker.sending.verdict import (
    QUOTA,
    CallOutcome,
    SendVerdict,
    Tried,
    judge,
)
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.clock import boottime
from linedesk.store.documents import Document
from linedesk.store.errors import QueueError, StoreUnavailable, WriteRefused
from linedesk.store.records.effects import EFFECT_ID, SEND, TRIED_AT
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER

log = logging.getLogger(__name__)

LIMITS = SendLimits()
# Outboxes of a predecessor that one step loads.
LOADED_AT_ONCE = 500
# The longest waiting sends are searched among the first sends of this many conversations.
LOOKED_AT = 500


@dataclass(eq=False)
class AtOnce:
    """A call that can follow the record of its sends at once."""

    box: ConversationOutbox
    noted: NotedCall
    ticket: Ticket | None
    """With a turn at the gate; None if one is reserved."""
    is_begun: bool = False


class Outbox:
    """All outboxes of the process, and their effects.

    Their states change under the lock of all conversations (see
    `jobworker.sending.conversation_outbox`). Resulting actions at the gate, by the clock or in
    MongoDB are carried out when the lock is free.

    `quota` knows the rest of the month, and gets the refusals for it.
    """

    def __init__(
        self,
        line: Line,
        *,
        conversations: ConversationStore,
        deadletters: DeadLetters,
        schedule: Schedule,
        batches: Batches,
        quota: Quota | None = None,
        groups: GroupSizes | None = None,
        limits: SendLimits = LIMITS,
    ) -> None:
        self._conversations = conversations
        self._deadletters = deadletters
        self._schedule = schedule
        self._line = line
        self._figures = line.figures
        self._quota = quota or Quota(line)
        self._groups = groups or GroupSizes()
        self._late = LateReplies(a_day=limits.late_replies_a_day)
        self._figures.set("late_replies_a_day", self._late.a_day)
        self._figures.set(
            "late_replies_today",
            lambda: self._late.paid_on(day_of(datetime.now(UTC)).isoformat()),
        )
        self._limits = limits
        self._known = conversations.known
        self._lock = self._known.lock
        # All below under _lock: the outboxes that are not empty, the oldest first.
        self._boxes: dict[ConversationOutbox, None] = {}
        self._count = 0
        self._size = 0
        # How many conversations are reserved, and how many are left to be loaded.
        self._reserved = 0
        self._left = 0
        self._batching = Batching(
            Boxes(
                lock=self._lock,
                waiting=self._boxes.keys(),
                do=self._do,
                go_on=self._go_on,
                leave=self._leave,
                gone=self._gone,
                make_letters=self._make_letters,
                until_confirmed=self._until_confirmed,
            ),
            line=line,
            rows=batches,
            quota=self._quota,
            limits=limits,
        )

    @property
    def has_room(self) -> bool:
        """Whether reading may continue."""
        return len(self) < self._limits.most_in_all and self._size < self._limits.most_bytes_in_all

    @property
    def is_loaded(self) -> bool:
        """Whether all effects of predecessors are known here."""
        return not self._left

    def __len__(self) -> int:
        """The number of waiting effects; an outbox that is not loaded yet counts as one."""
        return self._count + self._left

    def take_over(self) -> None:
        """Find every outbox that a predecessor left, and load them beside the first decisions.
        Raises StoreUnavailable.
        """
        left = self._conversations.with_outbox()
        with self._lock:
            for id_ in left:
                self._set_left(self._known.get(id_), True)
        self._batching.take_over()
        self._by_step(partial(self._load, left), "outboxes not loaded")

    def know(self, id_: str) -> None:
        """Load the outbox of a conversation before its next record, if that was not done yet: its
        sends keep their order. Raises StoreUnavailable.
        """
        with self._lock:
            is_left = self._known.get(id_).is_left
        # guard: whole-outbox-first
        if is_left:
            self._read([id_])

    @contextmanager
    def at_once(self, id_: str, effects: Sequence[Placed]) -> Iterator[AtOnce | None]:
        """The call for these effects if it can follow their record at once, else None: nothing else
        waits for the conversation, and a turn is free or one of the few reserved ones.
        """
        found = self._at_once(id_, effects)
        try:
            yield found
        finally:
            if found is not None and not found.is_begun:
                with self._lock:
                    self._set_reserved(found.box.conversation, False)
                if found.ticket is not None:
                    self._line.gate.give_back(found.ticket)

    def _at_once(self, id_: str, effects: Sequence[Placed]) -> AtOnce | None:
        gate = self._line.gate
        if not all(one["type"] == SEND and TRIED_AT not in one for _, one in effects):
            return None
        with self._lock:
            conversation = self._known.get(id_)
            if not effects or conversation.outbox is not None or gate.is_away:
                return None
            if not gate.interval_seconds and self._reserved >= 2 * gate.concurrency:
                return None
            box = ConversationOutbox(conversation, self._limits, self._take_turn)
            made = Moment(datetime.now(UTC), boottime())
            for place, effect in effects:
                box.append(self._pending(box, place, effect, made))
            plan = box.plan(made.boottime, self._line.rate_limits.seconds, self._budget(box))
            if not isinstance(plan, Go) or plan.late_on:
                return None
            if plan.call.way is not SendMethod.REPLY and (
                # It may find company at the gate.
                not gate.is_idle or self._groups.is_due(box.sends[0].send.to)
            ):
                return None
            ticket = None
            if gate.interval_seconds:
                ticket = Ticket(box.standing(time.monotonic()))
                if not gate.take(ticket):
                    return None
            else:
                self._set_reserved(conversation, True)
        noted = NotedCall(effects, plan.call, self._limits.note_seconds)
        return AtOnce(box, noted, ticket)

    def begin(self, now: AtOnce) -> None:
        """Its record is durable, with the call: call LINE."""
        now.is_begun = True
        box, ticket = now.box, now.ticket
        box.noted_call = now.noted.call
        with self._lock:
            self._enter(box)
            self._count += len(box.sends)
            self._size += box.size
            if ticket is not None:
                box.take_turn(ticket)
            enter = box.begin(time.monotonic()) if ticket is None else None
        self._do(box, enter)
        if ticket is not None:
            self._line.step(partial(self._take_turn, box, ticket))

    def finish(self) -> None:
        """At a clean stop: write which calls were not made."""
        with self._lock:
            noted = [box.id for box in self._boxes if box.noted_call]
        # guard: stop-strikes-out -> never
        for id_ in noted:
            try:
                self._conversations.end_call(id_)
            except QueueError as error:
                log.warning("calls that were not made are left at the stop error=%s", error)
                return

    def waits_for_room(self, id_: str, resume: Action) -> bool:
        """Whether the conversation's outbox is full; then `resume` is called once it is not."""
        with self._lock:
            box = self._box(id_)
            if box is None or not box.is_full:
                return False
            box.waiters.append(resume)
            return True

    def add(self, id_: str, outbound: Outbound, *, left: bool = False) -> None:
        """Carry out recorded effects. Those that a predecessor `left` are skipped if the outbox of
        the conversation was loaded before.
        """
        follow: list[Action] = []
        timers: list[Placed] = []
        with self._lock:
            conversation = self._known.get(id_)
            if left and not conversation.is_left:
                return
            for place, effect in outbound.effects:
                try:
                    if is_timer(effect):
                        timers.append((place, effect))
                    elif effect["type"] == DEADLETTER:
                        # Of a release before this one.
                        written = partial(self._give_up, id_, {place: effect}, ends_call=False)
                        follow.append(partial(self._by_step, written, "dead letter not written"))
                    elif effect["type"] == "send":
                        self._append(conversation, place, effect, follow)
                    else:
                        log.error("unknown effect left in the outbox id=%s", effect["id"])
                except (KeyError, TypeError, ValueError):
                    # Edited by hand, since linedesk writes them completely.
                    log.exception("broken effect left in the outbox conversation=%s", id_)
            follow.append(self._begin(conversation, outbound))
            follow.append(self._take_timers(conversation, timers))
            self._set_left(conversation, False)
        for action in follow:
            action()

    def waiting(self, limit: int, *, at_gate: Callable[[TurnClass], str]) -> list[Document]:
        """The longest waiting sends, one for each conversation, with the reason for operators.

        `at_gate` returns the reason for a class at the gate. Quick, from any thread.
        """
        with self._lock:
            # Empty boxes are removed, so the oldest come first.
            boxes = list(islice(self._boxes, LOOKED_AT))
            boxes.sort(key=lambda box: box.sends[0].send.at)
            return [
                _told(box, self._batching.waits_for(box, at_gate) or box.waits_for(at_gate))
                for box in boxes[:limit]
            ]

    def oldest_seconds(self) -> float:
        """Seconds since the event of the longest waiting send; 0 without one. Quick, from any
        thread.
        """
        with self._lock:
            boxes = islice(self._boxes, LOOKED_AT)
            oldest = min((_arrived_at(box.sends[0].send) for box in boxes), default=None)
        if oldest is None:
            return 0.0
        return round(max(0.0, (datetime.now(UTC) - oldest).total_seconds()), 3)

    def give_up(self, id_: str, effect_id: str, *, cause: str) -> bool:
        """Make the send a dead letter if it is the first of the conversation's outbox.

        Returns True while that is under way: a call of it ends by itself first, and an outbox may
        have to be loaded. Any thread may ask, also repeatedly.
        """
        with self._lock:
            box = self._box(id_)
            if box is None or box.sends[0].send.id != effect_id:
                # guard: under-way-until-loaded -> return False
                return self._known.get(id_).is_left
            step = box.give_up(cause)
            follow = self._batching.given_up(box)
        self._do(box, step)
        if follow is not None:
            follow()
        return True

    def month_closed(self) -> None:
        """LINE accepts no more pushes: calls that rest until that is known can continue."""
        with self._lock:
            now = time.monotonic()
            steps = [(box, box.month_closed(now)) for box in self._boxes]
        for box, step in steps:
            self._do(box, step)

    # Outboxes of predecessors.

    def _load(self, left: Sequence[str]) -> None:
        """Load the first of them, and have the others loaded."""
        if not left:
            log.info("outboxes loaded effects=%d", len(self))
            return
        self._read(left[:LOADED_AT_ONCE])
        others = left[LOADED_AT_ONCE:]
        self._by_step(partial(self._load, others), "outboxes not loaded")

    def _read(self, ids: Sequence[str]) -> None:
        found = {one["_id"]: one for one in self._conversations.outboxes(ids)}
        # The oldest first, in the order in which they were found.
        for id_ in ids:
            if id_ in found:
                self.add(id_, Outbound.of(found[id_]), left=True)
        with self._lock:
            for id_ in ids:
                self._set_left(self._known.get(id_), False)

    # Under the lock; returned or appended actions are carried out without it.

    def _box(self, id_: str) -> ConversationOutbox | None:
        found = self._known.find(id_)
        return None if found is None else found.outbox

    def _enter(self, box: ConversationOutbox) -> None:
        self._boxes[box] = None
        box.conversation.outbox = box

    def _set_left(self, conversation: Conversation, is_left: bool) -> None:
        self._left += is_left - conversation.is_left
        conversation.is_left = is_left
        if not is_left:
            conversation.gone = frozenset()

    def _set_reserved(self, conversation: Conversation, is_reserved: bool) -> None:
        self._reserved += is_reserved - conversation.is_reserved
        conversation.is_reserved = is_reserved

    def _append(
        self, conversation: Conversation, place: str, effect: Document, follow: list[Action]
    ) -> None:
        box: ConversationOutbox | None = conversation.outbox
        if place in conversation.gone or (box is not None and place in box.places):
            return
        if box is None:
            box = ConversationOutbox(conversation, self._limits, self._take_turn)
        one = self._pending(box, place, effect, Moment(datetime.now(UTC), boottime()))
        self._enter(box)
        follow.append(partial(self._do, box, box.append(one)))
        self._count += 1
        self._size += one.size

    def _pending(
        self, box: ConversationOutbox, place: str, effect: Document, made: Moment
    ) -> PendingSend:
        send = Send.from_document(effect)
        standing = standing_of(send, box.id, self._limits, now=time.monotonic(), at=made.at)
        return PendingSend(place, send, standing, made, len(bson.encode(effect)))

    def _begin(self, conversation: Conversation, outbound: Outbound) -> Action:
        """Let the conversation wait for its turn if it has sends and does not wait yet."""
        box: ConversationOutbox | None = conversation.outbox
        if box is None:
            return lambda: None
        if box.state is CallState.IDLE and outbound.noted is not None:
            box.noted_call = outbound.noted
        elif box.state is CallState.IDLE and outbound.batch is not None:
            if self._batching.claimed(box, outbound.batch):
                return lambda: None
        elif box.state is CallState.IDLE and outbound.call is not None:
            # Sends of it may have been removed by hand.
            members = tuple(one.place for one in box.members(outbound.call))
            box.call = replace(outbound.call, members=members) if members else None
        return partial(self._do, box, box.begin(time.monotonic()))

    def _take_timers(self, conversation: Conversation, timers: Iterable[Placed]) -> Action:
        """Take timers, all in one step.

        Timers that have left their outbox may come once more: their numbers make that harmless.
        """
        fresh = [one for one in timers if one[0] not in conversation.timers]
        if not fresh:
            return lambda: None
        places = [place for place, _ in fresh]
        conversation.timers |= frozenset(places)
        self._count += len(fresh)
        entered = partial(self._enter_timers, conversation.id, deque(fresh), places, {})
        return partial(self._by_step, entered, "timers not entered")

    # A call: all code from here on runs without the lock, except for changes of state.

    def _do(self, box: ConversationOutbox, step: NextStep | None) -> None:
        """Carry out the action of a change of state."""
        match step:
            case MakeLetters(cause, places, ticket):
                if ticket is not None:
                    self._line.gate.cancel(ticket)
                letters = partial(self._make_letters, box, places, cause, unknown=box.call)
                self._line.step(letters)
            case PutBack(place):
                self._line.step(partial(self._put_back, box, place))
            case _:
                self._go_on(box, step)

    def _go_on(self, caller: Caller, step: NextStep | None) -> None:
        match step:
            case Enter(ticket):
                self._line.gate.enter(ticket)
            case Move(ticket, standing):
                self._line.gate.move(ticket, standing)
            case Rest(seconds):
                self._line.later(seconds, partial(self._wake, caller, step))

    def _wake(self, caller: Caller, rest: Rest) -> None:
        with self._lock:
            step = caller.wake(rest, time.monotonic())
        self._go_on(caller, step)

    def _take_turn(self, box: ConversationOutbox, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        self._line.in_turn(ticket, partial(self._called, box, ticket))

    def _called(self, box: ConversationOutbox, ticket: Ticket, turn: Turn) -> Action | None:
        with self._lock:
            if not box.turn(ticket):
                return None
            self._set_reserved(box.conversation, False)
            plan = box.plan(boottime(), self._line.rate_limits.seconds, self._budget(box))
            company = self._batching.company(box, plan) if isinstance(plan, Go) else None
            tickets = [one.take_along() for one in company.boxes[1:]] if company else []
        for their in tickets:
            if their is not None:
                self._line.gate.cancel(their)
        if company:
            return self._batching.go(company, turn)
        return self._go(box, plan, turn) if isinstance(plan, Go) else partial(self._do, box, plan)

    def _budget(self, box: ConversationOutbox) -> Budget:
        """Under the lock."""
        found = self._quota.month
        people = self._groups.people(box.chat) or 1
        return Budget(self._late, found.is_closed, found.left, people)

    def _go(self, box: ConversationOutbox, go: Go, turn: Turn) -> Action:
        """Store the call, then make it; returns what follows once the gate is free."""
        with self._lock:
            to = box.members(go.call)[0].send.to
        is_push = go.call.way is SendMethod.PUSH
        if go.is_new and is_push and self._groups.is_due(to) and turn.may_call():
            turn.begin()
            self._groups.ask(str(to), key=box.chat)
            with self._lock:
                again = box.again(time.monotonic())
            return partial(self._do, box, again)
        # guard: note-before-the-call -> hindrance = box.noted(go)
        hindrance = self._note(box, go)
        if hindrance is not None:
            return hindrance
        if not turn.may_call():
            return partial(self._call_off, box, go)
        with self._lock:
            members = [one.send for one in box.members(go.call)]
        box.calls += 1
        request = partial(self._post, box, go.call, members, turn)
        box.answer = self._line.call(turn, go.call.way.path, request)
        # After the call: a process that froze before it sent may have sent an expired token.
        with self._lock:
            tried = box.tried(go.call, boottime())
        if is_push and (people := self._groups.people(to)) is not None:
            tried = replace(tried, people=people)
        return partial(self._judge, box, tried)

    def _note(self, box: ConversationOutbox, go: Go) -> Action | None:
        """Store the call before LINE is called; returns what follows if that fails."""
        if not go.is_new or go.is_noted:
            box.noted(go)
            return None
        late = LateCall(go.late_on, self._late.a_day) if go.late_on else None
        try:
            seconds = self._limits.note_seconds
            noted = self._conversations.note_call(box.id, go.call, late, seconds=seconds)
        except WriteRefused as error:
            # No call without its note; as a dead letter it makes room for those behind it.
            return partial(self._do, box, MakeLetters(str(error), box.given_up_places()))
        except StoreUnavailable as error:
            log.warning("call not recorded, waiting conversation=%s error=%s", box.id, error)
            # LINE was not called, so the call is new again here. A successor may see it as tried,
            # and is then unnecessarily careful.
            with self._lock:
                step = box.not_noted(error)
            return partial(self._do, box, step)
        if noted is Noted.GONE:
            log.info("send has left the outbox conversation=%s", box.id)
            return partial(self._leave, box, go.call.members[:1])
        if noted is Noted.TOO_MANY_LATE:
            with self._lock:
                box.conversation.late_on = go.late_on
                again = box.again(time.monotonic())
            return partial(self._do, box, again)
        if late is not None:
            with self._lock:
                self._late.paid(go.late_on, self._groups.people(box.chat) or 1)
        box.noted(go)
        return None

    def _call_off(self, box: ConversationOutbox, go: Go) -> None:
        """The gate refused the call: the lease is not fresh, or the process stops."""
        box.called_off(go)
        with self._lock:
            step = box.again(time.monotonic())
        self._do(box, step)

    def _post(
        self, box: ConversationOutbox, call: Call, members: Sequence[Send], turn: Turn
    ) -> LineAnswer:
        log.debug(
            "sending id=%s way=%s wait_ms=%.1f since_accept_ms=%.1f sends=%d",
            members[0].id,
            call.way.value,
            turn.waited_seconds * 1000,
            since_ms(members[0].token_from or members[0].at),
            len(members),
        )
        body: dict[str, Any] = {"messages": [one for send in members for one in send.messages]}
        if call.way is SendMethod.REPLY:
            body["replyToken"] = call.token
        else:
            body["to"] = members[0].to
        senders = [{EVENT_ID: send.event_id, "key": box.chat} for send in members]
        path, key = call.way.path, call.key
        return self._line.post(path, body, senders, retry_key=key, attempt=box.calls)

    def _judge(self, box: ConversationOutbox, tried: Tried) -> None:
        """Settle the answer, all on this thread: a stop drops steps, and the next process would
        treat a refused call as one of unknown outcome.
        """
        outcome = judge(tried, box.answer, reply_unknown=self._limits.reply_unknown)
        call = tried.call
        if outcome.unproved:
            log.warning("reply of unknown outcome, not provable conversation=%s", box.id)
            self._figures.add("unproved_replies")
        if not tried.is_reply:
            if outcome.cause == QUOTA:
                self._quota.met()
            elif outcome.ending is SendVerdict.SENT:
                self._quota.paid(tried.people)
        if outcome.ending is SendVerdict.AGAIN:
            settle = partial(self._write_answer, box, call, outcome)
            self._settle(box, settle, "answer not recorded")
        elif outcome.ending is SendVerdict.DEAD:
            unknown = call if outcome.stands else None
            self._make_letters(box, outcome.refused, outcome.cause, unknown=unknown)
        elif outcome.ending is SendVerdict.SENT and self._conversations.end_later(box.id, call):
            self._leave(box, call.members)
        else:
            settle = partial(self._remove, box, call)
            self._settle(box, settle, "send not removed")

    def _write_answer(self, box: ConversationOutbox, call: Call, outcome: CallOutcome) -> Action:
        """Make the answer's changes durable before another try."""
        # guard: refusal-is-durable-first
        if not outcome.stands:
            with self._lock:
                used_up = box.used_up(call) if outcome.token_used_up else ()
            self._conversations.end_call(box.id, used_up=used_up)
        return partial(self._try_again, box, call, outcome)

    def _try_again(self, box: ConversationOutbox, call: Call, outcome: CallOutcome) -> None:
        with self._lock:
            box.settle(call, outcome)
            # A send on which LINE always fails would otherwise be the breaker's probe each time.
            box.called(time.monotonic(), unanswered=outcome.unanswered)
            step = box.failed(outcome, time.monotonic())
            # The reading may have ended before the rest that it would end.
            # guard: closed-before-the-rest -> never
            if outcome.cause == QUOTA and self._budget(box).is_closed:
                step = box.month_closed(time.monotonic()) or step
        if isinstance(step, MakeLetters):
            self._make_letters(box, step.places, step.cause, unknown=box.call)
            return
        self._figures.add("send_retries")
        if isinstance(step, Rest):
            log.warning(
                "call not accepted, trying again conversation=%s answer=%s seconds=%.1f",
                *(box.id, told_of(box.answer), step.seconds),
            )
        self._do(box, step)

    def _remove(self, box: ConversationOutbox, call: Call) -> Action:
        self._conversations.end_call(box.id, done=call.members)
        return partial(self._leave, box, call.members)

    def _put_back(self, box: ConversationOutbox, place: str) -> None:
        """Let an answer wait for another tap; it becomes a dead letter if no tap could bring it."""
        [send] = [one.send for one in box.sends if one.place == place]

        def put_back() -> Action:
            name, entry = send.answer_to or "", waiting_again(send)
            if self._conversations.put_back(box.id, place, name, entry):
                log.info("answer waits for another tap event_id=%s", send.event_id)
                return partial(self._leave, box, [place])
            return partial(self._make_letters, box, [place], NOT_FETCHED)

        self._settle(box, put_back, "answer not put back")

    def _make_letters(
        self,
        box: ConversationOutbox,
        places: Sequence[str],
        cause: str,
        *,
        unknown: Call | None = None,
    ) -> None:
        """Give sends up. `unknown` is a call that LINE may have."""
        wanted, letters = set(places), {}
        with self._lock:
            given_up = [one for one in box.sends if one.place in wanted]
        for one in given_up:
            send = one.send if unknown is None else one.send.tried(unknown)
            log.error("send given up id=%s cause=%s answer=%s", send.id, cause, told_of(box.answer))
            effect = send.as_document()
            letters[one.place] = of_effect(effect, box.id, cause=cause, attempts=box.calls)

        def give_up() -> Action:
            self._give_up(box.id, letters, ends_call=True)
            return partial(self._leave, box, list(letters))

        self._settle(box, give_up, "dead letter not written")

    def _leave(self, box: ConversationOutbox, places: Sequence[str]) -> None:
        """Sends have left the outbox: those behind them follow."""
        with self._lock:
            before = len(box.sends), box.size
            if box.calls:
                box.called(time.monotonic())
            box.left(places)
            self._count -= before[0] - len(box.sends)
            self._size -= before[1] - box.size
            self._set_reserved(box.conversation, False)
            if box.sends:
                step = box.begin(time.monotonic())
            else:
                del self._boxes[box]
                box.conversation.outbox = None
                step = None
            waiters, box.waiters = box.waiters, []
        self._do(box, step)
        for resume in waiters:
            resume()

    def _gone(self, id_: str, places: Sequence[str]) -> None:
        """Under the lock: they have left an outbox that may not be loaded yet."""
        conversation = self._known.get(id_)
        if conversation.is_left:
            conversation.gone |= frozenset(places)

    # Dead letters and timers: without the gate, at once.

    def _give_up(
        self, id_: str, letters: Mapping[str, Mapping[str, Any]], *, ends_call: bool
    ) -> None:
        """Let dead letters take the place of effects. It may be repeated."""
        changes = [change_of(letter) for letter in letters.values()]
        self._conversations.give_up(id_, letters, changes, ends_call=ends_call)
        self._deadletters.written(*letters.values())

    def _enter_timers(
        self, id_: str, left: deque[Placed], places: Sequence[str], letters: dict[str, Document]
    ) -> None:
        """Write timers to their rows. All of it may be repeated, also by a successor.

        A timer that MongoDB refused once has its place in `letters`, and has no other result.
        """
        # guard: row-before-it-leaves ->
        #     self._conversations.remove(id_, *places)
        #     while left:
        #         self._enter_timer(id_, *left.popleft(), letters)
        while left:
            self._enter_timer(id_, *left[0], letters)
            left.popleft()
        self._conversations.remove(id_, *places)
        with self._lock:
            self._known.get(id_).timers -= frozenset(places)
            self._count -= len(places)
        log.debug("timers entered conversation=%s count=%d", id_, len(places))

    def _enter_timer(
        self, id_: str, place: str, effect: Mapping[str, Any], letters: dict[str, Document]
    ) -> None:
        letter = letters.get(place)
        if letter is None:
            refused = self._schedule.enter(effect)
            if refused is None:
                return
            log.error("timer given up id=%s cause=%s", effect["id"], refused)
            letter = of_effect(effect, id_, cause=refused, attempts=1)
            letters[place] = letter
        self._give_up(id_, {place: letter}, ends_call=False)

    # Repeating until MongoDB has confirmed.

    def _by_step(self, act: Action, failed: str) -> None:
        """Run it on a thread, repeatedly until MongoDB has confirmed it."""
        self._line.step(partial(self._until_confirmed, act, failed))

    def _settle(self, box: ConversationOutbox, act: Callable[[], Action], failed: str) -> None:
        """Run it for a box of this thread until MongoDB has confirmed; then what follows."""

        def pause(error: StoreUnavailable) -> float:
            with self._lock:
                return box.not_confirmed(error)

        self._until_confirmed(act, f"{failed} conversation={box.id}", pause)

    def _until_confirmed(
        self,
        act: Callable[[], Action | None],
        failed: str,
        pause: Callable[[StoreUnavailable], float] | None = None,
        failures: int = 1,
    ) -> None:
        """`pause` returns the pause before the next try; by default it grows."""
        try:
            follow = act()
        except StoreUnavailable as error:
            log.warning("%s, trying again error=%s", failed, error)
            most = self._limits.store_pause_seconds
            seconds = pause_seconds(failures, most=most) if pause is None else pause(error)
            again = partial(self._until_confirmed, act, failed, pause, failures + 1)
            self._line.later(seconds, partial(self._line.step, again))
            return
        if follow is not None:
            follow()


def _arrived_at(send: Send) -> datetime:
    """When the event of a reply arrived; for other sends only the time of the decision is
    stored.
    """
    return send.at if send.token_from is None else min(send.at, send.token_from)


def _told(box: ConversationOutbox, why: str) -> Document:
    channel, _, key = box.id.partition("/")
    first = box.sends[0].send
    return {
        "channel": channel,
        "key": key,
        EVENT_ID: first.event_id,
        EFFECT_ID: first.id,
        "sends": len(box.sends),
        "since": _arrived_at(first),
        "why": f"a send {why}",
    }
