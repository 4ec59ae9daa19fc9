"""Timers on their way from the outbox to `schedule`: at once, whatever waits there to be sent."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobworker.effects import of_effect
from jobworker.sending.settling import Tools
from linedesk.runtime.backoff import pause_seconds
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable

log = logging.getLogger(__name__)

STORE_AGAIN_SECONDS = 5.0


class Entering:
    """One conversation's timers as a step, repeated until all are in their rows.

    All of it may be repeated: by a step after MongoDB was away, or by a successor.
    """

    def __init__(
        self,
        tools: Tools,
        conversation: str,
        effects: Sequence[Mapping[str, Any]],
        *,
        finished: Callable[[], None],
    ) -> None:
        self._tools = tools
        self._conversation = conversation
        self._ids = [effect["id"] for effect in effects]
        self._left = deque(effects)
        # Of one that MongoDB refused; from then on nothing else becomes of it.
        self._letter: Document | None = None
        self._finished = finished
        self._failures = 0

    def begin(self) -> None:
        """Have a thread do it, before any new handler."""
        self._tools.step(self._enter)

    def _enter(self) -> None:
        try:
            # guard: row-before-it-leaves ->
            #     self._tools.conversations.remove(self._conversation, *self._ids)
            #     while self._left:
            #         self._enter_one(self._left.popleft())
            while self._left:
                self._enter_one(self._left[0])
                self._left.popleft()
            self._tools.conversations.remove(self._conversation, *self._ids)
        except StoreUnavailable as error:
            self._failures += 1
            seconds = pause_seconds(self._failures, most=STORE_AGAIN_SECONDS)
            log.warning("timers not entered, trying again error=%s seconds=%.1f", error, seconds)
            self._tools.later(seconds, self.begin)
            return
        log.debug("timers entered conversation=%s count=%d", self._conversation, len(self._ids))
        self._finished()

    def _enter_one(self, effect: Mapping[str, Any]) -> None:
        if self._letter is None:
            refused = self._tools.schedule.enter(effect)
            if refused is None:
                return
            log.error("timer given up id=%s cause=%s", effect["id"], refused)
            self._letter = of_effect(effect, self._conversation, cause=refused, attempts=1)
        # In the outbox first, so that no successor tries it again beside its letter.
        self._tools.conversations.give_up(self._conversation, self._letter)
        self._tools.deadletters.write(self._letter)
        self._letter = None
