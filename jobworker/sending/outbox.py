"""Carries out recorded effects: sends go to the outbox of their conversation, timers to their rows.

Dead letters and timers do not wait behind sends. The outboxes that a predecessor left are loaded
beside the first decisions.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dispatcher.conversations.conversations import Conversation
from jobworker.effects import is_timer, of_effect
from jobworker.line.gate_order import TurnClass
from jobworker.line.side_call import Action
from jobworker.record.conversations import Outbound, Placed
from jobworker.record.schedule import Schedule
from jobworker.sending.conversation_outbox import CallState, ConversationOutbox, Moment
from jobworker.sending.outboxes import arrived_at
from jobworker.sending.sender import Sender
from linedesk.runtime.clock import boottime
from linedesk.store.documents import Document
from linedesk.store.records.effects import EFFECT_ID, SEND
from linedesk.store.records.events import EVENT_ID
from linedesk.store.records.letters import DEADLETTER

log = logging.getLogger(__name__)

# Outboxes of a predecessor that one step loads.
LOADED_AT_ONCE = 500


class Outbox:
    """The recorded effects of all conversations."""

    def __init__(self, sender: Sender, schedule: Schedule) -> None:
        self.sender = sender
        self._outcomes = sender.outcomes
        self._conversations = sender.outcomes.conversations
        self._schedule = schedule
        self._boxes = sender.outcomes.boxes
        self._lock = self._boxes.lock

    @property
    def has_room(self) -> bool:
        """Whether reading may continue."""
        return self._boxes.has_room

    @property
    def is_loaded(self) -> bool:
        """Whether all effects of predecessors are known here."""
        return not self._boxes.left

    def __len__(self) -> int:
        """The number of waiting effects; an outbox that is not loaded yet counts as one."""
        return len(self._boxes)

    def take_over(self) -> None:
        """Find every outbox that a predecessor left, and load them beside the first decisions.
        Raises StoreUnavailable.
        """
        left = self._conversations.with_outbox()
        with self._lock:
            self._boxes.set_left(left, True)
        self.sender.take_over()
        self._outcomes.by_step(partial(self._load, left), "outboxes not loaded")

    def know(self, id_: str) -> None:
        """Load the outbox of a conversation before its next record, if that was not done yet: its
        sends keep their order. Raises StoreUnavailable.
        """
        with self._lock:
            is_left = self._boxes.known.get(id_).is_left
        # guard: whole-outbox-first
        if is_left:
            self._read([id_])

    def waits_for_room(self, id_: str, resume: Action) -> bool:
        """Whether the conversation's outbox is full; then `resume` is called once it is not."""
        with self._lock:
            box = self._boxes.find(id_)
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
        outcomes = self._outcomes
        with self._lock:
            conversation = self._boxes.known.get(id_)
            if left and not conversation.is_left:
                return
            for place, effect in outbound.effects:
                try:
                    if is_timer(effect):
                        timers.append((place, effect))
                    elif effect["type"] == DEADLETTER:
                        # Of a release before this one.
                        letter = {place: effect}
                        write = partial(outcomes.write_letters, id_, letter, ends_call=False)
                        by_step = partial(outcomes.by_step, write, "dead letter not written")
                        follow.append(by_step)
                    elif effect["type"] == SEND:
                        follow.append(self._append(conversation, place, effect))
                    else:
                        log.error("unknown effect left in the outbox id=%s", effect["id"])
                except (KeyError, TypeError, ValueError):
                    # Edited by hand, since linedesk writes them completely.
                    log.exception("broken effect left in the outbox conversation=%s", id_)
            follow.append(self._begin(conversation, outbound))
            follow.append(self._take_timers(conversation, timers))
            self._boxes.set_left([id_], False)
        for action in follow:
            action()

    def waiting(self, limit: int, *, at_gate: Callable[[TurnClass], str]) -> list[Document]:
        """The longest waiting sends, one for each conversation, with the reason for operators.

        `at_gate` returns the reason for a class at the gate. Quick, from any thread.
        """
        with self._lock:
            return [_told(box, box.waits_for(at_gate)) for box in self._boxes.oldest(limit)]

    def oldest_seconds(self) -> float:
        """Seconds since the event of the longest waiting send; 0 without one. Quick, from any
        thread.
        """
        with self._lock:
            return self._boxes.oldest_seconds()

    # Outboxes of predecessors.

    def _load(self, left: Sequence[str]) -> None:
        """Load the first of them, and have the others loaded."""
        if not left:
            log.info("outboxes loaded effects=%d", len(self))
            return
        self._read(left[:LOADED_AT_ONCE])
        others = left[LOADED_AT_ONCE:]
        self._outcomes.by_step(partial(self._load, others), "outboxes not loaded")

    def _read(self, ids: Sequence[str]) -> None:
        found = {one["_id"]: one for one in self._conversations.outboxes(ids)}
        # The oldest first, in the order in which they were found.
        for id_ in ids:
            if id_ in found:
                self.add(id_, Outbound.of(found[id_]), left=True)
        with self._lock:
            self._boxes.set_left(ids, False)

    # Under the lock; returned actions are carried out without it.

    def _append(self, conversation: Conversation, place: str, effect: Document) -> Action:
        box = self.sender.outbox_of(conversation.id)
        if place in conversation.gone or place in box.places:
            return lambda: None
        one = box.pending(place, effect, Moment(datetime.now(UTC), boottime()))
        return partial(self._outcomes.do, box, self._boxes.append(box, one))

    def _begin(self, conversation: Conversation, outbound: Outbound) -> Action:
        """Let the conversation wait for its turn if it has sends and does not wait yet."""
        box: ConversationOutbox | None = conversation.outbox
        if box is None:
            return lambda: None
        if box.state is CallState.IDLE and outbound.batch is not None:
            if self.sender.claimed(box, outbound.batch):
                return lambda: None
        elif box.state is CallState.IDLE and outbound.call is not None:
            # Sends of it may have been removed by hand.
            members = tuple(one.place for one in box.members(outbound.call))
            if members:
                box.call = replace(outbound.call, members=members)
                box.is_tried = outbound.is_tried
        return partial(self._outcomes.do, box, box.begin(time.monotonic()))

    def _take_timers(self, conversation: Conversation, timers: Iterable[Placed]) -> Action:
        """Take timers, all in one step.

        Timers that have left their outbox may come once more: their numbers make that harmless.
        """
        fresh = [one for one in timers if one[0] not in conversation.timers]
        if not fresh:
            return lambda: None
        places = [place for place, _ in fresh]
        conversation.timers |= frozenset(places)
        self._boxes.effects += len(fresh)
        entered = partial(self._enter_timers, conversation.id, deque(fresh), places, {})
        return partial(self._outcomes.by_step, entered, "timers not entered")

    # Timers: without the gate, at once.

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
            self._boxes.known.get(id_).timers -= frozenset(places)
            self._boxes.effects -= len(places)
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
        self._outcomes.write_letters(id_, {place: letter}, ends_call=False)


def _told(box: ConversationOutbox, why: str) -> Document:
    channel, _, key = box.id.partition("/")
    first = box.sends[0].send
    return {
        "channel": channel,
        "key": key,
        EVENT_ID: first.event_id,
        EFFECT_ID: first.id,
        "sends": len(box.sends),
        "since": arrived_at(first),
        "why": f"a send {why}",
    }
