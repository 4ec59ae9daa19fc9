"""`BotTest`: a bot in a conversation within one process, in milliseconds.

The core's pure step (`jobworker.decide`) decides each event, with the rules, talk and timers of
production. Only the services behind them are replaced: MongoDB by `memory`, LINE by the list of
sends, the thread that fires timers by `advance`.
"""

from __future__ import annotations

import asyncio
import atexit
import itertools
import math
import mimetypes
import os
import re
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from operator import call
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pydantic import SecretStr

from dispatcher.commit.tracker import Slot
from dispatcher.conversations.mailbox import Job, Mailbox, Wait
from jobworker.async_handlers import Threads, a_loop
from jobworker.bot.bot import Bot, Rule
from jobworker.bot.content import Content, content_id
from jobworker.bot.gather import answered
from jobworker.bot.messages import SEND_CHECKS, refuse_unknown
from jobworker.bot.places import place_of, unused
from jobworker.bot.talk import Talk, TalkContext
from jobworker.bot.timers import decision_of
from jobworker.decide import Case, Decided, decide, decide_given_up
from jobworker.effects import is_timer
from jobworker.errors import ContentNotFound, NoTimerHandler, PermanentError
from jobworker.handler_retry import Failure
from jobworker.handler_runner import HandlerRunner
from jobworker.line.month import MonthlyQuota
from jobworker.record.conversations import Decision
from jobworker.record.edits import EDIT
from jobworker.record.waiting_answers import ButtonShown, kept
from jobworker.runs import JobMemo
from jobworker.sending.button import BEFORE_END_SECONDS, SlowAnswers, may_be_offered, message_of
from linedesk.bots.load import read_bot_secrets, read_bot_settings
from linedesk.store.control import start_order
from linedesk.store.documents import Document, conversation_id, make_document, name_of
from linedesk.store.limits import TOKEN_LIFE
from linedesk.store.records.answers import KEPT_FOR
from linedesk.store.records.timers import RUN_AT
from linedesk.store.records.waits import Why
from linedesk.store.recurrence import Recurrence
from linedesk.store.redaction import message_id_of
from linedesk.store.timers import STATE_TIMER, make_timer_document
from linedesk.testing.actions import action_of, picked
from linedesk.testing.answers import Answers, Sent, Shown, Waiting, answer_data_in
from linedesk.testing.memory import Memory, as_stored
from linemessages import units

START = datetime(2027, 1, 4, 0, 0, tzinfo=UTC)
"""A Monday, nine in the morning in Tokyo."""
CHANNEL = "main"
BOT = "bot"
# The default of HANDLER_LIMIT_SECONDS.
HANDLER_LIMIT_SECONDS = 60.0
# LINE's reference, "Message event": the types of messages; any other type is that of an event.
MESSAGES = frozenset({"text", "image", "video", "audio", "file", "location", "sticker"})
# LINE's reference: the events to which a bot can reply.
REPLYABLE = frozenset(
    {
        *("message", EDIT, "follow", "join", "memberJoined", "postback"),
        *("videoPlayComplete", "beacon", "accountLink", "membership"),
    }
)
LINE = {"contentProvider": {"type": "line"}}
TIMED = {"duration": 2_000, **LINE}
ALONE: Any = SimpleNamespace(lock=nullcontext(), is_reading=False)
"""The owner of all mailboxes: a test has one thread."""
MOST_FIRINGS = 1_000
FAILED = (
    "In production the handler is tried HANDLER_TRIES times in all (at most three times for an "
    "error of the bot's own code), without any effects in between; then the event becomes a dead "
    "letter."
)
REFUSED = "In production the event becomes a dead letter at once: each further try would fail, too."


class BotWarning(UserWarning):
    """A handler returns a message instead of sending it, or another value."""


class KitError(Exception):
    """Base of the kit's own errors, apart from the bot's own exceptions."""


class EndlessTimers(KitError):
    """Timers of the bot fire at once, endlessly: production would never finish."""


class NotHere(KitError):
    """The test uses a feature that the kit lacks; the message explains the alternative."""


