"""Carries out what a call came to: LINE's verdict, a pause, dead letters, the next turn.

All that an outcome changes is durable before anything that depends on it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from jobworker.effects import Call, SendMethod, of_effect
from jobworker.line.quota import Quota
from jobworker.line.side_call import Action, Line
from jobworker.record.batches import Batches, ReadyBatch
from jobworker.record.conversations import ConversationStore
from jobworker.record.dead_letters import DeadLetters, change_of
from jobworker.record.waiting_answers import waiting_again
from jobworker.sending.batch import Batch
from jobworker.sending.conversation_outbox import (
    Caller,
    CallState,
    ConversationOutbox,
    Enter,
    MakeLetters,
    Move,
    NextStep,
    PutBack,
    Rest,
    SendLimits,
    told_of,
)
from jobworker.sending.outboxes import Outboxes
from jobworker.sending.verdict import CallOutcome, SendVerdict
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.outage import MONGODB
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.records.letters import NOT_FETCHED, QUOTA, RELEASED, Cause

log = logging.getLogger(__name__)


class Outcomes:
    """The outcomes of all calls, for conversations and for batches. `quota` gets the refusals for
    the month, and what was paid.
    """

    def __init__(
        self,
        line: Line,
        boxes: Outboxes,
        *,
        conversations: ConversationStore,
        deadletters: DeadLetters,
        batches: Batches,
        quota: Quota,
        limits: SendLimits,
    ) -> None:
        self.boxes = boxes
        self.conversations = conversations
        self._deadletters = deadletters
        self._rows = batches
        self._line = line
        self._figures = line.figures
        self._quota = quota
        self._limits = limits
        self._lock = boxes.lock

    # Changes of state: all code from here on runs without the lock, except for them.

    def do(self, caller: Caller, step: NextStep | None) -> None:
        """Carry out the action of a change of state."""
        match step:
            case Enter(ticket):
                self._line.gate.enter(ticket)
            case Move(ticket, standing):
                self._line.gate.move(ticket, standing)
            case Rest(seconds):
                self._line.later(seconds, partial(self._wake, caller, step))
            case PutBack(place):
                assert isinstance(caller, ConversationOutbox), "a batch has no answers"
                self._line.step(partial(self._put_back, caller, place))
            case MakeLetters():
                if step.ticket is not None:
                    self._line.gate.cancel(step.ticket)
                self._line.step(partial(self._give_up, caller, step))

    def _wake(self, caller: Caller, rest: Rest) -> None:
        with self._lock:
            step = caller.wake(rest, time.monotonic())
        self.do(caller, step)

    def month_closed(self) -> None:
        """LINE accepts no more pushes: calls that rest until that is known can continue."""
        with self._lock:
            now = time.monotonic()
            steps = [(box, box.month_closed(now)) for box in self.boxes]
        for box, step in steps:
            self.do(box, step)

    def release(self, callers: Iterable[Caller]) -> None:
        """They wait for turns of their own, each in its old place."""
        now = time.monotonic()
        with self._lock:
            steps = [(one, one.again(now)) for one in callers]
        for one, step in steps:
            self.do(one, step)

    # LINE's verdict: settled on the thread of the call, since a stop drops steps, and the next
    # process would treat a refused call as one of unknown outcome.

    def settle(self, caller: Caller, outcome: CallOutcome, people: int) -> None:
        call = caller.call
        assert call is not None, "it was made"
        if call.way is not SendMethod.REPLY:
            if outcome.cause == QUOTA:
                self._quota.met()
            elif outcome.ending is SendVerdict.SENT:
                self._quota.paid(people)
        if outcome.stands and outcome.ending is SendVerdict.AGAIN:
            self._try_again(caller, call, outcome)
        elif isinstance(caller, Batch):
            self._settle_batch(caller, outcome)
        elif isinstance(caller, ConversationOutbox):
            self._settle_call(caller, call, outcome)

    def _settle_call(self, box: ConversationOutbox, call: Call, outcome: CallOutcome) -> None:
        if outcome.unproved:
            log.warning("reply of unknown outcome, not provable conversation=%s", box.id)
            self._figures.add("unproved_replies")
        if outcome.ending is SendVerdict.AGAIN:
            end = partial(self._end_refused, box, call, outcome)
            self._confirm(box, end, "answer not recorded")
        elif outcome.ending is SendVerdict.DEAD:
            unknown = call if outcome.stands else None
            self._make_letters(
                box, outcome.refused, outcome.cause, unknown=unknown, causes=outcome.causes
            )
        elif outcome.ending is SendVerdict.SENT and self.conversations.end_later(box.id, call):
            self.remove(box, call.members)
        else:
            self._confirm(box, partial(self._end_sent, box, call), "send not removed")

    def _end_refused(self, box: ConversationOutbox, call: Call, outcome: CallOutcome) -> Action:
        """Make the answer's changes durable before another try."""
        # guard: refusal-is-durable-first
        with self._lock:
            used_up = box.used_up(call) if outcome.token_used_up else ()
        self.conversations.end_call(box.id, used_up=used_up)
        return partial(self._try_again, box, call, outcome)

    def _end_sent(self, box: ConversationOutbox, call: Call) -> Action:
        self.conversations.end_call(box.id, done=call.members)
        return partial(self.remove, box, call.members)

    def _try_again(self, caller: Caller, call: Call, outcome: CallOutcome) -> None:
        """The answer's changes are durable. A call of unknown outcome is the same one again."""
        now = time.monotonic()
        with self._lock:
            given_up: list[ConversationOutbox] = []
            if isinstance(caller, Batch):
                given_up = [box for box in caller.boxes.values() if box.given_up_for]
            elif isinstance(caller, ConversationOutbox):
                # One on which LINE always fails must not be the breaker's probe each time.
                caller.apply(call, outcome)
                caller.called(now, unanswered=outcome.unanswered)
            step: NextStep = caller.failed(outcome, now)
            # The reading may have ended before the rest that it would end.
            # guard: closed-before-the-rest -> never
            if outcome.cause == QUOTA and not outcome.stands and self._quota.month.is_closed:
                step = caller.month_closed(now) or step
            follow = [self._drop(box) for box in given_up]
        for action in follow:
            action()
        if isinstance(step, MakeLetters):
            self._give_up(caller, step)
            return
        self._figures.add("send_retries")
        if isinstance(step, Rest):
            log.warning(
                "call not accepted, trying again %s answer=%s seconds=%.1f",
                *(caller.name, told_of(caller.answer), step.seconds),
            )
        self.do(caller, step)

    def remove(self, box: ConversationOutbox, places: Sequence[str]) -> None:
        """Sends have left the outbox in MongoDB: those behind them follow."""
        now = time.monotonic()
        with self._lock:
            if box.calls:
                box.called(now)
            self.boxes.remove(box, places)
            step = box.begin(now) if box.sends else None
            waiters, box.waiters = box.waiters, []
        self.do(box, step)
        for resume in waiters:
            resume()

    def _put_back(self, box: ConversationOutbox, place: str) -> None:
        """Let an answer wait for another tap; it becomes a dead letter if no tap could bring it."""
        [send] = [one.send for one in box.sends if one.place == place]

        def put_back() -> Action:
            name, entry = send.answer_to or "", waiting_again(send)
            if self.conversations.put_back(box.id, place, name, entry):
                log.info("answer waits for another tap event_id=%s", send.event_id)
                return partial(self.remove, box, [place])
            return partial(self._make_letters, box, [place], NOT_FETCHED)

        self._confirm(box, put_back, "answer not put back")

    # Of a batch.

    def _settle_batch(self, batch: Batch, outcome: CallOutcome) -> None:
        if outcome.ending is SendVerdict.SENT:
            self.end_batch(batch.ready, partial(self._sent, batch), done=True)
        elif outcome.stands:
            self._give_up_batch(batch, outcome.cause)
        else:
            self.end_batch(batch.ready, partial(self._refused, batch, outcome))

    def end_batch(self, ready: ReadyBatch, follow: Action, *, done: bool = False) -> None:
        """End a batch, of which LINE has all or nothing."""

        def end() -> Action:
            self._rows.end(ready, done=done)
            return follow

        self.until_confirmed(end, f"batch not removed batch={ready.key}")

    def _sent(self, batch: Batch) -> None:
        members = batch.ready.members
        with self._lock:
            boxes = self._forget(batch)
            for id_ in members.keys() - {box.id for box in boxes}:
                conversation = self.boxes.known.get(id_)
                if conversation.is_unloaded:
                    # Its outbox may have been read before they left, and be loaded later.
                    conversation.gone |= frozenset(members[id_])
        for box in boxes:
            self.remove(box, members[box.id])

    def _refused(self, batch: Batch, outcome: CallOutcome) -> None:
        """None of it has reached LINE, and its conversations are free."""
        half = max(1, len(batch.ready.members) // 2)
        is_dead = outcome.ending is SendVerdict.DEAD
        now = time.monotonic()
        with self._lock:
            boxes = self._forget(batch)
            free = [box for box in boxes if box.id not in outcome.refused]
            for box in boxes:
                box.answer = batch.answer
                box.most_users = half if outcome.narrower else box.most_users
            # All in one step: the first one that gets a turn takes the others along.
            steps = [box.again(now) if is_dead else box.failed(outcome, now) for box in free]
        for box in boxes:
            if box.id in outcome.refused:
                self._make_letters(box, batch.ready.members[box.id], outcome.cause)
        for box, step in zip(free, steps, strict=True):
            self.do(box, step)

    def freed(self, batch: Batch) -> None:
        """It was not called, and its conversations are free."""
        with self._lock:
            boxes = self._forget(batch)
        self.release(boxes)

    def _forget(self, batch: Batch) -> list[ConversationOutbox]:
        """Under the lock: it has ended; returns its conversations."""
        self.boxes.batches.pop(batch.ready.key, None)
        boxes = list(batch.boxes.values())
        batch.release(*boxes)
        return boxes

    # Sends that are given up.

    def give_up(self, id_: str, effect_id: str, *, cause: Cause) -> bool:
        """Make the send a dead letter if it is the first of the conversation's outbox.

        Returns True while that is under way: a call of it ends by itself first, and an outbox may
        have to be loaded. Any thread may ask, also repeatedly.
        """
        follow: Action | None = None
        with self._lock:
            box = self.boxes.find(id_)
            if box is None or box.sends[0].send.id != effect_id:
                # guard: under-way-until-loaded -> return False
                return self.boxes.known.get(id_).is_unloaded
            step = box.give_up(cause)
            if box.batch is not None and box.batch.state is not CallState.BUSY:
                follow = self._drop(box)
        self.do(box, step)
        if follow is not None:
            follow()
        return True

    def _drop(self, box: ConversationOutbox) -> Action:
        """Under the lock: it leaves its batch; LINE may have its sends all the same."""
        batch = box.batch
        assert isinstance(batch, Batch), "it is in one"
        batch.release(box)
        return partial(self._letters, batch, box, box.given_up_for or RELEASED)

    def _give_up(self, caller: Caller, step: MakeLetters) -> None:
        if isinstance(caller, Batch):
            self._give_up_batch(caller, step.cause)
        elif isinstance(caller, ConversationOutbox):
            self._make_letters(caller, step.places, step.cause, unknown=caller.unknown_call)

    def _give_up_batch(self, batch: Batch, cause: Cause) -> None:
        """Its outcome is unknown, and it is not repeated any more."""

        def give_up() -> Action:
            with self._lock:
                boxes = list(batch.boxes.values())
                batch.release(*boxes)
            for box in boxes:
                self._letters(batch, box, cause)
            if self._rows.messages(batch.ready) is not None:
                raise StoreUnavailable("not all of its conversations have left it yet")
            self._rows.remove(batch.ready.key)
            return partial(self.freed, batch)

        self.until_confirmed(give_up, f"batch not given up batch={batch.ready.key}")

    def _letters(self, batch: Batch, box: ConversationOutbox, cause: Cause) -> None:
        box.answer = batch.answer
        self._make_letters(box, batch.ready.members[box.id], cause, unknown=batch.unknown_call)

    def _make_letters(
        self,
        box: ConversationOutbox,
        places: Sequence[str],
        cause: Cause,
        *,
        unknown: Call | None = None,
        causes: Mapping[str, Cause] | None = None,
    ) -> None:
        """Give sends up. `unknown` is a call that LINE may have; `causes` are of some places."""
        wanted, letters = set(places), {}
        with self._lock:
            given_up = [one for one in box.sends if one.place in wanted]
        for one in given_up:
            send = one.send if unknown is None else one.send.tried(unknown)
            own = (causes or {}).get(one.place, cause)
            log.error("send given up id=%s cause=%s answer=%s", send.id, own, told_of(box.answer))
            effect = send.as_document()
            letters[one.place] = of_effect(effect, box.id, cause=own, attempts=box.calls)

        def give_up() -> Action:
            self.write_letters(box.id, letters, ends_call=True)
            return partial(self.remove, box, list(letters))

        self._confirm(box, give_up, "dead letter not written")

    def write_letters(
        self, id_: str, letters: Mapping[str, Mapping[str, Any]], *, ends_call: bool
    ) -> None:
        """Let dead letters take the place of effects. It may be repeated. Raises
        StoreUnavailable.
        """
        changes = [change_of(letter) for letter in letters.values()]
        self.conversations.give_up(id_, letters, changes, ends_call=ends_call)
        self._deadletters.written(*letters.values())

    # Repeating until MongoDB has confirmed.

    def by_step(self, act: Callable[[], Action | None], failed: str) -> None:
        """Run it on a thread, repeatedly until MongoDB has confirmed it; then what follows."""
        self._line.step(partial(self.until_confirmed, act, failed))

    def _confirm(self, box: ConversationOutbox, act: Callable[[], Action], failed: str) -> None:
        """Run it for a box of this thread, which says meanwhile why it waits."""
        self.until_confirmed(act, f"{failed} {box.name}", box)

    def until_confirmed(
        self,
        act: Callable[[], Action | None],
        failed: str,
        box: ConversationOutbox | None = None,
        failures: int = 1,
    ) -> None:
        """Run it, repeatedly with growing pauses until MongoDB has confirmed; then what follows."""
        try:
            follow = act()
        except StoreUnavailable as error:
            if isinstance(error, WriteRefused):
                log.warning("%s, trying again error=%s", failed, error)
            else:
                MONGODB.fails(failed, error)
            seconds = pause_seconds(failures, most=self._limits.store_pause_seconds)
            if box is not None:
                with self._lock:
                    seconds = box.not_confirmed(error)
            again = partial(self.until_confirmed, act, failed, box, failures + 1)
            self._line.later(seconds, partial(self._line.step, again))
            return
        MONGODB.works(failed)
        if follow is not None:
            follow()
