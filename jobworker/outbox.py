"""Carrying out what was recorded: each conversation's outbox, in order, one send at a time.

A send that waits, for its turn or for its next try, is an object in the gate or with the clock,
never a blocked thread. Dead letters do not wait behind sends. What dies here is found by the
successor in `pending` and carried on by the rules of `jobworker.delivery`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from jobworker.delivery import Send
from jobworker.sending import Sending, Tools
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


class Box:
    """One conversation's sends in order; the first is in the gate, with a thread or waiting."""

    __slots__ = ("id", "sends", "waiters")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.sends: deque[Sending] = deque()
        # Jobs of the key that were set aside until there is room.
        self.waiters: list[Callable[[], None]] = []


class Outbox:
    """All outboxes of the process, and what is carried out of them."""

    def __init__(self, tools: Tools) -> None:
        self.tools = tools
        self._lock = threading.Lock()
        # All below under _lock.
        self._boxes: dict[str, Box] = {}
        self._count = 0
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
        with self._lock:
            for effect in effects:
                if effect["type"] == "deadletter":
                    begin.append(self._burial(id_, effect))
                elif effect["type"] == "send":
                    begin.extend(self._enqueue(id_, Send.from_document(effect)))
                else:
                    log.error("unknown effect left in the outbox id=%s", effect["id"])
        for action in begin:
            action()

    # Under the lock.

    def _enqueue(self, id_: str, send: Send) -> list[Callable[[], None]]:
        """Append a send; returns what has to be done once the lock is free."""
        box = self._boxes.get(id_) or Box(id_)
        if send.id in self._gone or any(one.send.id == send.id for one in box.sends):
            return []
        self._boxes[id_] = box
        sending = Sending(
            self.tools, box.id, send, self._deadline(send), finished=lambda: self._finished(box)
        )
        box.sends.append(sending)
        self._count += 1
        head = box.sends[0]
        if head is sending:
            return [sending.begin]
        if sending.deadline < head.deadline:
            # The head stands before it, so it inherits the earlier deadline.
            head.deadline = sending.deadline
            return [head.hurry]
        return []

    def _deadline(self, send: Send) -> float:
        until = send.token_until
        if until is None:
            return time.monotonic() + PUSH_SECONDS
        return time.monotonic() + (until - datetime.now(UTC)).total_seconds()

    # What a send comes back to.

    def _finished(self, box: Box) -> None:
        """The first send left its outbox: the next one follows."""
        with self._lock:
            self._remember(box.sends.popleft().send.id)
            self._count -= 1
            following = box.sends[0] if box.sends else None
            if following is None:
                del self._boxes[box.id]
            else:
                following.deadline = min(one.deadline for one in box.sends)
            waiters, box.waiters = box.waiters, []
        if following is not None:
            following.begin()
        for resume in waiters:
            resume()

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
