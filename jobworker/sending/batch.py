"""A multicast that carries the same first sends of several conversations. Pure.

This module defines its content and the meaning of LINE's answer. `jobworker.record.batches` stores
it, `jobworker.sending.sender` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from itertools import islice
from typing import Any

from jobworker.effects import Call, SendMethod
from jobworker.line.answer import LineAnswer, named_in
from jobworker.line.gate_order import Standing, Ticket
from jobworker.record.batches import ReadyBatch
from jobworker.sending.conversation_outbox import (
    NO_LIMIT,
    Budget,
    Caller,
    CallState,
    ConversationOutbox,
    Go,
    MakeLetters,
    Moment,
    Request,
    Rest,
    SendLimits,
)
from jobworker.sending.verdict import CallOutcome, ReplyUnknown, SendVerdict, Tried, judge, outlived
from linedesk.store.documents import Document
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.letters import QUOTA
from linedesk.store.records.waits import Why, reason


def company_of(
    box: ConversationOutbox, others: Iterable[ConversationOutbox], boottime: float
) -> list[ConversationOutbox]:
    """Return the waiting conversations with the same first sends; none unless both may share a
    call.

    A conversation with a waiting answer and a valid token is called by itself, for free.
    """
    if not box.may_share(boottime):
        return []
    most = box.most_users - 1
    same = (
        one
        for one in others
        if one is not box
        and one.state is CallState.WAITING
        and one.body == box.body
        and one.most_users > 1
        and one.may_share(boottime)
    )
    return list(islice(same, most))


class Batch(Caller):
    """One multicast that is ready, or on its way to LINE; see the table of `Caller`.

    Its conversations are BUSY until it has LINE's verdict. Recipients and body are fixed: a
    conversation that is given up meanwhile leaves the batch, and LINE is called for it all the
    same.
    """

    def __init__(
        self,
        ready: ReadyBatch,
        messages: Sequence[Mapping[str, Any]],
        boxes: Sequence[ConversationOutbox],
        *,
        now: float,
        made: Moment,
        limits: SendLimits,
        granted: Callable[[Batch, Ticket], None],
        is_tried: bool = False,
    ) -> None:
        super().__init__(f"batch={ready.key}", limits, partial(granted, self))
        self.ready = ready
        self.messages = messages
        self.call = Call(ready.at, SendMethod.MULTICAST, tuple(ready.members), key=ready.key)
        self.is_tried = is_tried
        self.boxes: dict[str, ConversationOutbox] = {}
        """Its conversations that are in memory."""
        self._made = made
        self._worth = [box.standing(now) for box in boxes]
        for box in boxes:
            self.join(box)

    def join(self, box: ConversationOutbox) -> Ticket | None:
        """It has the first sends of a conversation; returns the ticket to cancel."""
        self.boxes[box.id], box.batch = box, self
        return box.take_along()

    def release(self, *boxes: ConversationOutbox) -> None:
        """These conversations are no longer in it."""
        for box in boxes:
            del self.boxes[box.id]
            box.batch = None

    def standing(self, now: float) -> Standing:
        """Return the best standing of its conversations when it was made. After a call it is at the
        end of the line, and like any other push while LINE has not answered.
        """
        turn_class = TurnClass.OTHER if self._unanswered else TurnClass.CHAT
        last = Standing(turn_class, now + self._limits.push_seconds)
        return last if self.calls else reduce(Standing.with_other, self._worth, last).at(now)

    def given_up_places(self) -> Sequence[str]:
        """All its conversations."""
        return tuple(self.ready.members)

    def waits_for(self, at_gate: Callable[[TurnClass], Document]) -> Document:
        return {**super().waits_for(at_gate), "people": len(self.ready.members)}

    def plan(
        self, boottime: float, held_seconds: Callable[[str], float], budget: Budget = NO_LIMIT
    ) -> MakeLetters | Rest | Go:
        call = self.call
        assert call is not None, "it was stored with its claims"
        if cause := outlived(call.at, self._made.now(boottime)):
            return MakeLetters(cause, self.given_up_places())
        if seconds := held_seconds(call.way.path):
            return self.rest(seconds, reason(Why.RATE_LIMITED, seconds))
        return Go(call, is_new=not self.is_tried)

    def begin_call(self) -> None:
        super().begin_call()
        for box in self.boxes.values():
            box.calls += 1

    def request(self, call: Call) -> Request:
        """Its recipients are fixed, and so are its messages."""
        sends = [
            (box.chat, one.send)
            for box in self.boxes.values()
            for one in box.sends
            if one.place in self.ready.members[box.id]
        ]
        users = [id_.partition("/")[2] for id_ in self.ready.members]
        return Request({"to": users, "messages": self.messages}, sends)

    def judged(self, go: Go, boottime: float) -> CallOutcome:
        """Return the meaning of LINE's last answer; `refused` names conversations.

        An error that may concern one of them does not give up all. If LINE does not name the cause,
        and for a month's limit, which their number may have reached, the next call carries half as
        many.
        """
        answer, was_tried = self.answer, not go.is_new
        tried = Tried(go.call, (), was_tried=was_tried)
        outcome = judge(tried, answer, reply_unknown=ReplyUnknown.PUSH)
        if was_tried and outcome.cause == QUOTA:
            # It may have arrived, and its key is valid for another day: the month may have room.
            return CallOutcome(SendVerdict.AGAIN, stands=True, cause=QUOTA)
        if was_tried or not isinstance(answer, LineAnswer):
            return outcome
        if outcome.ending is not SendVerdict.DEAD:
            return outcome
        ids = list(self.ready.members)
        named = [ids[i] for i in named_in(answer, "to") if i < len(ids)]
        if named:
            return replace(outcome, refused=named)
        if named_in(answer, "messages"):
            return outcome
        return CallOutcome(SendVerdict.AGAIN, narrower=True, cause=outcome.cause, wait_seconds=0)
