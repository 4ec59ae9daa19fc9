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
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pymongo

from jobworker.errors import LineError
from jobworker.line.answer import LineAnswer, is_no_verdict
from jobworker.line.client import answer_or_error
from jobworker.line.gate import Gate
from jobworker.line.gate_order import Standing, Ticket, TurnClass
from jobworker.line.rate_limits import RateLimits
from jobworker.record.conversations import MOST_MEMBERS, Conversation, Conversations
from linedesk.runtime.backoff import growing_seconds, pause_seconds
from linedesk.store.documents import Document, conversation_id, text_of
from linedesk.store.errors import StoreUnavailable
from linedesk.store.limits import TOKEN_LIFE
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


@dataclass(frozen=True)
class ProfileLimits:
    """The time limits of names, and the rate of names that no answer waits for."""

    late_seconds: float = 30.0
    """From this age of the event on, the bot answers without a name
    (docs/explanation/design-notes.md).
    """
    first_pause_seconds: float = 0.5
    """The pause before another try for a name that an answer waits for; longer with each try."""
    later_seconds: float = 1.0
    """The pause before each name that no answer waits for. By then the event's answer is sent, and
    such names take at most a tenth of the gate's turns.
    """
    later_read_seconds: float = 0.5
    """A send that arrives while the conversation is read before such a call waits this long."""
    later_call_seconds: float = 2.0
    """A send that arrives during such a call waits until it has ended."""
    first_quiet_seconds: float = 60.0
    """The pause after such a call without an answer; longer with each consecutive one."""
    longest_quiet_seconds: float = 3600.0


LIMITS = ProfileLimits()


def is_fresh(profile: Document | None, now: datetime) -> bool:
    """Whether a stored profile is recent enough."""
    return profile is not None and now - profile["at"] < FRESH


def has_time(
    accepted: datetime,
    now: datetime,
    *,
    turns_before: int,
    turn_seconds: float,
    late_seconds: float = LIMITS.late_seconds,
) -> bool:
    """Whether the profile and then the reply would be in time, after that many turns of others."""
    left = (accepted + TOKEN_LIFE - now).total_seconds() * SHARE
    is_late = now >= accepted + timedelta(seconds=late_seconds)
    return not is_late and (turns_before + 2) * turn_seconds * SLOWER <= left


class ProfileFetch:
    """One profile fetch, by a ticket of the gate that does not wait while LINE is away.

    `done` is called once, with the profile or None if the bot has to answer without one.
    """

    def __init__(
        self,
        document: Document,
        user_id: str,
        *,
        gate: Gate,
        rate_limits: RateLimits,
        get: Callable[..., LineAnswer],
        later: Callable[[float, Callable[[], None]], None],
        done: Callable[[Document | None], None],
        limits: ProfileLimits = LIMITS,
    ) -> None:
        self._document = document
        self._user_id = user_id
        self._gate = gate
        self._rate_limits = rate_limits
        self._get = get
        self._later = later
        self._done = done
        self._limits = limits
        self._lock = threading.Lock()
        # Under _lock.
        self._ended = False
        self._failures = 0
        self._ticket: Ticket | None = None
        now = datetime.now(UTC)
        age = now - document[ACCEPT_TIME]
        self._late_seconds = limits.late_seconds - age.total_seconds()
        until = document[ACCEPT_TIME] + TOKEN_LIFE
        left = min(until - now, TOKEN_LIFE)
        self._token_end = time.monotonic() + left.total_seconds()

    def begin(self) -> None:
        """Wait for a turn at the gate, within the time limit."""
        if self._late_seconds <= 0:
            self._without("the event is too old")
            return
        self._later(self._late_seconds, lambda: self._without("LINE takes too long"))
        self._enter()

    def _enter(self) -> None:
        end = self._token_end
        self._ticket = Ticket(
            Standing(TurnClass.OTHER, end).with_token(end),
            patient=False,
            granted=self._take_turn,
            refused=self._refused,
            is_read=True,
        )
        self._gate.enter(self._ticket)

    def _refused(self, _: Ticket) -> None:
        # At a stop the event is left to the successor, which fetches the name again.
        if not self._gate.is_closed:
            self._without("LINE is not called for now")

    def _take_turn(self, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        answer = None
        with self._gate.holding(ticket) as turn:
            if not self._is_worth_it(ticket):
                return
            if turn.may_call():
                turn.begin()
                answer = self._ask()
        if answer is None:
            self._enter()
        else:
            self._settle(answer)

    def _is_worth_it(self, ticket: Ticket) -> bool:
        """Whether the call is still worth a turn."""
        if self._ended:
            return False
        in_time = has_time(
            self._document[ACCEPT_TIME],
            datetime.now(UTC),
            turns_before=self._gate.turns_before(ticket),
            turn_seconds=self._gate.turn_seconds,
            late_seconds=self._limits.late_seconds,
        )
        if not in_time:
            self._without("too little time is left")
        elif self._rate_limits.seconds(self._path):
            self._without("rate limit")
        return not self._ended

    @property
    def _path(self) -> str:
        """The endpoint: of a member in a group or room, otherwise of a user."""
        kind = self._document["event"]["source"].get("type")
        return PATHS[kind if kind in ("group", "room") else "user"]

    def _ask(self) -> LineAnswer | LineError:
        """Make the call, under the gate."""
        path = self._path
        parts = [self._user_id] if path == PATHS["user"] else [self._key, self._user_id]
        answer = answer_or_error(
            lambda: self._get(path, *parts, eventId=self._document.get(EVENT_ID), key=self._key)
        )
        self._rate_limits.note(path, answer)
        return answer

    def _settle(self, answer: LineAnswer | LineError) -> None:
        """Handle the answer: a profile, none for a refusal, another try for a temporary error."""
        if isinstance(answer, LineAnswer) and not is_no_verdict(answer.status):
            # A refused access token and a rate limit are unrelated to the user.
            self._end(None if answer.status in (401, 429) else profile_of(answer))
            return
        self._failures += 1
        pause = pause_seconds(self._failures, first=self._limits.first_pause_seconds)
        self._later(pause, self._enter)

    def _without(self, why: str) -> None:
        if self._end(None):
            log.info("answering without a name, %s key=%s", why, self._key)

    def _end(self, profile: Document | None) -> bool:
        """Let the bot run with the present result; only the first end counts."""
        with self._lock:
            first, self._ended = not self._ended, True
        if first:
            if self._ticket is not None:
                # A ticket that still waits would count as a read with an answer to follow.
                self._gate.cancel(self._ticket)
            self._done(profile)
        return first

    @property
    def _key(self) -> str:
        return str(self._document["key"])


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
    key: str
    path: str

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.key,) if self.member is None else (self.key, self.member)