class BotTest:
    """A bot in conversations with users ("U1"), groups ("C1") and rooms ("R1").

    A user or group exists from its first use. A user's name in LINE equals its name in the test
    unless `names` sets another.

    `settings` overrides the bot's own settings, `secrets` has its declared secrets; SettingsError
    is raised as at the dispatcher's start. An exception of a handler reaches the test, and its
    decisions have no effect. `api` is the value of `talk.api`:
    the test's stand-in for LINE's MessagingApi. `slow_answers` and
    `send_check` are the operator's settings of these names.
    """

    quota: MonthlyQuota
    """The value of `talk.quota`; a test may set it at any time."""
    members: dict[str, int]
    """The value of `talk.members_count` by group or room; None for others."""

    def __init__(
        self,
        bot: Bot,
        *,
        settings: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
        start: datetime = START,
        api: Any = None,
        slow_answers: str = "push",
        send_check: str = "on",
    ) -> None:
        if not isinstance(bot, Bot):
            raise NotHere(
                "this is not a Bot and calls LINE by itself: try it with `linesim` and `linedesk "
                "up`, as tutorial 1 does"
            )
        if start.tzinfo is None:
            raise ValueError("start has no time zone")
        self.bot = bot
        given = {name: _told_by_operator(value) for name, value in (settings or {}).items()}
        self.settings = read_bot_settings(bot, given)
        hidden = {name: SecretStr(value) for name, value in (secrets or {}).items()}
        self.secrets = read_bot_secrets(bot, hidden)
        self.quota = MonthlyQuota()
        self.members = {}
        self.last = Answers()
        """The answers to the last event, or during the last `advance`."""
        self._now = start.astimezone(UTC)
        self._api = api
        self._slow_answers = SlowAnswers(slow_answers)
        # An unknown type or property is a warning in production: here it may be a slip.
        self._check = refuse_unknown if send_check == "on" else SEND_CHECKS[send_check]
        self._takes = 0.0
        self._fails = False
        self._numbers = itertools.count(1)
        self._memory = Memory()
        self._mailboxes: dict[str, Mailbox] = {}
        # When the messages that a conversation gathers are looked at again.
        self._gathers_until: dict[str, datetime] = {}
        self._handled: set[str] = set()
        self._names: dict[str, str] = {}
        self._sent: list[Sent] = []
        # The id of each user's last text in a chat, and the last edit of a message by its id.
        self._texts: dict[tuple[str, str | None], str] = {}
        self._edits: dict[str, Document] = {}
        # The files of users by message id, each with its name; and where the handler reads them.
        self._contents: dict[str, tuple[bytes, str]] = {}
        self._passing = Path()

    # Actions of users.

    def says(self, user: str, text: str, *, group: str | None = None) -> Answers:
        """A user writes, in 1:1 or in a group."""
        return self.sends(user, {"type": "text", "text": text}, group=group)

    def sends(self, user: str, event: Mapping[str, Any], *, group: str | None = None) -> Answers:
        """A user sends a message, or causes an event, given as LINE's JSON.

        Missing ids, token, time and source are filled in.
        """
        if event.get("type") in MESSAGES:
            message = {"id": self._message_id(), "quoteToken": "q", **event}
            if message["type"] == "text":
                self._texts[user, group] = message["id"]
            return self._happens("message", user, group, message=message)
        return self._happens(str(event.get("type")), user, group, **event)

    def presses(
        self,
        user: str,
        data: str,
        *,
        params: Mapping[str, str] | None = None,
        group: str | None = None,
    ) -> Answers:
        """A user presses a button with a postback action."""
        postback: Document = {"data": data} | ({"params": dict(params)} if params else {})
        return self._happens("postback", user, group, postback=postback)

    def taps(
        self, user: str, label: str | None = None, *, menu: Any = None, group: str | None = None
    ) -> Answers:
        """A user taps what has this label in the chat's last messages, or in the rich menu `menu`
        (LINE's JSON or the SDK's object); what only opens something is no event. Without a label it
        is the last button for a slow answer (SLOW_ANSWERS=button).
        """
        if label is None:
            data = filter(None, map(answer_data_in, reversed(self._shown(user, group))))
            if (found := next(data, None)) is None:
                raise ValueError(f"no button for a slow answer was shown to {group or user}")
            return self.presses(user, found, group=group)
        action = action_of(label, self._shown(user, group, menu))
        match action["type"]:
            case "message":
                return self.says(user, action["text"], group=group)
            case "postback":
                return self.presses(user, action["data"], group=group)
            case "richmenuswitch":
                params = {"newRichMenuAliasId": action["richMenuAliasId"], "status": "SUCCESS"}
                return self.presses(user, action["data"], params=params, group=group)
            case "uri" | "clipboard":
                return self._noted(())
        raise ValueError(f"{label!r} lets the user choose: use picks_date, image or location")

    def picks_date(
        self,
        user: str,
        moment: str,
        label: str | None = None,
        *,
        menu: Any = None,
        group: str | None = None,
    ) -> Answers:
        """A user picks "2027-01-31", "09:30" or "2027-01-31T09:30" in the last picker, or in the
        one with this label.
        """
        action = action_of(label, self._shown(user, group, menu))
        return self.presses(user, action["data"], params=picked(action, moment), group=group)

    def sends_mention(self, user: str, text: str, *, group: str) -> Answers:
        """A member writes a text with mentions: "@bot", "@all", or "@U2" of the user U2."""
        found = [_mentionee(text, one) for one in re.finditer(r"@(\w+)", text)]
        if not found:
            raise ValueError("the text mentions no one: '@bot こんにちは'")
        message = {"type": "text", "text": text, "mention": {"mentionees": found}}
        return self.sends(user, message, group=group)

    def edits(self, user: str, text: str, *, group: str, message_id: str | None = None) -> Answers:
        """A member edits their last text in the group, or the one with this id."""
        id_ = message_id or self._texts.get((user, group))
        if id_ is None:
            raise ValueError(f"{user} has written no text in {group}")
        message = {"type": "text", "id": id_, "quoteToken": "q", "text": text}
        # Later than the message and its last edit, although no time passes in between.
        at = int(self._now.timestamp() * 1000) + next(self._numbers)
        return self._happens(EDIT, user, group, message=message, timestamp=at)

    def follows(self, user: str, *, unblocked: bool = False) -> Answers:
        """A user adds the bot as a friend, or unblocks it."""
        return self._happens("follow", user, None, follow={"isUnblocked": unblocked})

    def unfollows(self, user: str) -> Answers:
        """A user blocks the bot."""
        return self._happens("unfollow", user, None)

    def joins(self, group: str) -> Answers:
        """The bot joins a group or room."""
        return self._happens("join", None, group)

    def leaves(self, group: str) -> Answers:
        """The bot is removed from a group or room."""
        return self._happens("leave", None, group)

    def member_joins(self, user: str, *, group: str) -> Answers:
        """Another user joins a group of the bot."""
        return self._happens("memberJoined", None, group, joined=_members(user))

    def member_leaves(self, user: str, *, group: str) -> Answers:
        """A member leaves a group of the bot."""
        return self._happens("memberLeft", None, group, left=_members(user))

    def unsends(self, user: str, message_id: str, *, group: str | None = None) -> Answers:
        """A user unsends a message."""
        return self._happens("unsend", user, group, unsend={"messageId": message_id})

    def sticker(
        self, user: str, *, package: str = "446", sticker: str = "1988", group: str | None = None
    ) -> Answers:
        """A user sends a sticker."""
        ids = {"packageId": package, "stickerId": sticker, "stickerResourceType": "STATIC"}
        return self.sends(user, {"type": "sticker", **ids}, group=group)

    def location(
        self,
        user: str,
        *,
        latitude: float = 35.6586,
        longitude: float = 139.7454,
        title: str = "東京タワー",
        address: str = "東京都港区芝公園4丁目2-8",
        group: str | None = None,
    ) -> Answers:
        """A user sends a location."""
        where = {"latitude": latitude, "longitude": longitude, "title": title, "address": address}
        return self.sends(user, {"type": "location", **where}, group=group)

    def image(self, user: str, data: bytes = b"\xff\xd8", *, group: str | None = None) -> Answers:
        """A user sends a photo; `talk.content` returns these bytes."""
        return self._media("image", user, data, "photo.jpg", group, **LINE)

    def video(self, user: str, data: bytes = b"video", *, group: str | None = None) -> Answers:
        """A user sends a video."""
        return self._media("video", user, data, "video.mp4", group, **TIMED)

    def audio(self, user: str, data: bytes = b"audio", *, group: str | None = None) -> Answers:
        """A user sends a voice message."""
        return self._media("audio", user, data, "voice.m4a", group, **TIMED)

    def file(
        self, user: str, data: bytes = b"", *, name: str = "notes.txt", group: str | None = None
    ) -> Answers:
        """A user sends a file."""
        more = {"fileName": name, "fileSize": len(data)}
        return self._media("file", user, data, name, group, **more)

    # The bot's answers.

    @property
    def replies(self) -> list[Shown]:
        """The bot's replies to the last event: texts, other messages as LINE's JSON."""
        return self.last.replies

    @property
    def pushes(self) -> list[Shown]:
        """The bot's pushes for the last event, or during the last `advance`."""
        return self.last.pushes

    @property
    def sent(self) -> list[Sent]:
        """All sends of the bot since the start, or since `clear`."""
        return list(self._sent)

    def clear(self) -> None:
        """Empty `sent`."""
        self._sent.clear()

    # Time.

    def advance(
        self,
        seconds: float | None = None,
        *,
        to: datetime | str | None = None,
        tz: str = "Asia/Tokyo",
    ) -> Answers:
        """Move the time on: by seconds, or to a moment, or to a time of day such as "07:30".

        Timers fire in order, each at its own time. Raises ValueError for a time in the past.
        """
        if (seconds is None) == (to is None):
            raise ValueError("advance(seconds) or advance(to=...)")
        if isinstance(to, str):
            to = Recurrence.parse(to, tz).after(self._now) or self._now
        moment = to if to is not None else self._now + timedelta(seconds=seconds or 0.0)
        if moment < self._now:
            raise ValueError(f"time only moves forward: it is {self._now}, after {moment}")
        sent = self._fire_until(moment.astimezone(UTC))
        self._now = moment.astimezone(UTC)
        return self._noted(sent)

    @property
    def now(self) -> datetime:
        """The time in the conversation, as in `talk.now`."""
        return self._now

    def starts_timers(self, name: str) -> Answers:
        """Do what a dispatcher does when it first runs with `@bot.start_timers(name)`."""
        order = start_order(name, self._now)
        for id_ in self._memory.unstarted(name):
            document, decision = decision_of(order, id_, now=self._now)
            self._memory.record(document, decision)
        return self._noted(self._fire_until(self._now))

    def takes(self, seconds: float) -> None:
        """Make the next handler take `seconds`.

        A reply token is valid for 60 s. With SLOW_ANSWERS=button the user gets a button if a
        handler still runs ten seconds before its end; `taps` then delivers the answer.
        """
        self._takes = seconds

    def fails(self) -> None:
        """Let the next handler fail in each try, whatever it does: its event is given up, and
        `@bot.failed` decides.
        """
        self._fails = True

    # State of the conversations.

    def id(self, name: str) -> str:
        """The id that the bot sees for a user, group or room: its name in the test."""
        return name

    def names(self, user: str, name: str) -> None:
        """Give a user a name in LINE."""
        self._names[user] = name

    def state(self, user: str | None = None, *, group: str | None = None) -> str | None:
        """The state of a conversation, as in `talk.state` for this user."""
        return self._place(user, group).get("state")

    def until(self, user: str | None = None, *, group: str | None = None) -> datetime | None:
        """When the state times out (`talk.expect`); None if it does not."""
        until: datetime | None = self._place(user, group).get("until")
        return until and until.astimezone(UTC)

    def data(self, user: str | None = None, *, group: str | None = None) -> Document:
        """A copy of `talk.data` for this user."""
        return self._place(user, group).get("data") or {}

    def timers(self, user: str | None = None, *, group: str | None = None) -> list[Waiting]:
        """The bot's waiting timers, the next one first."""
        id_, member = self._whose(user, group)
        start = f"{id_}/{member}/" if member else f"{id_}/"
        own = (row for row in self._memory.rows() if row["_id"] == f"{start}{row['name']}")
        found = [Waiting.from_row(row) for row in own if row["name"] != STATE_TIMER]
        return sorted(found, key=lambda one: (one.at, one.name))

    def _place(self, user: str | None, group: str | None) -> Mapping[str, Any]:
        """The place of state and data: the conversation, or a member's own part of it."""
        id_, member = self._whose(user, group)
        stored = self._memory.stored(id_)
        return (stored.get("states") or {}).get(member, {}) if member else stored

    def _whose(self, user: str | None, group: str | None) -> tuple[str, str | None]:
        """The conversation's `_id`, and the member for whose own part it is used."""
        if user is None and group is None:
            raise ValueError("name a user, a group or both")
        if group is None:
            return f"{CHANNEL}/{user}", None
        return f"{CHANNEL}/{group}", user if self.bot.per_member else None

    # Processing of an event.

    def _happens(self, kind: str, user: str | None, group: str | None, /, **more: Any) -> Answers:
        """An event with the common fields, and a reply token if LINE sends one."""
        number = next(self._numbers)
        event: Document = {
            "type": kind,
            "webhookEventId": f"01{number:024d}",
            "deliveryContext": {"isRedelivery": False},
            "timestamp": int(self._now.timestamp() * 1000),
            "source": _source_of(user, group),
            "mode": "active",
            **({"replyToken": f"{number:032d}"} if kind in REPLYABLE else {}),
            **more,
        }
        document = make_document(event, channel=CHANNEL, accept_time=self._now)
        if kind == EDIT:
            self._edits[str(message_id_of(document))] = document
        if name_of(document) in self._handled:
            # LINE delivers it a second time.
            return self._noted(())
        self._handled.add(name_of(document))
        self._memory.end_old_answers(self._now - KEPT_FOR)
        return self._noted((*self._put(as_stored(document)), *self._fire_until(self._now)))

    def _shown(self, user: str, group: str | None, menu: Any = None) -> list[Document]:
        """The messages that the bot has sent to a chat, or only a rich menu."""
        if menu is not None:
            return [menu.to_dict() if hasattr(menu, "to_dict") else menu]
        sent = (one for one in self._sent if (group or user) in (one.to, *one.to))
        return [message for one in sent for message in one.messages]

    def _media(
        self, kind: str, user: str, data: bytes, name: str, group: str | None, **more: Any
    ) -> Answers:
        message_id = self._message_id()
        self._contents[message_id] = data, name
        return self.sends(user, {"type": kind, "id": message_id, **more}, group=group)

    def _message_id(self) -> str:
        """The id of a message: digits in a text, as LINE's are."""
        return f"5{next(self._numbers):017d}"

    def _noted(self, sent: tuple[Sent, ...]) -> Answers:
        self._sent.extend(sent)
        self.last = Answers(sent)
        return self.last

    def _put(self, document: Document) -> tuple[Sent, ...]:
        """Append a document to the mailbox of its conversation."""
        id_ = conversation_id(document)
        mailbox = self._mailboxes.setdefault(id_, Mailbox(id_))
        slot = Slot(document["_id"], token=None)
        mailbox.jobs.append(Job(mailbox, document, slot, again=False, owner=ALONE))
        return self._work_off(id_)

    def _work_off(self, id_: str) -> tuple[Sent, ...]:
        """Decide the documents of a conversation, up to messages that are still gathered."""
        mailbox, sent = self._mailboxes[id_], list[Sent]()
        self._gathers_until.pop(id_, None)
        while mailbox.jobs:
            result: tuple[Sent, ...] | Wait = ()
            try:
                result = self._result(mailbox.jobs[0])
            finally:
                if not isinstance(result, Wait):
                    for _ in range(1 + mailbox.along):
                        mailbox.jobs.popleft()
                    mailbox.along = 0
            if isinstance(result, Wait):
                self._gathers_until[id_] = self._now + timedelta(seconds=result.seconds or 0.0)
                break
            sent.extend(result)
        return tuple(sent)

    def _fire_until(self, moment: datetime) -> tuple[Sent, ...]:
        """Fire timers and process gathered messages up to `moment`, each at its time."""
        sent: list[Sent] = []
        at_once = 0
        while (following := self._next()) is not None and following[0] <= moment:
            due, process = following
            at_once = 0 if due > self._now else at_once + 1
            if at_once > MOST_FIRINGS:
                names = ", ".join(row["name"] for row in self._memory.rows())
                raise EndlessTimers(f"timers fired {MOST_FIRINGS} times at once: {names}")
            self._now = max(self._now, due)
            sent.extend(process())
        return tuple(sent)

    def _next(self) -> tuple[datetime, Callable[[], tuple[Sent, ...]]] | None:
        """What is due next, and when; of things due together the timers come first."""
        rows = self._memory.rows()
        timers = [(row[RUN_AT].astimezone(UTC), partial(self._fire, row)) for row in rows]
        gathered = [(due, partial(self._work_off, id_)) for id_, due in self._gathers_until.items()]
        return min((*timers, *gathered), key=lambda one: one[0], default=None)

    def _fire(self, row: Document) -> tuple[Sent, ...]:
        self._memory.fired(row)
        return self._put(as_stored(make_timer_document(row, accept_time=self._now)))

    def _result(self, job: Job) -> tuple[Sent, ...] | Wait:
        """Decide a document; returns the sends, or the wait for more messages."""
        memo = job.memo = job.memo or JobMemo()
        if self._memory.overtook(job.document):
            return ()
        case = self._case(job, memo)
        with _explained():
            decided = decide(case)
        if isinstance(decided, Failure):
            decided = decide_given_up(self._case(job, memo))
        if isinstance(decided, Wait) and decided.why["code"] == Why.FETCHING_PROFILE:
            user_id = str(case.talk.user_id)
            name = self._names.get(user_id, user_id)
            memo.profile = {"displayName": name, "at": self._now}
            return self._result(job)
        if not isinstance(decided, Decided):
            assert isinstance(decided, Wait), "another failure is raised here"
            return decided
        self._check_timers(decided.decision)
        return self._carried_out(job.document, memo, decided.decision)

    def _case(self, job: Job, memo: JobMemo) -> Case:
        document = job.document
        return Case(
            job,
            memo,
            HandlerRunner(self.bot),
            make_talk=lambda: Talk(document, self._around(document)),
            load=partial(self._memory.load, document),
            # An unsend comes after its message: in the same mailbox, or when that is decided.
            taken_back=lambda document: False,
            edit_of=lambda document: self._edits.get(str(message_id_of(document))),
            call=partial(self._call, memo),
            handler_seconds=math.inf,
            now=self._now,
            clock=(self._now - START).total_seconds(),
        )

    def _carried_out(
        self, document: Document, memo: JobMemo, decision: Decision
    ) -> tuple[Sent, ...]:
        """Record the decision; returns the sends, with late replies as pushes."""
        heard = memo.heard_with(document)
        if not heard:
            return ()
        decision = memo.edits.noted(decision)
        took = timedelta(seconds=memo.run.handler_seconds or 0.0)
        self._now += took
        by_token, button = answered(heard), tuple[Sent, ...]()
        if (
            self._slow_answers is SlowAnswers.BUTTON
            and may_be_offered(by_token)
            and took >= TOKEN_LIFE - timedelta(seconds=BEFORE_END_SECONDS)
        ):
            button = (Sent(document["key"], "reply", (message_of(name_of(by_token)),)),)
            decision = kept(decision, by_token, ButtonShown.YES, now=self._now)
        if document["event"].get("mode") == "standby":
            decision = decision.given_up
        is_late = took >= TOKEN_LIFE
        recorded = self._memory.record(document, decision)
        return (*button, *(_sent(one, is_late=is_late) for one in recorded))

    def _call(self, memo: JobMemo, rule: Rule, event: Any, talk: Talk) -> Failure | None:
        fails, self._fails = self._fails, False
        takes, self._takes = self._takes, 0.0
        memo.run.handler_seconds = (memo.run.handler_seconds or 0.0) + takes
        handler: Callable[..., object] = rule.handler
        _require_in_time(handler, takes, rule.limit)
        answer = None
        # Files without a name are deleted when the handler ends.
        with tempfile.TemporaryDirectory(prefix="linedesk-") as passing:
            self._passing = Path(passing)
            with suppress(Exception) if fails else nullcontext():
                answer = (_awaited if rule.is_async else call)(handler, event, talk)
        if (told := unused(handler, answer)) is not None:
            _warn_of_unused(handler, told)
        return Failure("fails", "-", "", lasting=True) if fails else None

    def _check_timers(self, decision: Decision) -> None:
        """Warn now of timers without a handler."""
        for one in filter(is_timer, decision.effects):
            waits = one[RUN_AT] is not None and one["name"] != STATE_TIMER
            if waits and not self.bot.has_timer(one["name"]):
                raise NoTimerHandler(
                    f"no handler for the timer {one['name']!r}: it becomes a dead letter when it "
                    f"fires"
                )

    def _around(self, document: Document) -> TalkContext:
        return TalkContext(
            load=lambda: self._memory.load(document),
            api=self._line_api,
            content=self._fetch,
            quota=lambda: self.quota,
            members=self.members.get,
            now=lambda: self._now,
            check=self._check,
            per_member=self.bot.per_member,
            settings=self.settings,
            secrets=self.secrets,
        )

    def _line_api(self) -> Any:
        if self._api is None:
            raise NotHere("talk.api: there is no LINE here; give BotTest(bot, api=...) a stand-in")
        return self._api

    def _fetch(self, message: Any, to: str | os.PathLike[str] | None = None, **_: Any) -> Content:
        """Like `jobworker.bot.content.ContentDownloads.fetch`, at once and without its limits."""
        message_id = content_id(message)
        if message_id not in self._contents:
            raise ContentNotFound(f"no user of this test has sent {message_id}")
        data, name = self._contents[message_id]
        path = Path(to) if to is not None else self._passing / message_id
        path.write_bytes(data)
        return Content(path, mimetypes.guess_type(name)[0] or "application/octet-stream", len(data))


