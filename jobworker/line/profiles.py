"""Profiles of senders and names of groups, each fetched once a day.

A name never delays an answer. `ProfileFetch` runs before the handler, as a step that holds no
thread. The bot runs without a name in these cases:

* the gate is too busy for both the profile and the reply within the token's life,
* LINE refuses, or is not called,
* 30 s have passed since the event arrived.

`LaterProfiles` fetches after the answer, while no send waits at the gate.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pymongo

from jobworker.errors import LineError
from jobworker.latest import Latest
from jobworker.line.answer import LineAnswer
from jobworker.line.gate_order import Standing
from jobworker.line.side_call import Line, NotCalled, SideCall, is_verdict
from jobworker.record.conversations import MOST_MEMBERS, ConversationStore, StoredConversation
from linedesk.runtime.backoff import growing_seconds, pause_seconds
from linedesk.store.documents import Document, conversation_id, text_of
from linedesk.store.errors import StoreUnavailable
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.calls import TurnClass
from linedesk.store.records.events import ACCEPT_TIME, EVENT_ID

log = logging.getLogger(__name__)

FRESH = timedelta(days=1)
# The share of the time left that the turns of waiting tickets may fill, by estimate.
SHARE = 0.8
# Other classes with a share of the turns slow down the answers by this factor.
SLOWER = 1.25
FIELDS = ("displayName", "pictureUrl", "statusMessage", "language")

PATHS = {
    "user": "/v2/bot/profile/{}",
    "group": "/v2/bot/group/{}/member/{}",
    "room": "/v2/bot/room/{}/member/{}",
}
SUMMARY = "/v2/bot/group/{}/summary"

# A group with constant messages records one event after another.
KEEP_TRIES = 5
MOST_WANTED = 1_000
MOST_REMEMBERED = 10_000
# From this age of the event on, the bot answers without a name (docs/explanation/design-notes.md).
LATE_SECONDS = 30.0
# The pause before another try for a name that an answer waits for; longer with each try.
FIRST_PAUSE_SECONDS = 0.5
# The pause before each name that no answer waits for. By then the event's answer is sent, and such
# names take at most a tenth of the gate's turns.
LATER_SECONDS = 1.0
# A send that arrives while the conversation is read before such a call waits this long.
LATER_READ_SECONDS = 0.5
# A send that arrives during such a call waits until it has ended.
LATER_CALL_SECONDS = 2.0
# The pause after such a call without an answer; longer with each consecutive one.
FIRST_QUIET_SECONDS, LONGEST_QUIET_SECONDS = 60.0, 3600.0


def is_fresh(profile: Document | None, now: datetime) -> bool:
    """Whether a stored profile is recent enough."""
    return profile is not None and now - profile["at"] < FRESH


def has_time(accepted: datetime, now: datetime, *, turns_before: int, turn_seconds: float) -> bool:
    """Whether the profile and then the reply would be in time, after that many turns of others."""
    left = (accepted + TOKEN_LIFE - now).total_seconds() * SHARE
    is_late = now >= accepted + timedelta(seconds=LATE_SECONDS)
    return not is_late and (turns_before + 2) * turn_seconds * SLOWER <= left


class ProfileFetch(SideCall):
    """One profile fetch, which does not wait while LINE is away.

    `done` is called once, with the profile or None if the bot has to answer without one.
    """

    is_read = True

    def __init__(
        self,
        line: Line,
        document: Document,
        user_id: str,
        *,
        done: Callable[[Document | None], None],
    ) -> None:
        kind = document["event"]["source"].get("type")
        super().__init__(line, PATHS[kind if kind in ("group", "room") else "user"])
        self._document = document
        self._key = str(document["key"])
        self._parts = [user_id] if self.path == PATHS["user"] else [self._key, user_id]
        self._done = done
        self._failures = 0
        age = datetime.now(UTC) - document[ACCEPT_TIME]
        self._late_seconds = LATE_SECONDS - age.total_seconds()
        left = min(TOKEN_LIFE - age, TOKEN_LIFE)
        self._token_end = line.monotonic() + left.total_seconds()

    def begin(self) -> None:
        if self._late_seconds <= 0:
            self._without("the event is too old")
            return
        self._line.later(self._late_seconds, partial(self._without, "LINE takes too long"))
        self.due()

    def _without(self, why: str) -> None:
        if self.close():
            log.info("answering without a name, %s key=%s", why, self._key)
            self._done(None)

    def standing(self) -> Standing:
        return Standing(TurnClass.OTHER, self._token_end).with_token(self._token_end)

    def is_wanted(self) -> bool:
        """Whether there is time for it and for the answer."""
        assert self._ticket is not None, "it has a turn"
        return has_time(
            self._document[ACCEPT_TIME],
            datetime.now(UTC),
            turns_before=self._line.gate.turns_before(self._ticket),
            turn_seconds=self._line.gate.turn_seconds,
        )

    def request(self) -> LineAnswer:
        return self._line.client.get(
            self.path, *self._parts, eventId=self._document.get(EVENT_ID), key=self._key
        )

    def answered(self, answer: LineAnswer | LineError) -> float | None:
        """A profile, none for a refusal, another try for a temporary error."""
        if not is_verdict(answer):
            self._failures += 1
            return pause_seconds(self._failures, first=FIRST_PAUSE_SECONDS)
        if self.close():
            # A refused access token and a rate limit are unrelated to the user.
            self._done(None if answer.status in (401, 429) else profile_of(answer))
        return None

    def not_called(self, why: NotCalled) -> float | None:
        """Let the bot run without a name."""
        if why is NotCalled.NO_TURN:
            return 0.0
        if why is NotCalled.HELD_BACK:
            self._without("rate limit")
        elif why is NotCalled.UNWANTED:
            self._without("too little time is left")
        elif not self._line.gate.is_closed:
            # At a stop the event is left to the successor, which fetches the name again.
            self._without("LINE is not called for now")
        return None


def profile_of(answer: LineAnswer) -> Document:
    """Return LINE's profile with its time; without a name if LINE refused or the answer is invalid.

    A refusal is kept like a profile, so that the same user is not requested with every message.
    """
    now = datetime.now(UTC)
    try:
        told: Any = json.loads(answer.text) if answer.status == 200 else {}
    except ValueError:
        told = {}
    if not isinstance(told, dict):
        told = {}
    # The field's name in a group's summary.
    told.setdefault("displayName", told.get("groupName"))
    return {**{n: told[n] for n in FIELDS if isinstance(told.get(n), str)}, "at": now}


@dataclass(frozen=True)
class _Wanted:
    """A name to fetch; `member` is None for the name of the user or group itself."""

    conversation: str
    member: str | None
    path: str
    parts: tuple[str, ...]
    """The ids in the path; the first one is the conversation's key."""

    @property
    def name(self) -> tuple[str, str | None]:
        return self.conversation, self.member