class LaterProfiles:
    """Names that no answer waits for: at most one a second, by one ticket of the gate at a time.

    The ticket is last in the order. It fetches nothing while LINE is not called, or for a while
    after a call without an answer. The next event requests missing names again. Any thread may call
    `want` and `forget`.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        conversations: Conversations,
        rate_limits: RateLimits,
        get: Callable[..., LineAnswer],
        later: Callable[[float, Callable[[], None]], None],
        limits: ProfileLimits = LIMITS,
    ) -> None:
        self._gate = gate
        self._limits = limits
        self._conversations = conversations
        self._rate_limits = rate_limits
        self._get = get
        self._later = later
        self._lock = threading.Lock()
        # All below under _lock.
        self._wanted: OrderedDict[tuple[str, str | None], _Wanted] = OrderedDict()
        self._known: OrderedDict[tuple[str, str | None], datetime] = OrderedDict()
        self._is_asking = False
        self._failures = 0
        self._quiet_until = 0.0

    def want(self, document: Document, *, sender: bool) -> None:
        """Fetch the name of the event's group, and of its sender if `sender` is true."""
        with self._lock:
            if time.monotonic() < self._quiet_until:
                return
            for wanted in _names_in(document, sender=sender):
                self._add(wanted)
            begins = bool(self._wanted) and not self._is_asking
            self._is_asking = self._is_asking or begins
        if begins:
            self._again()

    def forget(self, conversation: str) -> None:
        """Write no name into a conversation whose personal data is about to be deleted."""
        with self._lock:
            for names in (self._wanted, self._known):
                for name in [name for name in names if name[0] == conversation]:
                    del names[name]

    def _add(self, wanted: _Wanted) -> None:
        """Under the lock."""
        name = wanted.conversation, wanted.member
        at = self._known.get(name)
        fresh = at is not None and datetime.now(UTC) - at < FRESH
        if not fresh and len(self._wanted) < MOST_WANTED:
            self._wanted.setdefault(name, wanted)

    def _again(self) -> None:
        self._later(self._limits.later_seconds, self._enter)

    def _enter(self) -> None:
        ticket = Ticket(
            Standing(TurnClass.IDLE, time.monotonic()),
            patient=False,
            granted=self._take_turn,
            refused=lambda _: self._drop_all(),
        )
        self._gate.enter(ticket)

    def _drop_all(self) -> None:
        """LINE is not called for now."""
        with self._lock:
            self._wanted.clear()
            self._is_asking = False

    def _take_turn(self, ticket: Ticket) -> None:
        """On a pool thread: handle a turn at the gate."""
        with self._lock:
            wanted = next(iter(self._wanted.values()), None)
        answer = None
        with self._gate.holding(ticket) as turn:
            read = self._read(wanted)
            asked = wanted and self._to_be_asked(wanted, read)
            if asked is not None and turn.may_call():
                turn.begin()
                answer = self._ask(asked)
        if asked is None:
            self._next(wanted)
        elif answer is None:
            self._enter()
        else:
            self._settle(asked, read, answer)

    def _read(self, wanted: _Wanted | None) -> Conversation | None:
        """Return the conversation of a name that may be fetched now."""
        if wanted is None or self._rate_limits.seconds(wanted.path):
            return None
        try:
            with pymongo.timeout(self._limits.later_read_seconds):
                return self._conversations.with_people(wanted.conversation)
        except StoreUnavailable as error:
            log.info("names are not fetched, MongoDB is away error=%s", error)
            return None

    def _to_be_asked(self, wanted: _Wanted, read: Conversation | None) -> _Wanted | None:
        if read is None or (wanted.path == PATHS["user"] and read.friend is False):
            return None
        profile = read.profile_of(wanted.member)
        with self._lock:
            if profile is not None and is_fresh(profile, datetime.now(UTC)):
                self._remember(wanted, profile["at"])
                return None
            # Not if it was forgotten since it was taken, which the reading may have missed.
            return self._wanted.get((wanted.conversation, wanted.member))

    def _ask(self, wanted: _Wanted) -> LineAnswer | LineError:
        """Make the call, under the gate."""
        answer = answer_or_error(
            lambda: self._get(
                wanted.path,
                *wanted.parts,
                limit_seconds=self._limits.later_call_seconds,
                key=wanted.key,
            )
        )
        self._rate_limits.note(wanted.path, answer)
        return answer

    def _settle(
        self, wanted: _Wanted, read: Conversation | None, answer: LineAnswer | LineError
    ) -> None:
        """Store LINE's answer, and continue with the next name."""
        if not isinstance(answer, LineAnswer) or is_no_verdict(answer.status):
            # Names alone must not open the breaker or delay sends.
            self._keep_quiet()
            return
        with self._lock:
            self._failures = 0
        # A refused access token and a rate limit are unrelated to the name.
        if answer.status not in (401, 429):
            self._keep(wanted, profile_of(answer), read)
        self._next(wanted)

    def _keep_quiet(self) -> None:
        with self._lock:
            self._failures += 1
            seconds = growing_seconds(
                self._failures,
                first=self._limits.first_quiet_seconds,
                most=self._limits.longest_quiet_seconds,
            )
            self._quiet_until = time.monotonic() + seconds
        log.info("LINE returns no names, none are fetched for a while seconds=%.0f", seconds)
        self._drop_all()

    def _keep(self, wanted: _Wanted, told: Document, read: Conversation | None) -> None:
        """Write it; if an event was recorded since the conversation was read, read it again."""
        try:
            for _ in range(KEEP_TRIES):
                if read is None:
                    return
                if self._write(wanted, told, read):
                    with self._lock:
                        self._remember(wanted, told["at"])
                    return
                read = self._conversations.with_people(wanted.conversation)
                if self._to_be_asked(wanted, read) is not wanted:
                    return
        except StoreUnavailable as error:
            log.info("a name is not stored, MongoDB is away error=%s", error)

    def _write(self, wanted: _Wanted, told: Document, read: Conversation) -> bool:
        # A refusal does not replace an older name.
        profile = (
            told if "displayName" in told else {**(read.profile_of(wanted.member) or {}), **told}
        )
        is_new = wanted.member is not None and wanted.member not in read.members
        drop = next(iter(read.members)) if is_new and len(read.members) >= MOST_MEMBERS else None
        return self._conversations.keep_profile(read, wanted.member, profile, drop=drop)

    def _remember(self, wanted: _Wanted, at: datetime) -> None:
        """Under the lock."""
        self._known[wanted.conversation, wanted.member] = at
        while len(self._known) > MOST_REMEMBERED:
            self._known.popitem(last=False)

    def _next(self, done: _Wanted | None) -> None:
        with self._lock:
            if done is not None:
                self._wanted.pop((done.conversation, done.member), None)
            self._is_asking = goes_on = bool(self._wanted)
        if goes_on:
            self._again()


def _names_in(document: Document, *, sender: bool) -> list[_Wanted]:
    """The names that an event needs: its sender's, and its group's."""
    key, id_ = str(document["key"]), conversation_id(document)
    kind = text_of(document["event"], "source", "type") or ""
    user = text_of(document["event"], "source", "userId")
    wanted = [_Wanted(id_, None, key, SUMMARY)] if kind == "group" else []
    # In MongoDB a dot or dollar in it would change the path.
    if sender and user is not None and user.isalnum() and kind in PATHS:
        wanted.append(_Wanted(id_, None if user == key else user, key, PATHS[kind]))
    return wanted
