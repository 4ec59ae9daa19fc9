"""The talk that a handler gets: the conversation, and the effects that the handler decides.

No effect is carried out while the handler runs. Sends and changes are collected, recorded in one
update, and then carried out. A handler that raises an error has therefore changed nothing.
"""

from __future__ import annotations

import asyncio
import copy
import os
import uuid
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from jobworker.bot.filters import pairs
from jobworker.bot.gather import answered
from jobworker.bot.messages import (
    MentionText,
    MessageCheck,
    add_quote,
    refuse_wrong,
    to_messages,
)
from jobworker.bot.places import bot_place, warn_once
from jobworker.bot.timers import Timers, checked_name, checked_state
from jobworker.effects import Send, SendMethod
from jobworker.errors import BotError, TalkEnded
from jobworker.line.month import MonthlyQuota
from jobworker.record.conversations import (
    MOST_MEMBERS,
    Decision,
    StoredConversation,
    as_bson,
    from_bson,
)
from linedesk.store.documents import Document, key_of, name_of, text_of
from linedesk.store.limits import MOST_MESSAGES, MOST_USERS
from linedesk.store.records.answers import ANSWERS
from linedesk.store.records.events import ACCEPT_TIME
from linedesk.store.records.letters import original_name
from linedesk.store.timers import STATE_TIMER

# The first letters of the ids of groups and rooms.
GROUPS = ("C", "R")
PAID_REPLY = "talk.reply after another send is a push, which the month's quota counts"


@dataclass(frozen=True)
class TalkContext:
    """The services that a talk uses beyond its event.

    `load` reads the conversation, `api` returns the SDK's client, `content` fetches a user's
    content, `quota` returns the rest of the month, `members` the number of people in a chat,
    `now` the time for timers; `check` refuses messages that LINE would refuse.
    """

    load: Callable[[], StoredConversation]
    api: Callable[[], Any]
    content: Callable[..., Any]
    quota: Callable[[], MonthlyQuota] = MonthlyQuota
    members: Callable[[str], int | None] = lambda key: None
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    check: MessageCheck = refuse_wrong
    per_member: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)


