"""Carrying out what was recorded: each conversation's outbox, in order, one send at a time.

A send that waits, for its turn or for its next try, is an object in the gate or with the clock,
never a blocked thread. Dead letters and timers do not wait behind sends. What dies here is found
by the successor in `pending` and carried on by the rules of `jobworker.sending.delivery`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from typing import Any

from jobworker.effects import Send, is_timer
from jobworker.sending.entering import Entering
from jobworker.sending.sending import Sending
from jobworker.sending.settling import Tools
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable, WriteRefused

log = logging.getLogger(__name__)

# Beyond these the key is set aside, and reading pauses (architecture: step 9).
MOST_PER_CONVERSATION = 100
MOST_IN_ALL = 10_000
# Conversations of which it is remembered that all of their outbox is in memory, some megabytes.
# One that was forgotten costs one write more with its next event.
MOST_ADOPTED = 50_000
# Outboxes of a predecessor that are loaded by one step.
LOADED_AT_ONCE = 500
# Ids carried out lately: a conversation read before the removal may still show them.
KEPT_GONE = 20_000
# A send without a token is served within this of its recording, as far as the gate allows.
PUSH_SECONDS = 60.0
STORE_AGAIN_SECONDS = 5.0
# Among the first sends of so many conversations those that wait longest are looked for.
LOOKED_AT = 500


class ConversationOutbox:
    """One conversation's sends in order; the first is in the gate, with a thread or waiting.

    Each is due at a time of its own, and the first inherits the earliest.
    """

    __slots__ = ("_urgent", "id", "ids", "sends", "waiters")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.ids: set[str] = set()
        self.sends: deque[Sending] = deque()
        # Those that are due before all behind them, with their times; so the earliest is first.
        self._urgent: deque[tuple[float, Sending]] = deque()
        # Jobs of the key that were set aside until there is room.
        self.waiters: list[Callable[[], None]] = []

    def append(self, sending: Sending, due: float) -> bool:
        """Put a send behind the others; whether the first one became more urgent by it."""
        self.ids.add(sending.send.id)
        self.sends.append(sending)
        while self._urgent and self._urgent[-1][0] > due:
            self._urgent.pop()
        self._urgent.append((due, sending))
        first = self.sends[0]
        earlier = due < first.deadline
        first.deadline = min(due, first.deadline)
        return earlier

    def pop(self) -> Sending:
        """Take the first send out."""
        first = self.sends.popleft()
        self.ids.remove(first.send.id)
        if self._urgent[0][1] is first:
            self._urgent.popleft()
        if self.sends:
            self.sends[0].deadline = self._urgent[0][0]
        return first

    def put_off(self, now: float, due: float) -> None:
        """Have the first send be due later, but not after one behind it whose time is to come."""
        first = self.sends[0]
        behind = [at for at, one in islice(self._urgent, 2) if one is not first and at > now]
        first.deadline = min([due, *behind])


class Outbox:
    """All outboxes of the process, and what is carried out of them."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self._lock = threading.Lock()
        # All below under _lock.
        self._boxes: dict[str, ConversationOutbox] = {}
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
        return len(self) < MOST_IN_ALL

    def __len__(self) -> int:
        """How many effects wait; an outbox that is not loaded yet counts as one."""
        return self._count + len(self._left or ())

    def take_over(self) -> None:
        """Have every outbox that a predecessor left loaded, beside the first decisions.

        A conversation whose event comes first is adopted with its outbox by that.
        """
        self._until_confirmed(self._find_left, "outboxes not found")

    def has_adopted(self, id_: str) -> bool:
        """Whether all that stands in the conversation's outbox is known here.

        Else a record of it has to hand over the whole outbox, or its order is lost.
        """
        with self._lock:
            return id_ in self._adopted

    def waits_for_room(self, id_: str, resume: Callable[[], None]) -> bool:
        """Whether the conversation's outbox is full; then `resume` is called once it is not."""
        with self._lock:
            box = self._boxes.get(id_)
            if box is None or len(box.sends) < MOST_PER_CONVERSATION:
                return False
            box.waiters.append(resume)
            return True

    def add(self, id_: str, effects: Iterable[Mapping[str, Any]]) -> None:
        """Carry out what was recorded; what is known already, or done, is passed over.

        The first time in a term these are all effects of the conversation, which belongs to this
        process by then.
        """
        begin: list[Callable[[], None]] = []
        timers: list[Mapping[str, Any]] = []
        with self._lock:
            for effect in effects:
                try:
                    if is_timer(effect):
                        timers.append(effect)
                    elif effect["type"] == "deadletter":
                        begin.append(self._burial(id_, effect))
                    elif effect["type"] == "send":
                        begin.extend(self._enqueue(id_, Send.from_document(effect)))
                    else:
                        log.error("unknown effect left in the outbox id=%s", effect["id"])
                except (KeyError, TypeError, ValueError):
                    # Made by hand, since linedesk writes them whole.
                    log.exception("broken effect left in the outbox conversation=%s", id_)
            begin.extend(self._enter(id_, timers))
            self._note_adopted(id_)
        for action in begin:
            action()

    def waiting(self, limit: int, *, at_gate: str) -> list[Document]:
        """The sends that wait longest, one a conversation, each with why, for a person.

        `at_gate` is said of those that wait for a turn. Quick, from any thread.
        """
        with self._lock:
            # Boxes go once they are empty, so the oldest come first.
            heads = [(b.id, b.sends[0]) for b in islice(self._boxes.values(), LOOKED_AT)]
            refused = list(self._refused.values())
        heads.sort(key=lambda one: one[1].send.at)
        told = [_told(id_, sending, at_gate) for id_, sending in heads[:limit]]
        return [*refused, *told][:limit]

    def give_up(self, id_: str, effect_id: str, *, cause: str) -> bool:
        """Have the send become a dead letter if it is the first of the conversation's outbox.

        True as long as that is under way: a call of it ends by itself before, and an outbox has
        to be loaded. Any thread may ask, also again and again.
        """
        with self._lock:
            box = self._boxes.get(id_)
            first = box.sends[0] if box is not None else None
            is_loaded = self._left is not None and id_ not in self._left
        if first is None or first.send.id != effect_id:
            # guard: under-way-until-loaded -> return False
            return not is_loaded
        first.give_up(cause)
        return True

    # What a predecessor left.

    def _find_left(self) -> None:
        left = self.tools.conversations.with_outbox()
        with self._lock:
            self._left = {id_: None for id_ in left if id_ not in self._adopted}
        self._until_confirmed(partial(self._load, left), "outboxes not loaded")

    def _load(self, left: Sequence[str]) -> None:
        """Load the first of them, and have the others loaded."""
        if not left:
            log.info("outboxes loaded effects=%d", len(self))
            return
        ids, others = left[:LOADED_AT_ONCE], left[LOADED_AT_ONCE:]
        try:
            self._take(ids)
        except WriteRefused:
            # Each by itself, so that one that is refused holds up no other.
            for id_ in ids:
                failed = f"outbox not loaded conversation={id_}"
                self._until_confirmed(partial(self._take_one, id_), failed)
        self._until_confirmed(partial(self._load, others), "outboxes not loaded")

    def _take_one(self, id_: str) -> None:
        try:
            self._take([id_])
        except WriteRefused as error:
            with self._lock:
                self._refused.setdefault(id_, _told_of_refused(id_, error))
            raise

    def _take(self, ids: Sequence[str]) -> None:
        adopted = {one["_id"]: one for one in self.tools.conversations.adopt_all(ids)}
        # The oldest first, as they were found.
        for id_ in ids:
            if id_ in adopted:
                self.add(id_, adopted[id_].get("pending") or ())
        with self._lock:
            self._forget_left(ids)

    # Under the lock.

    def _forget_left(self, ids: Iterable[str]) -> None:
        for id_ in ids:
            self._refused.pop(id_, None)
            if self._left is not None:
                self._left.pop(id_, None)

    def _enqueue(self, id_: str, send: Send) -> list[Callable[[], None]]:
        """Append a send; returns what has to be done once the lock is free."""
        box = self._boxes.get(id_) or ConversationOutbox(id_)
        if send.id in self._gone or send.id in box.ids:
            return []
        self._boxes[id_] = box
        due = self._due(send)
        sending = Sending(
            self.tools,
            box.id,
            send,
            due,
            failed=lambda: self._failed(box),
            finished=lambda: self._finished(box),
        )
        more_urgent = box.append(sending, due)
        self._count += 1
        head = box.sends[0]
        if head is sending:
            return [sending.begin]
        return [head.hurry] if more_urgent else []

    def _enter(self, id_: str, timers: Iterable[Mapping[str, Any]]) -> list[Callable[[], None]]:
        """Take timers in hand, all in one step; returns what has to be done without the lock.

        Those that have left their outbox may come once more: their numbers make it harmless.
        """
        fresh = {one["id"]: one for one in timers if one["id"] not in self._timers}
        if not fresh:
            return []
        self._timers.update(fresh)
        self._count += len(fresh)
        finished = partial(self._entered, list(fresh))
        return [Entering(self.tools, id_, list(fresh.values()), finished=finished).begin]

    def _due(self, send: Send) -> float:
        until = send.token_until
        if until is None:
            return time.monotonic() + PUSH_SECONDS
        return time.monotonic() + (until - datetime.now(UTC)).total_seconds()

    # What a send comes back to.

    def _failed(self, box: ConversationOutbox) -> None:
        """The first send failed: once its time is past it goes behind those that did not.

        Else one on which LINE always fails would be the breaker's probe each time.
        """
        now = time.monotonic()
        with self._lock:
            if box.sends[0].deadline <= now:
                box.put_off(now, now + PUSH_SECONDS)

    def _finished(self, box: ConversationOutbox) -> None:
        """The first send left its outbox: the next one follows."""
        with self._lock:
            self._remember(box.pop().send.id)
            self._count -= 1
            following = box.sends[0] if box.sends else None
            if following is None:
                del self._boxes[box.id]
            waiters, box.waiters = box.waiters, []
        if following is not None:
            following.begin()
        for resume in waiters:
            resume()

    def _entered(self, ids: Sequence[str]) -> None:
        """Timers left their outbox."""
        with self._lock:
            self._timers.difference_update(ids)
            self._count -= len(ids)

    def _note_adopted(self, id_: str) -> None:
        self._forget_left([id_])
        self._adopted[id_] = None
        if len(self._adopted) > MOST_ADOPTED:
            self._adopted.popitem(last=False)

    def _remember(self, effect_id: str) -> None:
        self._gone[effect_id] = None
        if len(self._gone) > KEPT_GONE:
            self._gone.popitem(last=False)

    # Dead letters of events: without the gate, at once.

    def _burial(self, id_: str, effect: Mapping[str, Any]) -> Callable[[], None]:
        def bury() -> None:
            self.tools.deadletters.write(effect)
            self.tools.conversations.remove(id_, effect["id"])

        return lambda: self._until_confirmed(bury, "dead letter not written")

    def _until_confirmed(self, act: Callable[[], None], failed: str) -> None:
        """Have a thread do it, again and again until MongoDB has confirmed it."""

        def attempt(failures: int = 0) -> None:
            try:
                act()
            except StoreUnavailable as error:
                log.warning("%s, trying again error=%s", failed, error)
                again = pause_seconds(failures + 1, most=STORE_AGAIN_SECONDS)
                self.tools.later(again, lambda: self.tools.step(lambda: attempt(failures + 1)))

        self.tools.step(attempt)


def _told_of_refused(id_: str, error: WriteRefused) -> Document:
    channel, _, key = id_.partition("/")
    unknown = {"eventId": "", "effectId": "", "since": datetime.now(UTC)}
    return {"channel": channel, "key": key, **unknown, "why": f"its outbox waits: {error}"}


def _told(id_: str, sending: Sending, at_gate: str) -> Document:
    channel, _, key = id_.partition("/")
    send = sending.send
    return {
        "channel": channel,
        "key": key,
        "eventId": send.event_id,
        "effectId": send.id,
        "since": send.at,
        "why": f"a send waits: {sending.because}" if sending.because else at_gate,
    }
