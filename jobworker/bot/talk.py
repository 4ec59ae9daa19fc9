"""What a handler has in its hand: the conversation, and the effects that it decides.

Nothing leaves the house while the handler runs: sends and changes are collected, recorded in
one update, and only then carried out. So a handler that raises has done nothing.

What a talk reaches beyond its event: the conversation, LINE, the time, what the operator set.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobworker.bot.gather import answered
from jobworker.bot.messages import to_messages
from jobworker.bot.states import STATE_TIMER, StateSlot, checked_state, without_empty
from jobworker.bot.timers import Timers, checked_name
from jobworker.effects import Send, SendMethod
from jobworker.errors import BotError, TalkEnded
from jobworker.line.month import MonthlyQuota
from jobworker.record.conversations import MOST_MEMBERS, Conversation, Decision
from linedesk.store.documents import Document, key_of, name_of, text_of
from linedesk.store.limits import MOST_MESSAGES, MOST_USERS
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.conversations import NAME_PARTS, names_in
from linedesk.store.records.events import ACCEPT_TIME


def no_content(*_: Any, **__: Any) -> Any:
    """Stands for LINE's data host where there is none."""
    raise BotError("there is no data host to fetch content from", reason="no content")


@dataclass(frozen=True)
class TalkContext:
    """What a talk reaches beyond its event.

    `load` reads the conversation, `api` gives the SDK's client, `content` fetches what a user
    sent, `quota` says what is left of the month, `now` tells the time that timers are set by.
    """

    load: Callable[[], Conversation]
    api: Callable[[], Any]
    content: Callable[..., Any] = no_content
    quota: Callable[[], MonthlyQuota] = MonthlyQuota
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    per_member: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


