"""Carries out recorded effects: sends go to the outbox of their conversation, timers to their rows.

Dead letters and timers do not wait behind sends. The outboxes that a predecessor left are loaded
beside the first decisions.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from dispatcher.conversations.conversations import Conversation
from jobworker.effects import is_timer, of_effect
from jobworker.line.side_call import Action
from jobworker.record.conversations import Outbound, Placed
from jobworker.record.schedule import Schedule
from jobworker.sending.conversation_outbox import CallState, ConversationOutbox, Moment
from jobworker.sending.sender import Sender
from linedesk.runtime.clock import boottime
from linedesk.store.documents import Document
from linedesk.store.records.effects import SEND
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
        self.boxes = sender.outcomes.boxes
        self._lock = self.boxes.lock

    def take_over(self) -> None:
        """Find every outbox that a predecessor left, and load them beside the first decisions.
        Raises StoreUnavailable.
        """
        ids = self._conversations.with_outbox()
        with self._lock:
            self.boxes.set_unloaded(ids, True)
        self.sender.repeat_batches()
        self._outcomes.by_step(partial(self._load, ids), "outboxes not loaded")

    def know(self, id_: str) -> None:
        """Load the outbox of a conversation before its next record, if that was not done yet: its
        sends keep their order. Raises StoreUnavailable.
        """
        with self._lock:
            is_unloaded = self.boxes.known.get(id_).is_unloaded
        # guard: whole-outbox-first
        if is_unloaded:
            self._read([id_])

    def waits_for_room(self, id_: str, resume: Action) -> bool:
        """Whether the conversation's outbox is full; then `resume` is called once it is not."""
        with self._lock:
            box = self.boxes.find(id_)
            if box is None or not box.is_full:
                return False
            box.waiters.append(resume)
            return True

    def add(self, id_: str, outbound: Outbound, *, of_predecessor: bool = False) -> None:
        """Carry out recorded effects; those of a predecessor only if the outbox of the conversation
        was not loaded before.
        """
        follow: list[Action] = []
        timers: list[Placed] = []
        outcomes = self._outcomes
        with self._lock:
            conversation = self.boxes.known.get(id_)
            if of_predecessor and not conversation.is_unloaded:
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
            self.boxes.set_unloaded([id_], False)
        for action in follow:
            action()

    # Outboxes of predecessors.

    def _load(self, ids: Sequence[str]) -> None:
        """Load the first of them, and have the others loaded."""
        if not ids:
            log.debug("outboxes loaded effects=%d", len(self.boxes))
            return
        self._read(ids[:LOADED_AT_ONCE])
        others = ids[LOADED_AT_ONCE:]
        self._outcomes.by_step(partial(self._load, others), "outboxes not loaded")

    def _read(self, ids: Sequence[str]) -> None:
        found = {one["_id"]: one for one in self._conversations.outboxes(ids)}
        # The oldest first, in the order in which they were found.
        for id_ in ids:
            if id_ in found:
                self.add(id_, Outbound.of(found[id_]), of_predecessor=True)
        with self._lock:
            self.boxes.set_unloaded(ids, False)

    # Under the lock; returned actions are carried out without it.

    def _append(self, conversation: Conversation, place: str, effect: Document) -> Action:
        box = self.sender.outbox_of(conversation.id)
        if place in conversation.gone or place in box.places:
            return lambda: None
        one = box.pending(place, effect, Moment(datetime.now(UTC), boottime()))
        return partial(self._outcomes.do, box, self.boxes.append(box, one))

    def _begin(self, conversation: Conversation, outbound: Outbound) -> Action:
        """Let the conversation wait for its turn if it has sends and does not wait yet."""
        box: ConversationOutbox | None = conversation.outbox
        if box is None:
            return lambda: None
        if box.state is CallState.IDLE and outbound.batch is not None:
            # Without its batch the next call's note replaces the claim.
            batch = self.boxes.batches.get(outbound.batch)
            if batch is not None and box.id in batch.ready.members:
                batch.join(box)
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
        self.boxes.effects += len(fresh)
        entered = partial(self._enter_timers, conversation.id, deque(fresh), places, {})
        return partial(self._outcomes.by_step, entered, "timers not entered")

    # Timers: without the gate, at once.

    def _enter_timers(
        self, id_: str, timers: deque[Placed], places: Sequence[str], letters: dict[str, Document]
    ) -> None:
        """Write timers to their rows. All of it may be repeated, also by a successor.

        A timer that MongoDB refused once has its place in `letters`, and has no other result.
        """
        # guard: row-before-it-leaves ->
        #     self._conversations.remove(id_, *places)
        #     while timers:
        #         self._enter_timer(id_, *timers.popleft(), letters)
        while timers:
            self._enter_timer(id_, *timers[0], letters)
            timers.popleft()
        self._conversations.remove(id_, *places)
        with self._lock:
            self.boxes.known.get(id_).timers -= frozenset(places)
            self.boxes.effects -= len(places)
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