def _told_by_operator(value: Any) -> str:
    """A value of the bot's own settings in the form of BOT_SETTINGS."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _source_of(user_id: str | None, group_id: str | None) -> Document:
    """The source of an event: a user, or a group or room with the user if there is one.

    As in LINE a group's id begins with C and a room's with R.
    """
    user = {"userId": user_id} if user_id else {}
    if group_id is None:
        return {"type": "user", **user}
    kind = "room" if group_id.startswith("R") else "group"
    return {"type": kind, f"{kind}Id": group_id, **user}


def _mentionee(text: str, found: re.Match[str]) -> Document:
    """LINE's reference, "Text": a mention in a message; places are in UTF-16 units."""
    name, place = found[1], {"index": units(text[: found.start()]), "length": units(found[0])}
    if name == "all":
        return {**place, "type": "all"}
    return {**place, "type": "user", "userId": name, "isSelf": name == BOT}


def _members(user: str) -> Document:
    return {"members": [_source_of(user, None)]}


def _sent(effect: Document, *, is_late: bool) -> Sent:
    to, way = effect["to"], effect["way"]
    way = "push" if is_late and way == "reply" else way
    return Sent(tuple(to) if isinstance(to, list) else to, way, tuple(effect["messages"]))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One for all tests: a bot's clients may belong to the loop on which they were first used."""
    loop = a_loop()
    atexit.register(loop.close)
    return loop


