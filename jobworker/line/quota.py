"""How many messages LINE's plan allows this month, and how many it has counted: asked now and
then, also while the gate is busy.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer
from jobworker.line.client import answer_or_error
from jobworker.line.gate import Gate
from jobworker.line.gate_order import PLACE_SECONDS, Standing, Ticket, TurnClass
from jobworker.metrics import WorkerMetrics

log = logging.getLogger(__name__)

# A dispatcher that starts has more urgent things to ask.
FIRST_SECONDS = 60.0
EVERY_SECONDS = 600.0
# After a send that was refused, at most this often.
SOON_SECONDS = 60.0
# What LINE said longer ago tells nothing any more.
STALE_SECONDS = 1800.0

LIMIT = "/v2/bot/message/quota"
USED = "/v2/bot/message/quota/consumption"


class Quota:
    """The figures of the month, asked by one ticket of the gate at a time.

    Of the two calls of a round the second is made only after LINE answered the first, so that
    these end points alone never open the breaker. A round that fails is not repeated.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        get: Callable[..., LineAnswer],
        later: Callable[[float, Callable[[], None]], None],
        figures: WorkerMetrics,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._gate = gate
        self._get = get
        self._later = later
        self._figures = figures
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Both under _lock.
        self._is_asking = False
        self._asked_at = -math.inf
        # Of the round under way, by one thread after the other.
        self._limit: int | None = None
        self._known_at = -math.inf

    def start(self) -> None:
        """Ask in a while, and then again and again."""
        self._later(FIRST_SECONDS, self._tick)

    def ask_soon(self) -> None:
        """LINE refused a send since the month's messages are used up."""
        self._ask(unless_within_seconds=SOON_SECONDS)

    def _tick(self) -> None:
        if self._monotonic() - self._known_at > STALE_SECONDS:
            self._figures.quota.set({})
        self._ask()
        self._later(EVERY_SECONDS, self._tick)

    def _ask(self, *, unless_within_seconds: float = 0.0) -> None:
        with self._lock:
            now = self._monotonic()
            if self._is_asking or now - self._asked_at < unless_within_seconds:
                return
            self._is_asking, self._asked_at = True, now
        self._enter(LIMIT)

    def _enter(self, path: str) -> None:
        standing = Standing(TurnClass.CHAT, self._monotonic() + PLACE_SECONDS)
        self._gate.enter(Ticket(standing, granted=partial(self._take_turn, path)))

    def _take_turn(self, path: str, ticket: Ticket) -> None:
        """On a thread of the pool: the gate's turn has come for one call of the round."""
        answer = None
        with self._gate.holding(ticket) as turn:
            if turn.may_call():
                turn.begin()
                answer = answer_or_error(lambda: self._get(path))
        if answer is None:
            self._enter(path)
        else:
            self._settle(path, answer)

    def _settle(self, path: str, answer: LineAnswer | LineError) -> None:
        """The limit first, then what is used of it."""
        told = _told(answer)
        if told is None:
            log.info("quota not told endpoint=%s", path)
        elif path == LIMIT:
            self._limit = _whole(told.get("value")) if told.get("type") == "limited" else None
            self._enter(USED)
            return
        else:
            self._known_at = self._monotonic()
            used = _whole(told.get("totalUsage"))
            self._figures.quota.set({"quota_messages": self._limit, "quota_used_messages": used})
        with self._lock:
            self._is_asking = False


def _told(answer: LineAnswer | LineError) -> dict[str, Any] | None:
    """LINE's JSON; None for anything else."""
    if not isinstance(answer, LineAnswer) or answer.status != 200:
        return None
    try:
        told = json.loads(answer.text)
    except ValueError:
        return None
    return told if isinstance(told, dict) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
