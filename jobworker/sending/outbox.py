"""Carrying out what was recorded: each conversation's outbox, in order, one send at a time.

A send that waits, for its turn or for its next try, is a ticket at the gate or with the clock,
never a blocked thread. Dead letters and timers do not wait behind sends. What dies here is found
by the successor in `pending` and carried on by the rules of `jobworker.sending.verdict`.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

import pymongo

from jobworker.effects import Send, SendMethod, is_timer, of_effect
from jobworker.line.answer import LineAnswer
from jobworker.line.client import answer_or_error
from jobworker.line.gate import Gate, Turn
from jobworker.line.gate_order import Ticket
from jobworker.line.rate_limits import RateLimits
from jobworker.metrics import WorkerMetrics, since_ms
from jobworker.record.conversations import Conversations
from jobworker.record.dead_letters import DeadLetters
from jobworker.record.schedule import Schedule
from jobworker.sending.send import (
    ConversationOutbox,
    Enter,
    Go,
    LineEnds,
    MakeLetter,
    Moment,
    Move,
    NextStep,
    PendingSend,
    Rest,
    SendLimits,
    standing_of,
    told_of,
)
from jobworker.sending.verdict import QUOTA, ReplyUnknown, SendOutcome, SendVerdict, judge
from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.clock import boottime
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.records.effects import EFFECT_ID
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER

log = logging.getLogger(__name__)

LIMITS = SendLimits()
# Outboxes of a predecessor that are loaded by one step.
LOADED_AT_ONCE = 500
# Ids carried out lately: a conversation read before the removal may still show them.
KEPT_GONE = 20_000
# Among the first sends of so many conversations those that wait longest are looked for.
LOOKED_AT = 500

Action = Callable[[], None]
Pause = Callable[[StoreUnavailable], float]
"""How long to wait before a write is repeated that MongoDB did not confirm."""


class Outbox:
    """All outboxes of the process, and what is carried out of them.

    The states of its sends change under one lock (see `jobworker.sending.send`). What a change
    asks for, at the gate, by the clock or in MongoDB, is done when the lock is free.

    `call` posts to LINE: `call(path, body, retry_key=…, **context)` returns its answer or raises
    LineError. `quota_met` is told of a send that LINE refused since the month's messages are used
    up.
    """

    def __init__(
        self,
        *,
        conversations: Conversations,
        deadletters: DeadLetters,
        schedule: Schedule,
        gate: Gate,
        rate_limits: RateLimits,
        call: Callable[..., LineAnswer],
        step: Callable[[Action], None],
        later: Callable[[float, Action], None],
        reply_unknown: ReplyUnknown = ReplyUnknown.PUSH,
        figures: WorkerMetrics | None = None,
        quota_met: Action = lambda: None,
        limits: SendLimits = LIMITS,
    ) -> None:
        self._conversations = conversations
        self._deadletters = deadletters
        self._schedule = schedule
        self._gate = gate
        self._rate_limits = rate_limits
        self._call = call
        self._step = step
        self._later = later
        self._reply_unknown = reply_unknown
        self._figures = figures or WorkerMetrics()
        self._quota_met = quota_met
        self._limits = limits
        self._lock = threading.Lock()
        # All below under _lock.
        self._boxes: dict[str, ConversationOutbox] = {}
        self._ends = LineEnds(limits)
        self._count = 0
        # Ids of timers that are on their way to `schedule`.
        self._timers: set[str] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()
        # Conversations whose outbox a predecessor left and that are not loaded yet; None until that
        # is known.
        self._left: dict[str, None] | None = None
        # Those of them that MongoDB refuses to adopt, each as a person sees it.
        self._refused: dict[str, Document] = {}
        # Conversations adopted in this term whose outbox was added as a whole.
        self._adopted: OrderedDict[str, None] = OrderedDict()

    @property
    def has_room(self) -> bool:
        """Whether reading may go on."""
        return len(self) < self._limits.most_in_all

    @property
    def is_loaded(self) -> bool:
        """Whether all that a predecessor left is known here."""
        return self._left is not None and not self._left

    def __len__(self) -> int:
        """How many effects wait; an outbox that is not loaded yet counts as one."""
        return self._count + len(self._left or ())

    def take_over(self) -> None:
        """Have every outbox that a predecessor left loaded, beside the first decisions.

        A conversation whose event comes first is adopted with its outbox by that.
        """
        self._by_step(self._find_left, "outboxes not found")

    def has_adopted(self, id_: str) -> bool:
        """Whether all that stands in the conversation's outbox is known here.

        Else a record of it has to hand over the whole outbox, or its order is lost.
        """
        with self._lock:
            return id_ in self._adopted

    def waits_for_room(self, id_: str, resume: Action) -> bool:
        """Whether the conversation's outbox is full; then `resume` is called once it is not."""
        with self._lock:
            box = self._boxes.get(id_)
            if box is None or len(box.sends) < self._limits.most_per_conversation:
                return False
            box.waiters.append(resume)
            return True

    def add(self, id_: str, effects: Iterable[Mapping[str, Any]]) -> None:
        """Carry out what was recorded; what is known already, or done, is passed over.

        The first time in a term these are all effects of the conversation, which belongs to this
        process by then.
        """
        follow: list[Action] = []
        timers: list[Mapping[str, Any]] = []
        with self._lock:
            for effect in effects:
                try:
                    if is_timer(effect):
                        timers.append(effect)
                    elif effect["type"] == DEADLETTER:
                        written = partial(self._write_letter, id_, effect)
                        follow.append(partial(self._by_step, written, "dead letter not written"))
                    elif effect["type"] == "send":
                        follow.append(self._append(id_, Send.from_document(effect)))
                    else:
                        log.error("unknown effect left in the outbox id=%s", effect["id"])
                except (KeyError, TypeError, ValueError):
                    # Made by hand, since linedesk writes them whole.
                    log.exception("broken effect left in the outbox conversation=%s", id_)
            follow.append(self._take_timers(id_, timers))
            self._note_adopted(id_)
        for action in follow:
            action()

    def waiting(self, limit: int, *, at_gate: str) -> list[Document]:
        """The sends that wait longest, one a conversation, each with why, for a person.

        `at_gate` is said of those that wait for a turn. Quick, from any thread.
        """
        with self._lock:
            # Boxes go once they are empty, so the oldest come first.
            heads = [(b.id, b.sends[0]) for b in islice(self._boxes.values(), LOOKED_AT)]
            refused = list(self._refused.values())
        heads.sort(key=lambda head: head[1].send.at)
        told = [_told(id_, one, at_gate) for id_, one in heads[:limit]]
        return [*refused, *told][:limit]

    def give_up(self, id_: str, effect_id: str, *, cause: str) -> bool:
        """Have the send become a dead letter if it is the first of the conversation's outbox.

        True as long as that is under way: a call of it ends by itself before, and an outbox has
        to be loaded. Any thread may ask, also again and again.
        """
        with self._lock:
            box = self._boxes.get(id_)
            if box is None or box.sends[0].send.id != effect_id:
                is_loaded = self._left is not None and id_ not in self._left
                # guard: under-way-until-loaded -> return False
                return not is_loaded
            one = box.sends[0]
            step = one.give_up(cause)
        self._do(one, step)
        return True

    # What a predecessor left.

    def _find_left(self) -> None:
        left = self._conversations.with_outbox()
        with self._lock:
            self._left = {id_: None for id_ in left if id_ not in self._adopted}
        self._by_step(partial(self._load, left), "outboxes not loaded")

    def _load(self, left: Sequence[str]) -> None:
        """Load the first of them, and have the others loaded."""
        if not left:
            log.info("outboxes loaded effects=%d", len(self))
            return
        ids, others = left[:LOADED_AT_ONCE], left[LOADED_AT_ONCE:]
        try:
            self._adopt(ids)
        except WriteRefused:
            # Each by itself, so that one that is refused holds up no other.
            for id_ in ids:
                failed = f"outbox not loaded conversation={id_}"
                self._by_step(partial(self._adopt_one, id_), failed)
        self._by_step(partial(self._load, others), "outboxes not loaded")

    def _adopt_one(self, id_: str) -> None:
        try:
            self._adopt([id_])
        except WriteRefused as error:
            with self._lock:
                self._refused.setdefault(id_, _told_of_refused(id_, error))
            raise

    def _adopt(self, ids: Sequence[str]) -> None:
        adopted = {one["_id"]: one for one in self._conversations.adopt_all(ids)}
        # The oldest first, as they were found.
        for id_ in ids:
            if id_ in adopted:
                self.add(id_, adopted[id_].get("pending") or ())
        with self._lock:
            self._forget_left(ids)

    # Under the lock; what they return is done without it.

    def _append(self, id_: str, send: Send) -> Action:
        box = self._boxes.get(id_) or ConversationOutbox(id_, self._limits, self._ends)
        if send.id in self._gone or send.id in box.ids:
            return lambda: None
        self._boxes[id_] = box
        made = Moment(datetime.now(UTC), boottime())
        standing = standing_of(send, id_, self._limits, now=time.monotonic(), at=made.at)
        one = PendingSend(send, standing, conversation=id_, limits=self._limits, made=made)
        moved = box.append(one)
        self._count += 1
        first = box.sends[0]
        step = one.first(self._ticket(one)) if first is one else moved
        return partial(self._do, first, step)

    def _take_timers(self, id_: str, timers: Iterable[Mapping[str, Any]]) -> Action:
        """Take timers in hand, all in one step.

        Those that have left their outbox may come once more: their numbers make it harmless.
        """
        fresh = {one["id"]: one for one in timers if one["id"] not in self._timers}
        if not fresh:
            return lambda: None
        self._timers.update(fresh)
        self._count += len(fresh)
        entered = partial(self._enter_timers, id_, deque(fresh.values()), list(fresh), {})
        return partial(self._by_step, entered, "timers not entered")

    def _ticket(self, one: PendingSend) -> Ticket:
        standing = self._boxes[one.conversation].standing(time.monotonic())
        return Ticket(standing, granted=partial(self._take_turn, one))

    def _note_adopted(self, id_: str) -> None:
        self._forget_left([id_])
        self._adopted[id_] = None
        if len(self._adopted) > self._limits.most_adopted:
            self._adopted.popitem(last=False)

    def _forget_left(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._refused.pop(id_, None)
            if self._left is not None:
                self._left.pop(id_, None)

    # A send: everything from here on happens without the lock, save its changes of state.

    def _do(self, one: PendingSend, step: NextStep | None) -> None:
        """What a change of the send's state asks for."""
        match step:
            case Enter(ticket):
                self._gate.enter(ticket)
            case Move(ticket, standing):
                self._gate.move(ticket, standing)
            case Rest(seconds):
                self._later(seconds, partial(self._wake, one))
            case MakeLetter(cause, ticket):
                if ticket is not None:
                    self._gate.cancel(ticket)
                self._step(partial(self._make_letter, one, cause))

    def _wake(self, one: PendingSend) -> None:
        with self._lock:
            step = one.wake(partial(self._ticket, one))
        self._do(one, step)

    def _take_turn(self, one: PendingSend, ticket: Ticket) -> None:
        """On a thread of the pool: the gate's turn has come."""
        with self._gate.holding(ticket) as turn:
            with self._lock:
                if not one.turn(ticket):
                    return
                plan = one.plan(one.now(boottime()), self._rate_limits.seconds)
            if isinstance(plan, Go):
                follow = self._go(one, plan, turn)
            else:
                follow = partial(self._do, one, plan)
        # The gate is free for others by now.
        follow()

    def _go(self, one: PendingSend, go: Go, turn: Turn) -> Action:
        """Write the try down, then call; returns what follows once the gate is free."""
        hindrance = self._note(one, go.note) if go.note is not None else None
        if hindrance is not None:
            return hindrance
        if not turn.may_call():
            return partial(self._call_off, one, go)
        turn.begin()
        one.calling()
        started = one.now(boottime())
        log.debug(
            "sending id=%s way=%s wait_ms=%.1f since_accept_ms=%.1f",
            one.send.id,
            go.way.value,
            turn.waited_seconds * 1000,
            since_ms(one.send.token_from or one.send.at),
        )
        one.answer = answer_or_error(partial(self._post, one, go.way))
        # Before the gate is free for the next to the same endpoint.
        self._rate_limits.note(go.way.path, one.answer)
        return partial(self._judge, one, go.way, started)

    def _note(self, one: PendingSend, tried: Send) -> Action | None:
        """Write the try down, before anything leaves; returns what follows where that fails."""
        try:
            with pymongo.timeout(self._limits.note_seconds):
                is_pending = self._conversations.note_try(one.conversation, tried.as_document())
        except WriteRefused as error:
            # No call without its note; as a dead letter it leaves room for those behind it.
            return partial(self._do, one, MakeLetter(str(error)))
        except StoreUnavailable as error:
            log.warning("try not written down, waiting id=%s error=%s", tried.id, error)
            # Nothing was called, so it stays fresh here; a successor may see it as tried, and
            # then takes the careful road for nothing.
            with self._lock:
                step = one.not_noted(error)
            return partial(self._do, one, step)
        if not is_pending:
            log.info("send is no longer pending id=%s", tried.id)
            return partial(self._finished, one)
        one.noted(tried)
        return None

    def _call_off(self, one: PendingSend, go: Go) -> None:
        """The gate did not let it call: the lease is not fresh, or the process stops."""
        one.called_off(go)
        # guard: stop-strikes-out
        if go.note is not None and self._gate.is_closed:
            self._strike_out(one)
        with self._lock:
            step = one.again(self._ticket(one))
        self._do(one, step)

    def _strike_out(self, one: PendingSend) -> None:
        """A successor would take the try that was not made for one of unknown outcome."""
        try:
            with pymongo.timeout(self._limits.note_seconds):
                self._conversations.note_try(one.conversation, one.send.as_document())
        except StoreUnavailable as error:
            log.warning("try not struck out id=%s error=%s", one.send.id, error)

    def _post(self, one: PendingSend, way: SendMethod) -> LineAnswer:
        send = one.send
        body: dict[str, Any] = {"messages": send.messages}
        if way is SendMethod.REPLY:
            body["replyToken"] = send.token
        else:
            body["to"] = send.to
        return self._call(
            way.path,
            body,
            retry_key=None if way is SendMethod.REPLY else send.retry_key,
            eventId=send.event_id,
            key=one.conversation.partition("/")[2],
            attempt=one.calls,
        )

    def _judge(self, one: PendingSend, way: SendMethod, started: datetime) -> None:
        """Settle the answer, all on this thread: a stop drops steps, and the next process would
        take a try that LINE refused for one of unknown outcome.
        """
        outcome = judge(
            one.send,
            way,
            one.answer,
            was_tried=one.was_tried,
            started=started,
            reply_unknown=self._reply_unknown,
        )
        if outcome.unproved:
            log.warning("reply of unknown outcome, not provable id=%s", one.send.id)
            self._figures.unproved_replies.inc()
        if outcome.cause == QUOTA:
            self._quota_met()
        if outcome.ending is SendVerdict.AGAIN:
            settle = partial(self._write_answer, one, outcome)
            self._settle(one, settle, "answer not written down")
        elif outcome.ending is SendVerdict.DEAD:
            self._make_letter(one, one.refused(outcome).cause)
        else:
            settle = partial(self._remove, one)
            self._settle(one, settle, "send not removed")

    def _write_answer(self, one: PendingSend, outcome: SendOutcome) -> Action:
        """Make durable what the answer changed of the try, before another one."""
        # guard: refusal-is-durable-first
        if outcome.send != one.send:
            self._conversations.note_try(one.conversation, outcome.send.as_document())
        return partial(self._try_again, one, outcome)

    def _try_again(self, one: PendingSend, outcome: SendOutcome) -> None:
        with self._lock:
            # One on which LINE always fails would else be the breaker's probe each time.
            self._boxes[one.conversation].called(time.monotonic(), unanswered=outcome.unanswered)
            step = one.failed(outcome, partial(self._ticket, one))
        if isinstance(step, MakeLetter):
            self._make_letter(one, step.cause)
            return
        self._figures.send_retries.inc()
        if isinstance(step, Rest):
            log.warning(
                "send not accepted, trying again id=%s answer=%s seconds=%.1f",
                *(one.send.id, told_of(one.answer), step.seconds),
            )
        self._do(one, step)

    def _remove(self, one: PendingSend) -> Action:
        self._conversations.remove(one.conversation, one.send.id)
        return partial(self._finished, one)

    def _make_letter(self, one: PendingSend, cause: str) -> None:
        """Give it up: no successor tries it again from here on, wherever this process dies."""
        send = one.send
        log.error("send given up id=%s cause=%s answer=%s", send.id, cause, told_of(one.answer))
        letter = of_effect(send.as_document(), one.conversation, cause=cause, attempts=one.calls)

        def give_up() -> Action:
            self._give_up(one.conversation, letter)
            return partial(self._finished, one)

        self._settle(one, give_up, "dead letter not written")

    def _finished(self, one: PendingSend) -> None:
        """The first send left its outbox: the next one follows."""
        with self._lock:
            box = self._boxes[one.conversation]
            box.pop()
            if one.calls:
                box.called(time.monotonic())
            one.gone()
            self._count -= 1
            self._remember(one.send.id)
            following = box.sends[0] if box.sends else None
            if following is None:
                del self._boxes[one.conversation]
                step = None
            else:
                step = following.first(self._ticket(following))
            waiters, box.waiters = box.waiters, []
        if following is not None:
            self._do(following, step)
        for resume in waiters:
            resume()

    def _remember(self, effect_id: str) -> None:
        """Under the lock."""
        self._gone[effect_id] = None
        if len(self._gone) > KEPT_GONE:
            self._gone.popitem(last=False)

    # Dead letters and timers: without the gate, at once.

    def _give_up(self, id_: str, letter: Mapping[str, Any]) -> None:
        """Make a dead letter of an effect. All of it may be repeated, also by a successor.

        The outbox has it as a letter before others can see and replay it: else a successor might
        carry out what was replayed as well.
        """
        # guard: letter-in-the-outbox-first
        self._conversations.give_up(id_, letter)
        self._write_letter(id_, letter)

    def _write_letter(self, id_: str, letter: Mapping[str, Any]) -> None:
        """Bring a letter that stands in the outbox to `deadletters`."""
        self._deadletters.write(letter)
        self._conversations.remove(id_, letter["id"])

    def _enter_timers(
        self,
        id_: str,
        left: deque[Mapping[str, Any]],
        ids: Sequence[str],
        letters: dict[str, Document],
    ) -> None:
        """Bring timers to their rows. All of it may be repeated, also by a successor.

        What MongoDB refused once has its place in `letters`, and nothing else becomes of it.
        """
        # guard: row-before-it-leaves ->
        #     self._conversations.remove(id_, *ids)
        #     while left:
        #         self._enter_timer(id_, left.popleft(), letters)
        while left:
            self._enter_timer(id_, left[0], letters)
            left.popleft()
        self._conversations.remove(id_, *ids)
        with self._lock:
            self._timers.difference_update(ids)
            self._count -= len(ids)
        log.debug("timers entered conversation=%s count=%d", id_, len(ids))

    def _enter_timer(
        self, id_: str, effect: Mapping[str, Any], letters: dict[str, Document]
    ) -> None:
        letter = letters.get(effect["id"])
        if letter is None:
            refused = self._schedule.enter(effect)
            if refused is None:
                return
            log.error("timer given up id=%s cause=%s", effect["id"], refused)
            letter = of_effect(effect, id_, cause=refused, attempts=1)
            letters[effect["id"]] = letter
        self._give_up(id_, letter)

    # Until MongoDB has confirmed.

    def _by_step(self, act: Action, failed: str) -> None:
        """Have a thread do it, again and again until MongoDB has confirmed it."""
        failures = itertools.count(1)

        def pause(_: StoreUnavailable) -> float:
            return pause_seconds(next(failures), most=self._limits.store_pause_seconds)

        self._step(partial(self._until_confirmed, act, failed, pause))

    def _settle(self, one: PendingSend, act: Callable[[], Action], failed: str) -> None:
        """Do it for a send that this thread has, until MongoDB has confirmed; then what follows."""

        def pause(error: StoreUnavailable) -> float:
            with self._lock:
                return one.not_confirmed(error)

        self._until_confirmed(act, f"{failed} id={one.send.id}", pause)

    def _until_confirmed(self, act: Callable[[], Action | None], failed: str, pause: Pause) -> None:
        try:
            follow = act()
        except StoreUnavailable as error:
            log.warning("%s, trying again error=%s", failed, error)
            again = partial(self._until_confirmed, act, failed, pause)
            self._later(pause(error), partial(self._step, again))
            return
        if follow is not None:
            follow()


def _told_of_refused(id_: str, error: WriteRefused) -> Document:
    channel, _, key = id_.partition("/")
    unknown = {EVENT_ID: "", EFFECT_ID: "", "since": datetime.now(UTC)}
    return {"channel": channel, "key": key, **unknown, "why": f"its outbox waits: {error}"}


def _told(id_: str, one: PendingSend, at_gate: str) -> Document:
    channel, _, key = id_.partition("/")
    send = one.send
    return {
        "channel": channel,
        "key": key,
        EVENT_ID: send.event_id,
        EFFECT_ID: send.id,
        "since": send.at,
        "why": f"a send waits: {one.reason}" if one.reason else at_gate,
    }