def _awaited(handler: Callable[..., Any], event: Any, talk: Talk) -> object:
    """Run an async handler, on a thread of its own since the test may run on a loop itself."""
    talk.is_async = True
    return Threads().submit(_loop().run_until_complete, handler(event, talk)).result()


def _warn_of_unused(handler: Callable[..., object], told: str) -> None:
    """Warn with the file and line of the handler instead of the kit."""
    file, _, line = place_of(handler).rpartition(":")
    if line.isdecimal():
        warnings.warn_explicit(told, BotWarning, file, int(line))
    else:
        warnings.warn(told, BotWarning, stacklevel=2)


def _require_in_time(handler: Callable[..., object], seconds: float, limit: float | None) -> None:
    """Fail a test in which a handler takes longer than its limit."""
    most = HANDLER_LIMIT_SECONDS if limit is None else limit
    if seconds > most:
        raise KitError(
            f"the handler at {place_of(handler)} takes {seconds:g} s and its limit is {most:g} s: "
            f"in production it is abandoned and tried again. Give it limit={seconds:g} in bot.add"
        )


@contextmanager
def _explained() -> Iterator[None]:
    """Add the effect in production to a handler's exception."""
    try:
        yield
    except PermanentError as error:
        error.add_note(REFUSED)
        raise
    except Exception as error:
        error.add_note(FAILED)
        raise