class Talk:
    """One event's conversation, for its handler.

    `raw` is LINE's JSON. `user_id` is the user who caused the event, if LINE names one. `key` is
    the conversation: the group, else the room, else the user. `accepted` is when the webhook
    arrived. `event_id` names the event, in a replay as well. `try_number` counts the calls of its
    handler, from 1; a replay counts on.
    """

    def __init__(self, document: Document, around: TalkContext) -> None:
        self.raw: Document = document["event"]
        self.raws = [self.raw]
        """For the worker: all events that the handler gets."""
        self.document_name = name_of(document)
        """For the worker: the document's name, of which a replay has one of its own."""
        self.event_id = original_name(self.document_name)
        self.try_number = 1
        self.channel: str = document["channel"]
        self.key: str = document["key"]
        self.user_id = text_of(self.raw, "source", "userId")
        self.reply_token = text_of(self.raw, "replyToken")
        self.accepted: datetime = document[ACCEPT_TIME]
        self.forgot = False
        self.is_async = False
        """For the worker: whether its handler runs on the event loop."""
        self.may_be_late = False
        """For the worker: whether its replies are sent even if late (see LATE_REPLIES_A_DAY)."""
        self._around = around
        apart = around.per_member and self.user_id is not None and self.user_id != self.key
        self._member = self.user_id if apart else None
        self._ended = False
        self._conversation: StoredConversation | None = None
        self._before: Mapping[str, bytes] = {}
        self._sends: list[Send] = []
        self._timers = Timers(document, member=self._member)

    # Sending.

    def reply(self, *messages: Any, quote: bool = False) -> None:
        """Answer the event: free while LINE's reply token is valid, otherwise as a push.

        Takes texts, SDK message objects, LINE's JSON, or lists of these; five in all. A reply that
        directly follows another reply is joined to it, since a token can be used once. An event
        without a token is answered by a push. With `quote` the first text or sticker quotes the
        event's message, if LINE lets bots quote it. Raises WrongMessage for messages that LINE
        would refuse.
        """
        content = self._content(self._chat(), messages, quote=quote)
        if self._joins_last_reply(content):
            self._sends[-1].messages.extend(content)
        elif self.reply_token and not any(send.way is SendMethod.REPLY for send in self._sends):
            self._add(SendMethod.REPLY, self._chat(), content)
        else:
            if self.reply_token:
                warn_once(PAID_REPLY, bot_place())
            self._add(SendMethod.PUSH, self._chat(), content)

    def mention(self, user_id: str) -> MentionText:
        """Return a mention of a group's member, as the beginning of a text or a part of it:
        `talk.reply(talk.mention(user_id) + " さん、順番です")`. LINE takes it in groups and rooms.
        """
        return MentionText((_checked_id(user_id),))

    def push(self, *messages: Any, to: str | None = None, until: datetime | None = None) -> None:
        """Send to this conversation, or to another user, group or room; counts to the quota.

        With `until`, a moment with a time zone, a message that was not sent by then becomes a dead
        letter with the cause `expired`. Raises BotError.
        """
        recipient = self._chat() if to is None else _checked_id(to)
        content = self._content(recipient, messages)
        if until is not None and until.tzinfo is None:
            raise BotError("until has no time zone", reason="invalid moment")
        self._add(SendMethod.PUSH, recipient, content, until=until)

    def multicast(self, to: Sequence[str], *messages: Any) -> None:
        """Send the same to up to 500 users in one call; counts to the quota for each."""
        users = [to] if isinstance(to, str) else list(dict.fromkeys(map(_checked_id, to)))
        if not 1 <= len(users) <= MOST_USERS:
            told = f"{len(users)} users in one multicast, LINE takes 1 to {MOST_USERS}"
            raise BotError(told, reason="too many users or none")
        self._add(SendMethod.MULTICAST, users, self._content("", messages))

    # The conversation.

    @property
    def state(self) -> str | None:
        """The conversation's state: any text the bot chooses, None at first.

        With `Bot(per_member=True)` state, data and timers in a group are separate for each member.
        """
        return self._place.get("state")

    @state.setter
    def state(self, state: str | None) -> None:
        if state is not None:
            checked_state(state)
        if self._place.get("until") is not None:
            self._timers.cancel(STATE_TIMER)
        self._place.update(state=state, until=None)

    def expect(self, state: str, *, within: float) -> None:
        """Enter a state that ends by itself after `within` seconds.

        Entering any state before then, including the same one, cancels that. After the time the
        state is None, and the handler of `bot.timeout(state)` runs, if there is one. Raises
        BotError for an invalid state or number of seconds.
        """
        now = self.now
        self._timers.after(within, STATE_TIMER, {"state": checked_state(state)}, now=now)
        self._place.update(state=state, until=now + timedelta(seconds=within))

    @property
    def data(self) -> Document:
        """The bot's data for the conversation; stored as a MongoDB document."""
        data: Document = self._place.setdefault("data", {})
        return data

    @property
    def postback(self) -> dict[str, str]:
        """The data of the event's postback as pairs, such as {"action": "buy"}; else empty."""
        return dict(pairs(text_of(self.raw, "postback", "data")))

    @property
    def friend(self) -> bool | None:
        """Whether the user is a friend of the bot; None if LINE has not said so."""
        return self._loaded.friend

    @property
    def profile(self) -> Document | None:
        """The sender's profile as LINE returned it (displayName, …); None if unknown."""
        if self.user_id is None:
            # For a group as a whole: the profile in the conversation is the group's own.
            return None
        return self._loaded.profile_of(None if self.user_id == self.key else self.user_id)

    @property
    def display_name(self) -> str | None:
        """The sender's name in LINE; None if unknown."""
        return (self.profile or {}).get("displayName")

    @property
    def members_count(self) -> int | None:
        """How many people are in the group or room, without the bot, as the month's quota counts
        them: LINE's number, asked once a day; None if LINE does not say. 1 in a 1:1 chat.

        The first call of a day waits for LINE on this handler's thread.
        """
        if self.key == self.user_id:
            return 1
        self._refuse_on_loop("lambda: talk.members_count")
        return self._around.members(self.key)

    def forget(self) -> None:
        """Delete the stored personal data of the conversation: profiles, states and data.

        Answers of earlier events that wait for a tap are deleted as well (SLOW_ANSWERS=button).
        Timers remain; cancel those that must not fire.
        """
        loaded = self._loaded
        self.forgot = True
        self.state = None
        loaded.profile = None
        loaded.data, loaded.members, loaded.states = {}, {}, {}

    @property
    def api(self) -> Any:
        """The SDK's MessagingApi for reading from LINE: gated, with a time limit, logged.

        It waits on this handler's thread. Sends through it are not recorded and not repeated after
        a crash, and a handler that fails after one is not tried again. Use `reply` and `push` to
        send.
        """
        self._refuse_on_loop("lambda: talk.api.get_profile(user_id)")
        return self._around.api()

    def content(
        self, message: Any, to: str | os.PathLike[str] | None = None, **bounds: float
    ) -> Any:
        """Stream a user's content (image, video, audio, file) from LINE to a file; returns a
        Content.

        `bounds` are `ready_seconds` and `most_bytes` of
        `jobworker.bot.content.ContentDownloads.fetch`, which lists the errors. It waits on this
        handler's thread.
        """
        self._refuse_on_loop("talk.content, event.message")
        return self._around.content(message, to, **bounds)

    @property
    def quota(self) -> MonthlyQuota:
        """The rest of the month's quota for pushes and multicasts: `limit`, `used`, `left` and
        `is_closed`. Numbers are None if LINE has not reported them or sets no limit.

        No call is made: LINE's approximate count is up to ten minutes old, and linedesk adds its
        own sends since then.
        """
        return self._around.quota()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The operator's values of the bot's own settings (see `Bot`)."""
        return self._around.settings

    @property
    def secrets(self) -> Mapping[str, str]:
        """The secrets that the bot names (see `Bot`), as the operator gave them."""
        return self._around.secrets

    # Timers.

    @property
    def now(self) -> datetime:
        """The present time for timers, in UTC; a test can change it."""
        return self._around.now()

    def after(self, seconds: float, name: str, /, **data: Any) -> None:
        """Run the handler of `bot.timer(name)` once after this many seconds.

        A timer of the same name in the same conversation is replaced. The handler gets `data` as
        `event.data`. Raises BotError.
        """
        self._timers.after(seconds, checked_name(name), data, now=self.now)

    def at(self, moment: datetime, name: str, /, **data: Any) -> None:
        """Like `after`, at a moment with a time zone; at once if that is past."""
        self._timers.at(moment, checked_name(name), data)

    def every(self, at: str, name: str, /, *, tz: str = "Asia/Tokyo", **data: Any) -> None:
        """Like `after`, at each time of a rule, by the clocks of a time zone.

        The rules are those of `linedesk.store.recurrence`, such as "07:30" or "月・木 12:00".
        """
        self._timers.every(at, checked_name(name), data, tz=tz, now=self.now)

    def cancel(self, name: str, /) -> None:
        """Cancel a timer of this conversation; harmless if there is none of that name."""
        self._timers.cancel(checked_name(name))

    # For the worker.

    def timed_by(self, now: Callable[[], datetime]) -> None:
        """Use this clock for timers and states from now on."""
        self._around = replace(self._around, now=now)

    def read(self) -> None:
        """Read the conversation now: the event loop must not wait for MongoDB."""
        self._loaded  # noqa: B018 - read on its first use

    def about(self, raw: Document) -> Talk:
        """Return the same talk for the condition of another event of the conversation."""
        other = copy.copy(self)
        other.raw, other.raws = raw, [raw]
        return other

    def gathered(self, documents: Sequence[Document]) -> None:
        """Note that the handler gets these messages together.

        `raw` is then the newest one, and a reply uses the token that lives longest. `event_id`
        remains that of the first message.
        """
        newest = answered(documents)
        self.raws = [one["event"] for one in documents]
        self.raw = self.raws[-1]
        self.reply_token = text_of(newest["event"], "replyToken")
        self.accepted = newest[ACCEPT_TIME]

    def decision(self) -> Decision:
        """Return all decisions of the handler; a later send by the talk raises TalkEnded."""
        self._ended = True
        changes: Document = {}
        gone: list[str] = []
        read_n = None
        if self._conversation is not None:
            read_n = self._conversation.n
            self._conversation.states = {
                member: place
                for member, place in self._conversation.states.items()
                if place.get("state") or place.get("data")
            }
            now = self._conversation.fields()
            # As BSON, since True == 1 here and not in MongoDB.
            changed = [name for name in now if now[name] != self._before[name]]
            changes = {name: from_bson(now[name]) for name in changed}
            if "members" in changes:
                before = from_bson(self._before["members"])
                changes |= _one_by_one("members", before, changes.pop("members"), gone)
            if self.forgot:
                # The name may be stored already, before the first record.
                # guard: a-first-name-is-forgotten
                changes["profile"] = None
                if self._conversation.answers:
                    changes[ANSWERS] = {}
        sends = [send.as_document() for send in self._sends]
        return Decision(changes, [*sends, *self._timers.effects()], read_n, gone)

    def leave_state(self, state: object) -> bool:
        """Leave a state whose time is over; False if the conversation has left it before.

        Its timer has fired, so there is none to cancel.
        """
        place = self._place
        if place.get("until") is None or place.get("state") != state:
            return False
        place.update(state=None, until=None)
        return True

    def know_friend(self, friend: bool) -> None:
        """Note whether LINE reported the user as a friend."""
        self._loaded.friend = friend

    def know_profile(self, profile: Mapping[str, Any]) -> None:
        """Note the sender's profile from LINE; a conversation keeps those of its last members.

        A profile without a name is LINE's refusal: an older name remains.
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
    def _place(self) -> MutableMapping[str, Any]:
        """The fields state, until and data: the conversation's own, or the member's."""
        if self._member is None:
            return vars(self._loaded)
        return self._loaded.states.setdefault(self._member, {})

    @property
    def _loaded(self) -> StoredConversation:
        if self._conversation is None:
            self._conversation = self._around.load()
            self._before = self._conversation.fields()
        return self._conversation

    def _refuse_on_loop(self, words: str) -> None:
        """Raise BotError for a member that waits for LINE and would stop every async handler."""
        if self.is_async and asyncio._get_running_loop() is not None:
            told = f"it waits for LINE: in an async handler `await asyncio.to_thread({words})`"
            raise BotError(told, reason="blocks the event loop")

    def _joins_last_reply(self, content: list[dict[str, Any]]) -> bool:
        if self._ended or not self._sends or self._sends[-1].way is not SendMethod.REPLY:
            return False
        return len(self._sends[-1].messages) + len(content) <= MOST_MESSAGES

    def _content(
        self, to: str, messages: Sequence[Any], *, quote: bool = False
    ) -> list[dict[str, Any]]:
        """Return messages to this chat as LINE's JSON; "" for several users."""
        content = to_messages(*messages)
        # LINE's reference, "Mention object": a reply or a push, to a group or room.
        self._around.check(content, mentions=to[:1] in GROUPS)
        # LINE sends none with what cannot be quoted, such as a voice message.
        token = text_of(self.raw, "message", "quoteToken")
        if quote and token is not None:
            add_quote(content, token)
        return content

    def _chat(self) -> str:
        """The conversation's chat: its group, room or user."""
        if key_of(self.raw) is None:
            told = "the event has no source: a send needs a recipient"
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
            raise TalkEnded("the handler has ended: its talk sends no more messages")
        reply = way is SendMethod.REPLY
        self._sends.append(
            Send(
                id=f"{self.document_name}/{len(self._sends)}",
                event_id=self.document_name,
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
    """Return the changes in a field, by path; missing entries are added to `gone`.

    Otherwise each new member would rewrite all of a busy group's 200 profiles, 42 kB.
    """
    if not now or any("." in key or key.startswith("$") for key in {*before, *now}):
        return {name: now}
    gone += [f"{name}.{key}" for key in before if key not in now]
    new = (key for key in now if as_bson(now[key]) != as_bson(before.get(key)))
    return {f"{name}.{key}": now[key] for key in new}


def _checked_id(to: object) -> str:
    if not isinstance(to, str) or not to:
        told = f"not the id of a user, group or room: {type(to).__name__}"
        raise BotError(told, reason="invalid recipient")
    return to
