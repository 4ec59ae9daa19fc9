"""Timers on their way from the outbox to `schedule`: at once, whatever waits there to be sent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jobworker.deadletters import of_effect
from jobworker.settling import Tools
from recvq.errors import StoreUnavailable
from recvq.pause import pause_seconds

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
        self._effects = effects
        self._finished = finished
        self._failures = 0

    def begin(self) -> None:
        """Have a thread do it, before any new handler."""
        self._tools.step(self._enter)

    def _enter(self) -> None:
        try:
            for effect in self._effects:
                refused = self._tools.schedule.enter(effect)
                if refused is not None:
                    self._bury(effect, refused)
            ids = [effect["id"] for effect in self._effects]
            self._tools.conversations.remove(self._conversation, *ids)
        except StoreUnavailable as error:
            self._failures += 1
            seconds = pause_seconds(self._failures, most=STORE_AGAIN_SECONDS)
            log.warning("timers not entered, trying again error=%s seconds=%.1f", error, seconds)
            self._tools.later(seconds, self.begin)
            return
        log.debug("timers entered conversation=%s count=%d", self._conversation, len(ids))
        self._finished()

    def _bury(self, effect: Mapping[str, Any], cause: str) -> None:
        """In the outbox first, so that no successor tries it again beside its letter."""
        log.error("timer given up id=%s cause=%s", effect["id"], cause)
        letter = of_effect(effect, self._conversation, cause=cause, attempts=1)
        self._tools.conversations.give_up(self._conversation, letter)
        self._tools.deadletters.write(letter)