class LaterProfiles(SideCall):
    """Names that no answer waits for: at most one a second, one call at a time.

    Its call is last in the order. It fetches nothing while LINE is not called, or for a while after
    a call without an answer. The next event requests missing names again. Any thread may call
    `want` and `forget`.
    """

    def __init__(self, line: Line, *, conversations: ConversationStore) -> None:
        super().__init__(line, SUMMARY)
        self._conversations = conversations
        # Of the present turn: the name, and its conversation.
        self._asked: _Wanted | None = None
        self._read: StoredConversation | None = None
        # All below under _changed.
        self._wanted: dict[tuple[str, str | None], _Wanted] = {}
        self._known = Latest[tuple[str, str | None], datetime](MOST_REMEMBERED)
        self._is_asking = False
        # Of the call's thread; replaced as a whole.
        self._failures = 0
        self._quiet_until = 0.0

    def want(self, document: Document, *, sender: bool) -> None:
        """Fetch the name of the event's group, and of its sender if `sender` is true."""
        with self._changed:
            if time.monotonic() < self._quiet_until:
                return
            for wanted in _names_in(document, sender=sender):
                at = self._known.get(wanted.name)
                fresh = at is not None and datetime.now(UTC) - at < FRESH
                if not fresh and len(self._wanted) < MOST_WANTED:
                    self._wanted.setdefault(wanted.name, wanted)
            begins = bool(self._wanted) and not self._is_asking
            self._is_asking = self._is_asking or begins
        if begins:
            self._line.later(LATER_SECONDS, self.due)

    def forget(self, conversation: str) -> None:
        """Write no name into a conversation whose personal data is about to be deleted."""
        with self._changed:
            for names in (self._wanted, self._known):
                for name in [name for name in names if name[0] == conversation]:
                    del names[name]

    def _again(self, seconds: float) -> None:
        with self._changed:
            self._is_asking = goes_on = bool(self._wanted)
        if goes_on:
            super()._again(seconds)

    def enter(self) -> None:
        """Take the next name, and wait for a turn."""
        with self._changed:
            self._asked = next(iter(self._wanted.values()), None)
        if self._asked is not None:
            self.path = self._asked.path
        super().enter()

    def is_wanted(self) -> bool:
        """Whether the name is missing."""
        if self._asked is None:
            return False
        try:
            with pymongo.timeout(LATER_READ_SECONDS):
                self._read = self._conversations.with_people(self._asked.conversation)
        except StoreUnavailable:
            return False
        return self._is_missing(self._asked)

    def _is_missing(self, asked: _Wanted) -> bool:
        if self._read is None or (self.path == PATHS["user"] and self._read.friend is False):
            return False
        profile = self._read.profile_of(asked.member)
        with self._changed:
            if profile is not None and is_fresh(profile, datetime.now(UTC)):
                self._known[asked.name] = profile["at"]
                return False
            # Not if it was forgotten since it was taken, which the reading may have missed.
            return self._wanted.get(asked.name) is asked

    def request(self) -> LineAnswer:
        assert self._asked is not None, "it is wanted"
        parts = self._asked.parts
        return self._line.client.get(
            self.path, *parts, limit_seconds=LATER_CALL_SECONDS, key=parts[0]
        )

    def answered(self, answer: LineAnswer | LineError) -> float:
        """Store the name, and continue with the next one."""
        if not is_verdict(answer):
            # Names alone must not open the breaker or delay sends.
            self._keep_quiet()
            return 0.0
        self._failures = 0
        # A refused access token and a rate limit are unrelated to the name.
        if self._asked is not None and answer.status not in (401, 429):
            self._keep(self._asked, profile_of(answer))
        return self._done()

    def not_called(self, why: NotCalled) -> float:
        """Leave out the name; all of them while LINE is away."""
        if why is NotCalled.AWAY:
            with self._changed:
                self._wanted.clear()
        return 0.0 if why is NotCalled.NO_TURN else self._done()

    def _done(self) -> float:
        with self._changed:
            if self._asked is not None and self._wanted.get(self._asked.name) is self._asked:
                del self._wanted[self._asked.name]
        return LATER_SECONDS

    def _keep_quiet(self) -> None:
        self._failures += 1
        seconds = growing_seconds(
            self._failures, first=FIRST_QUIET_SECONDS, most=LONGEST_QUIET_SECONDS
        )
        self._quiet_until = time.monotonic() + seconds
        log.info("LINE returns no names, none are fetched for a while seconds=%.0f", seconds)
        with self._changed:
            self._wanted.clear()

    def _keep(self, asked: _Wanted, told: Document) -> None:
        """Write it; if an event was recorded since the conversation was read, read it again."""
        try:
            for _ in range(KEEP_TRIES):
                if self._read is not None and self._write(asked.member, told, self._read):
                    with self._changed:
                        self._known[asked.name] = told["at"]
                    return
                self._read = self._conversations.with_people(asked.conversation)
                if not self._is_missing(asked):
                    return
        except StoreUnavailable as error:
            log.debug("a name is not stored, MongoDB is away error=%s", error)

    def _write(self, member: str | None, told: Document, read: StoredConversation) -> bool:
        # A refusal does not replace an older name.
        profile = told if "displayName" in told else {**(read.profile_of(member) or {}), **told}
        is_new = member is not None and member not in read.members
        drop = next(iter(read.members)) if is_new and len(read.members) >= MOST_MEMBERS else None
        return self._conversations.keep_profile(read, member, profile, drop=drop)


def _names_in(document: Document, *, sender: bool) -> list[_Wanted]:
    """The names that an event needs: its sender's, and its group's."""
    key, id_ = str(document["key"]), conversation_id(document)
    kind = text_of(document["event"], "source", "type") or ""
    user = text_of(document["event"], "source", "userId")
    wanted = [_Wanted(id_, None, SUMMARY, (key,))] if kind == "group" else []
    # In MongoDB a dot or dollar in it would change the path.
    if sender and user is not None and user.isalnum() and kind in PATHS:
        member, parts = (None, (key,)) if user == key else (user, (key, user))
        wanted.append(_Wanted(id_, member, PATHS[kind], parts))
    return wanted
