"""Carrying out what was recorded: each conversation's outbox, in order, one send at a time.

A send that waits, for its turn or for its next try, is an object in the gate or with the clock,
never a blocked thread. Dead letters and timers do not wait behind sends. What dies here is found
by the successor in `pending` and carried on by the rules of `jobworker.delivery`.
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

from jobworker.delivery import Send
from jobworker.entering import Entering
from jobworker.sending import Sending
from jobworker.settling import Tools
from jobworker.timers import is_timer
from recvq.documents import Document
from recvq.errors import StoreUnavailable
from recvq.pause import pause_seconds

log = logging.getLogger(__name__)

# Beyond these the key is set aside, and reading pauses (architecture: step 9).
MOST_PER_CONVERSATION = 100
MOST_IN_ALL = 10_000
# Ids carried out lately: a conversation read before the removal may still show them.
KEPT_GONE = 20_000
# A send without a token is served within this of its recording, as far as the gate allows.
PUSH_SECONDS = 60.0
STORE_AGAIN_SECONDS = 5.0
# Among the first sends of so many conversations those that wait longest are looked for.
LOOKED_AT = 500


class Box:
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
        self._boxes: dict[str, Box] = {}
        self._count = 0
        # Ids of timers that are on their way to `schedule`.
        self._timers: set[str] = set()
        self._gone: OrderedDict[str, None] = OrderedDict()

    @property
    def has_room(self) -> bool:
        """Whether reading may go on."""
        return self._count < MOST_IN_ALL

    def __len__(self) -> int:
        return self._count

    def take_over(self) -> int:
        """Load every outbox that a predecessor left, each under the new epoch; how many effects."""
        for conversation in self.tools.conversations.with_pending():
            self.add(conversation["_id"], conversation["pending"])
        return self._count

    def waits_for_room(self, id_: str, resume: Callable[[], None]) -> bool:
        """Whether the conversation's outbox is full; then `resume` is called once it is not."""
        with self._lock:
            box = self._boxes.get(id_)
            if box is None or len(box.sends) < MOST_PER_CONVERSATION:
                return False
            box.waiters.append(resume)
            return True

    def add(self, id_: str, effects: Iterable[Mapping[str, Any]]) -> None:
        """Carry out what was recorded; what is known already, or done, is passed over."""
        begin: list[Callable[[], None]] = []
        timers: list[Mapping[str, Any]] = []
        with self._lock:
            for effect in effects:
                if is_timer(effect):
                    timers.append(effect)
                elif effect["type"] == "deadletter":
                    begin.append(self._burial(id_, effect))
                elif effect["type"] == "send":
                    begin.extend(self._enqueue(id_, Send.from_document(effect)))
                else:
                    log.error("unknown effect left in the outbox id=%s", effect["id"])
            begin.extend(self._enter(id_, timers))
        for action in begin:
            action()

    def waiting(self, limit: int, *, at_gate: str) -> list[Document]:
        """The sends that wait longest, one a conversation, each with why, for a person.

        `at_gate` is said of those that wait for a turn. Quick, from any thread.
        """
        with self._lock:
            # Boxes go once they are empty, so the oldest come first.
            heads = [(b.id, b.sends[0]) for b in islice(self._boxes.values(), LOOKED_AT)]
        heads.sort(key=lambda one: one[1].send.at)
        return [_told(id_, sending, at_gate) for id_, sending in heads[:limit]]

    def give_up(self, id_: str, effect_id: str, *, cause: str) -> bool:
        """Have the send become a dead letter if it is the first of the conversation's outbox.

        True as long as that is under way: a call of it ends by itself before. Any thread may ask,
        also again and again.
        """
        with self._lock:
            box = self._boxes.get(id_)
            first = box.sends[0] if box is not None else None
        if first is None or first.send.id != effect_id:
            return False
        first.give_up(cause)
        return True

    # Under the lock.

    def _enqueue(self, id_: str, send: Send) -> list[Callable[[], None]]:
        """Append a send; returns what has to be done once the lock is free."""
        box = self._boxes.get(id_) or Box(id_)
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

    def _failed(self, box: Box) -> None:
        """The first send failed: once its time is past it goes behind those that did not.

        Else one on which LINE always fails would be the breaker's probe each time.
        """
        now = time.monotonic()
        with self._lock:
            if box.sends[0].deadline <= now:
                box.put_off(now, now + PUSH_SECONDS)

    def _finished(self, box: Box) -> None:
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

    def _remember(self, effect_id: str) -> None:
        self._gone[effect_id] = None
        if len(self._gone) > KEPT_GONE:
            self._gone.popitem(last=False)

    # Dead letters of events: without the gate, at once.

    def _burial(self, id_: str, effect: Mapping[str, Any]) -> Callable[[], None]:
        def bury(failures: int = 0) -> None:
            try:
                self.tools.deadletters.write(effect)
                self.tools.conversations.remove(id_, effect["id"])
            except StoreUnavailable as error:
                log.warning("dead letter not written, trying again error=%s", error)
                again = pause_seconds(failures + 1, most=STORE_AGAIN_SECONDS)
                self.tools.later(again, lambda: self.tools.step(lambda: bury(failures + 1)))

        return lambda: self.tools.step(bury)


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
