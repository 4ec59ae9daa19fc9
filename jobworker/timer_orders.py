"""Sets a timer in the conversations of all friends, by a record of each.

The records are those of a handler that sets the timer: a process may die at any point.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from jobworker.bot.timers import decision_of
from jobworker.errors import WorkerAway
from jobworker.record.conversations import STARTED, Outbound, Recording
from jobworker.turn import Turns
from linedesk.store.control import TimerOrder
from linedesk.store.errors import StoreUnavailable, WriteRefused
from linedesk.store.timers import START_TIMER

log = logging.getLogger(__name__)

# As many as a group of writes has, so that users' events do not wait.
MOST_AT_ONCE = 100


class TimerOrders:
    """Carries out the orders of one leader, on one thread."""

    def __init__(self, turns: Turns, now: Callable[[], datetime]) -> None:
        self._turns = turns
        self._now = now
        # The present batch: all its conversations, and those whose record is not certain yet.
        self._order: TimerOrder | None = None
        self._batch: Sequence[str] = ()
        self._left: deque[str] = deque()
        self._entered: dict[str, Recording] = {}

    def starts(self) -> Sequence[str]:
        """The names of the bot's `start_timers`."""
        try:
            return tuple(self._turns.runner.bot().starts)
        except WorkerAway:
            return ()

    def has_handler(self, name: str) -> bool | None:
        """Whether the bot handles this timer; None if a later release or a worker may tell."""
        try:
            found = self._turns.runner.bot().has_timer(name)
        except WorkerAway:
            return None
        return None if name.startswith(START_TIMER) and not found else found

    def step(self, order: TimerOrder) -> Sequence[str]:
        """Set the timer in the next conversations; returns their ids, none at the end.

        Raises StoreUnavailable; a repetition sets no timer twice.
        """
        if order != self._order:
            self._end_batch()
            name, more = order.name.removeprefix(START_TIMER), {}
            if name != order.name:
                more = {f"{STARTED}.{name}": None}
            self._batch = self._turns.conversations.friends(order.last, MOST_AT_ONCE, **more)
            self._order, self._left = order, deque(self._batch)
        self._end_batch()
        return self._batch

    def _end_batch(self) -> None:
        for id_ in self._left:
            if id_ not in self._entered:
                self._entered[id_] = self._enter(id_)
        while self._left:
            self._settle(self._left[0])
            self._left.popleft()

    def _enter(self, id_: str) -> Recording:
        assert self._order is not None, "a batch has its order"
        document, decision = decision_of(self._order, id_, now=self._now())
        self._turns.outbox.know(id_)
        conversations = self._turns.conversations
        placed = conversations.placed(decision.effects)
        return conversations.enter_record(document, decision, placed, message_id=None)

    def _settle(self, id_: str) -> None:
        """Carry out the record of a conversation once it is certain."""
        recording = self._entered[id_]
        try:
            recorded = self._turns.conversations.recorded(recording)
        except WriteRefused as error:
            log.error("timer not set, MongoDB refuses it conversation=%s error=%s", id_, error)  # noqa: TRY400
        except StoreUnavailable:
            # Of unknown outcome it is asked for again; one that was not made is made anew.
            if recording.write.is_ended and not recording.write.matched:
                del self._entered[id_]
            raise
        else:
            if recorded.effects:
                self._turns.outbox.add(id_, Outbound(recorded.effects, is_tried=False))
        del self._entered[id_]
