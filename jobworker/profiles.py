"""Fetching a sender's profile before the handler runs: a step that holds no thread.

A name is worth one call a day, and never a late answer: where the gate is too busy for both the
profile and the reply within the token's life, where LINE refuses or is not called, and 30 s after
the event came, the bot runs without a name.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from jobworker.client import answer_or_error
from jobworker.delivery import TOKEN_LIFE, Answer, is_no_verdict
from jobworker.errors import LineError, OutcomeUnknown
from jobworker.gate import Gate
from jobworker.holdback import HoldBack
from recvq.documents import Document
from recvq.pause import pause_seconds

log = logging.getLogger(__name__)

FRESH = timedelta(days=1)
# From this age of the event on, the bot answers without a name (architecture: the gate).
LATE = timedelta(seconds=30)
# How much of the time left the turns of those who wait may fill, by estimate.
SHARE = 0.8
FIELDS = ("displayName", "pictureUrl", "statusMessage", "language")

PATHS = {
    "user": "/v2/bot/profile/{}",
    "group": "/v2/bot/group/{}/member/{}",
    "room": "/v2/bot/room/{}/member/{}",
}


def is_fresh(profile: Document | None, now: datetime) -> bool:
    """Whether a stored profile need not be fetched again."""
    return profile is not None and now - profile["at"] < FRESH


def has_time(accepted: datetime, now: datetime, *, waiting: int, turn_seconds: float) -> bool:
    """Whether the profile and then the reply would come in time, with so many before them."""
    left = (accepted + TOKEN_LIFE - now).total_seconds() * SHARE
    return now < accepted + LATE and (waiting + 2) * turn_seconds <= left


class ProfileFetch:
    """One profile on its way: an entry of the gate (see `jobworker.entry.Entry`).

    `done` is called once, with the profile or None if the bot has to do without.
    """

    patient = False

    def __init__(
        self,
        document: Document,
        user_id: str,
        *,
        gate: Gate,
        holdback: HoldBack,
        get: Callable[..., Answer],
        later: Callable[[float, Callable[[], None]], None],
        done: Callable[[Document | None], None],
    ) -> None:
        self._document = document
        self._user_id = user_id
        self._gate = gate
        self._holdback = holdback
        self._get = get
        self._later = later
        self._done = done
        self._lock = threading.Lock()
        # Under _lock.
        self._ended = False
        self._failures = 0
        self._answer: Answer | LineError = OutcomeUnknown("not called")
        now = datetime.now(UTC)
        self._late_seconds = (document["acceptTime"] + LATE - now).total_seconds()
        until = document["acceptTime"] + TOKEN_LIFE
        self.deadline = time.monotonic() + (until - now).total_seconds()

    def begin(self) -> None:
        """Wait for a turn at the gate, but not beyond the time for it."""
        if self._late_seconds <= 0:
            self._without("it came long ago")
            return
        self._later(self._late_seconds, lambda: self._without("LINE takes too long"))
        self._gate.enter(self)

    def sent_away(self) -> None:
        """The gate lets nobody call LINE for now."""
        self._without("LINE is not called for now")

    def prepare(self) -> bool:
        """Whether the call is still worth a turn."""
        if self._ended:
            return False
        in_time = has_time(
            self._document["acceptTime"],
            datetime.now(UTC),
            waiting=self._gate.waiting,
            turn_seconds=self._gate.turn_seconds,
        )
        if not in_time:
            self._without("no time")
        elif self._holdback.seconds(self._path):
            self._without("rate limit")
        return not self._ended

    @property
    def _path(self) -> str:
        """The endpoint: of a member in a group or room, else of a user."""
        kind = self._document["event"]["source"].get("type")
        return PATHS[kind if kind in ("group", "room") else "user"]

    def call(self) -> None:
        """The one call, under the gate."""
        path = self._path
        parts = [self._user_id] if path == PATHS["user"] else [self._key, self._user_id]
        self._answer = answer_or_error(
            lambda: self._get(path, *parts, eventId=self._document.get("eventId"), key=self._key)
        )
        self._holdback.note(path, self._answer)

    def after(self) -> None:
        """A profile, none for a refusal, and another try for what may pass."""
        answer = self._answer
        if isinstance(answer, Answer) and not is_no_verdict(answer.status):
            # A refused access token and a rate limit say nothing of the user.
            self._end(None if answer.status in (401, 429) else profile_of(answer))
            return
        self._failures += 1
        pause = pause_seconds(self._failures, first=0.5)
        self._later(pause, lambda: self._gate.enter(self))

    def _without(self, why: str) -> None:
        if self._end(None):
            log.info("answering without a name, %s key=%s", why, self._key)

    def _end(self, profile: Document | None) -> bool:
        """Let the bot run with what there is; only the first end counts."""
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            self._done(profile)
        return first

    @property
    def _key(self) -> str:
        return str(self._document["key"])


def profile_of(answer: Answer) -> Document:
    """What LINE told, with the time it did; without a name where it refused or told garbage.

    A refusal is kept like a profile, so that the same user is not asked for with every message.
    """
    now = datetime.now(UTC)
    try:
        told: Any = json.loads(answer.text) if answer.status == 200 else {}
    except ValueError:
        told = {}
    if not isinstance(told, dict):
        told = {}
    return {**{n: told[n] for n in FIELDS if isinstance(told.get(n), str)}, "at": now}
