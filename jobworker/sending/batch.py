"""A multicast that carries the same first sends of several conversations. Pure.

This module defines its content and the meaning of LINE's answer. `jobworker.record.batches` stores
it, `jobworker.sending.batching` carries it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import islice
from typing import Any

from jobworker.effects import Call, SendMethod
from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer, named_in
from jobworker.line.gate_order import Standing, Ticket, TurnClass
from jobworker.record.batches import ReadyBatch
from jobworker.sending.conversation_outbox import (
    RATE_LIMITED,
    Caller,
    CallState,
    ConversationOutbox,
    Go,
    MakeLetters,
    Moment,
    Rest,
    SendLimits,
    next_try_words,
)
from jobworker.sending.verdict import (
    QUOTA,
    CallOutcome,
    ReplyUnknown,
    SendVerdict,
    Tried,
    judge,
    outlived,
)


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
        boxes: Iterable[ConversationOutbox],
        *,
        now: float,
        made: Moment,
        limits: SendLimits,
        granted: Callable[[Batch, Ticket], None],
        was_tried: bool = False,
    ) -> None:
        super().__init__(limits, lambda ticket: granted(self, ticket))
        self.ready = ready
        self.messages = messages
        self.boxes = {box.id: box for box in boxes}
        """Its conversations that are in memory."""
        self.call = Call(ready.at, SendMethod.MULTICAST, tuple(ready.members), key=ready.key)
        self.was_tried = was_tried
        self._made = made
        self._worth = [box.standing(now) for box in self.boxes.values()]

    @property
    def users(self) -> list[str]:
        """Its recipients at LINE."""
        return [id_.partition("/")[2] for id_ in self.ready.members]

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

    def plan(self, boottime: float, held_seconds: float) -> MakeLetters | Rest | Go:
        """Return what to do with the turn; `held_seconds` is how long the endpoint is held back."""
        assert self.call is not None
        if cause := outlived(self.call.at, self._made.now(boottime)):
            return MakeLetters(cause, self.given_up_places())
        if held_seconds:
            return self.rest(held_seconds, next_try_words(RATE_LIMITED, held_seconds))
        return Go(self.call, is_new=False)

    def judged(self, answer: LineAnswer | LineError) -> CallOutcome:
        """Return the meaning of an answer; `refused` names conversations.

        An error that may concern one of them does not give up all. If LINE does not name the cause,
        and for a month's limit, which their number may have reached, the next call carries half as
        many.
        """
        assert self.call is not None
        tried = Tried(self.call, (), was_tried=self.was_tried)
        outcome = judge(tried, answer, reply_unknown=ReplyUnknown.PUSH)
        if self.was_tried and outcome.cause == QUOTA:
            # It may have arrived, and its key is valid for another day: the month may have room.
            return CallOutcome(SendVerdict.AGAIN, stands=True, cause=QUOTA)
        if self.was_tried or not isinstance(answer, LineAnswer):
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