class Talk:
    """One event's conversation, as its handler sees it.

    `raw` is LINE's JSON; `user_id` who caused the event, if LINE says so; `key` the conversation:
    the group, else the room, else the user. `accepted` is when the webhook arrived.
    """

    def __init__(self, document: Document, around: TalkContext) -> None:
        self.raw: Document = document["event"]
        self.event_id = name_of(document)
        self.channel: str = document["channel"]
        self.key: str = document["key"]
        self.user_id = text_of(self.raw, "source", "userId")
        self.reply_token = text_of(self.raw, "replyToken")
        self.accepted: datetime = document[ACCEPT_TIME]
        self.forgot = False
        self.may_be_late = False
        """For the worker: whether its replies are sent however late (see LATE_REPLIES_A_DAY)."""
        self._around = around
        apart = around.per_member and self.user_id is not None and self.user_id != self.key
        self._member = self.user_id if apart else None
        self._ended = False
        self._conversation: Conversation | None = None
        self._before: Document = {}
        self._sends: list[Send] = []
        self._timers = Timers(
            event_id=self.event_id,
            channel=self.channel,
            key=self.key,
            member=self._member,
            source=self.raw.get("source"),
        )

    # Sending.

    def reply(self, *messages: Any) -> None:
        """Answer the event: free while LINE's reply token is good, else as a push.

        Texts, SDK message objects, LINE's JSON, or lists of these; five in all. What follows at
        once on an earlier reply joins it, since a token can be used once. An event without a
        token is answered by a push. Raises BotError for what LINE would refuse.
        """
        content = to_messages(*messages)
        if self._joins_last_reply(content):
            self._sends[-1].messages.extend(content)
        elif self.reply_token and not any(send.way is SendMethod.REPLY for send in self._sends):
            self._add(SendMethod.REPLY, self._chat(), content)
        else:
            self._add(SendMethod.PUSH, self._chat(), content)

    def push(self, *messages: Any, to: str | None = None, until: datetime | None = None) -> None:
        """Send to this conversation, or to another user, group or room; counts to the quota.

        What LINE was not called for by the moment `until`, which has a time zone, is worth nothing
        any more: it becomes a dead letter with the cause `expired`. Raises BotError.
        """
        recipient = self._chat() if to is None else _checked_id(to)
        if until is not None and until.tzinfo is None:
            raise BotError("until has no time zone", reason="invalid moment")
        self._add(SendMethod.PUSH, recipient, to_messages(*messages), until=until)

    def multicast(self, to: Sequence[str], *messages: Any) -> None:
        """Send the same to up to 500 users in one call; counts to the quota for each."""
        users = [to] if isinstance(to, str) else list(dict.fromkeys(map(_checked_id, to)))
        if not 1 <= len(users) <= MOST_USERS:
            told = f"{len(users)} users in one multicast, LINE takes 1 to {MOST_USERS}"
            raise BotError(told, reason="too many users or none")
        self._add(SendMethod.MULTICAST, users, to_messages(*messages))

    # The conversation.

    @property
    def state(self) -> str | None:
        """Where the conversation stands; any text of the bot's own, None at first.

        With `Bot(per_member=True)` state, data and timers in a group are each member's own.
        """
        return self._place.state

    @state.setter
    def state(self, state: str | None) -> None:
        if state is not None:
            checked_state(state)
        if self._place.until is not None:
            self._timers.cancel(STATE_TIMER)
        self._place.move(state, None)

    def expect(self, state: str, *, within: float) -> None:
        """Enter a state that is left by itself after `within` seconds.

        Entering any state before then, the same one too, ends that time. When it is over, the
        state is None, and the handler of `bot.timeout(state)` runs, if there is one. Raises
        BotError for what is no state or no number of seconds.
        """
        now = self.now
        self._timers.after(within, STATE_TIMER, {"state": checked_state(state)}, now=now)
        self._place.move(state, now + timedelta(seconds=within))

    @property
    def data(self) -> Document:
        """What the bot keeps of the conversation; stored as MongoDB stores a document."""
        return self._place.data

    @property
    def friend(self) -> bool | None:
        """Whether the user has the bot as a friend, None while LINE has not said."""
        return self._loaded.friend

    @property
    def profile(self) -> Document | None:
        """The sender's profile as LINE told it (displayName, pictureUrl, …), as far as known."""
        if self.user_id is None:
            # Of a group as a whole: the profile in the conversation is the group's own.
            return None
        return self._loaded.profile_of(None if self.user_id == self.key else self.user_id)

    @property
    def display_name(self) -> str | None:
        """The sender's name in LINE, as far as known."""
        return (self.profile or {}).get("displayName")

    def forget(self) -> None:
        """Empty what is kept of the conversation's people: profiles, states and data.

        Answers of earlier events that wait for a tap go as well (SLOW_ANSWERS=button). Timers go on
        waiting; cancel those that are not to ring.
        """
        loaded = self._loaded
        self.forgot = True
        self.state = None
        loaded.profile = None
        loaded.data, loaded.members, loaded.states = {}, {}, {}

    @property
    def api(self) -> Any:
        """The SDK's MessagingApi, for reading from LINE: gated, in time, logged.

        It waits on this handler's thread. What is sent through it is neither recorded nor
        repeated after a crash, and a handler that fails after it is not tried again; use `reply`
        and `push` for that.
        """
        return self._around.api()

    def content(
        self, message: Any, to: str | os.PathLike[str] | None = None, **bounds: float
    ) -> Any:
        """What a user sent (image, video, audio, file), streamed from LINE to a file: a Content.

        `bounds` are `ready_seconds` and `most_bytes` of
        `jobworker.bot.content.ContentDownloads.fetch`, which says what it raises. It waits on this
        handler's thread.
        """
        return self._around.content(message, to, **bounds)

    @property
    def quota(self) -> MonthlyQuota:
        """What the plan leaves of the month for pushes and multicasts: `limit`, `used`, `left` and
        `is_closed`. Numbers are None where LINE has not said or sets no limit.

        No call is made: LINE's approximate count is up to ten minutes old, and what linedesk has
        sent since is added.
        """
        return self._around.quota()

    @property
    def settings(self) -> Mapping[str, Any]:
        """What the operator set of the bot's own settings (see `Bot`)."""
        return self._around.settings

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets that the bot names (see `Bot`), as the operator gave them."""
        return self._around.secrets

    # Timers.

    @property
    def now(self) -> datetime:
        """The time that timers are set by, in UTC; a test can move it."""
        return self._around.now()

    def after(self, seconds: float, name: str, /, **data: Any) -> None:
        """Have the handler of `bot.timer(name)` run once in so many seconds.

        A timer of the same name in the same conversation replaces the former one. `data` comes
        back as `event.data`. Raises BotError.
        """
        self._timers.after(seconds, checked_name(name), data, now=self.now)

    def at(self, moment: datetime, name: str, /, **data: Any) -> None:
        """As `after`, at a moment with a time zone; at once if that is past."""
        self._timers.at(moment, checked_name(name), data)

    def every(self, at: str, name: str, /, *, tz: str = "Asia/Tokyo", **data: Any) -> None:
        """As `after`, each day at a time such as "07:30" on the clocks of a zone."""
        self._timers.every(at, checked_name(name), data, tz=tz, now=self.now)

    def cancel(self, name: str, /) -> None:
        """End a timer of this conversation; harmless where there is none of that name."""
        self._timers.cancel(checked_name(name))

    # For the worker.

    def timed_by(self, now: Callable[[], datetime]) -> None:
        """Timers and states go by this time from now on."""
        self._around = replace(self._around, now=now)

    def gathered(self, documents: Sequence[Document]) -> None:
        """The handler gets these messages together.

        `raw` is the newest one from now on, and a reply uses the token that lives longest.
        `event_id` stays that of the first message.
        """
        newest = answered(documents)
        self.raw = documents[-1]["event"]
        self.reply_token = text_of(newest["event"], "replyToken")
        self.accepted = newest[ACCEPT_TIME]

    def decision(self) -> Decision:
        """All that the handler decided; who goes on sending by the talk meets TalkEnded."""
        self._ended = True
        changes: Document = {}
        gone: list[str] = []
        read_n = None
        if self._conversation is not None:
            read_n = self._conversation.n
            self._conversation.states = without_empty(self._conversation.states)
            now = self._conversation.fields()
            # By repr, since True == 1 here and not in MongoDB.
            before = self._before
            changes = {name: now[name] for name in now if repr(now[name]) != repr(before[name])}
            if "members" in changes:
                changes |= _one_by_one("members", before["members"], changes.pop("members"), gone)
            # guard: changed-names-are-cut-anew
            if names_in(before) != names_in(now):
                gone.append(NAME_PARTS)
            if self.forgot and self._conversation.answers:
                changes[ANSWERS] = {}
        sends = [send.as_document() for send in self._sends]
        return Decision(changes, [*sends, *self._timers.effects()], read_n, gone)

    def leave_state(self, state: object) -> bool:
        """The time of a state is over; False where the conversation stands there no more.

        Its timer has rung, so there is none to cancel.
        """
        if self._place.until is None or self._place.state != state:
            return False
        self._place.move(None, None)
        return True

    def know_friend(self, friend: bool) -> None:
        """LINE said whether the user is a friend."""
        self._loaded.friend = friend

    def know_profile(self, profile: Mapping[str, Any]) -> None:
        """LINE told the sender's profile; a conversation keeps those of its last members.

        A profile without a name is LINE's refusal: an older name stays.
        """
        if "displayName" not in profile:
            profile = {**(self.profile or {}), **profile}
        if self.user_id is None or self.user_id == self.key:
            self._loaded.profile = dict(profile)
            return
        members = self._loaded.members
        members.pop(self.user_id, None)
        members[self.user_id] = dict(profile)
        while len(members) > MOST_MEMBERS:
            members.pop(next(iter(members)))

    @property
    def _place(self) -> StateSlot:
        return StateSlot(self._loaded, member=self._member)

    @property
    def _loaded(self) -> Conversation:
        if self._conversation is None:
            self._conversation = self._around.load()
            self._before = self._conversation.fields()
        return self._conversation

    def _joins_last_reply(self, content: list[dict[str, Any]]) -> bool:
        if self._ended or not self._sends or self._sends[-1].way is not SendMethod.REPLY:
            return False
        return len(self._sends[-1].messages) + len(content) <= MOST_MESSAGES

    def _chat(self) -> str:
        """Where the conversation is: its group, room or user."""
        if key_of(self.raw) is None:
            told = "the event has no source, so a send has to say to whom"
            raise BotError(told, reason="no recipient")
        return self.key

    def _add(
        self,
        way: SendMethod,
        to: str | list[str],
        messages: list[dict[str, Any]],
        *,
        until: datetime | None = None,
    ) -> None:
        if self._ended:
            raise TalkEnded("the handler has ended: nothing is sent by its talk any more")
        reply = way is SendMethod.REPLY
        self._sends.append(
            Send(
                id=f"{self.event_id}/{len(self._sends)}",
                event_id=self.event_id,
                way=way,
                to=to,
                messages=messages,
                retry_key=str(uuid.uuid4()),
                at=datetime.now(UTC),
                token=self.reply_token if reply else None,
                token_from=self.accepted if reply else None,
                until=until,
                may_be_late=reply and self.may_be_late,
            )
        )


def _one_by_one(name: str, before: Document, now: Document, gone: list[str]) -> Document:
    """What changed in a field, by path; what is missing there now joins `gone`.

    A busy group's 200 profiles, 42 kB, would else be written with each member it had not known.
    """
    if not now or any("." in key or key.startswith("$") for key in {*before, *now}):
        return {name: now}
    gone += [f"{name}.{key}" for key in before if key not in now]
    new = (key for key in now if repr(now[key]) != repr(before.get(key)))
    return {f"{name}.{key}": now[key] for key in new}


def _checked_id(to: object) -> str:
    if not isinstance(to, str) or not to:
        told = f"not the id of a user, group or room: {type(to).__name__}"
        raise BotError(told, reason="invalid recipient")
    return to
