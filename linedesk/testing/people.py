"""The actions of users in a test, as methods; each makes one event and returns the answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from jobworker.bot.bot import Bot
from linedesk.store.documents import Document
from linedesk.store.timers import STATE_TIMER, Daily
from linedesk.testing.answers import Answers, Sent, Shown, Waiting, answer_data_in, waiting
from linedesk.testing.webhooks import Webhooks, media, source_of

CHANNEL = "main"
# LINE's reference, "Message event": the types of messages; any other type is that of an event.
MESSAGES = frozenset({"text", "image", "video", "audio", "file", "location", "sticker"})


def told_by_operator(value: Any) -> str:
    """A value of the bot's own settings in the form of BOT_SETTINGS."""
    return str(value).lower() if isinstance(value, bool) else str(value)


class People(ABC):
    """A bot in conversations with users ("U1"), groups ("C1") and rooms ("R1").

    A user or group exists from its first use. A user's name in LINE equals its name in the test
    unless `names` sets another.
    """

    def __init__(self, bot: Bot, webhooks: Webhooks) -> None:
        self._per_member = bot.per_member
        self._webhooks = webhooks
        self._sent: list[Sent] = []
        self.last = Answers()
        """The answers to the last event, or during the last `advance`."""

    # Actions of users.

    def says(self, user: str, text: str, *, group: str | None = None) -> Answers:
        """A user writes, in 1:1 or in a group."""
        return self.sends(user, {"type": "text", "text": text}, group=group)

    def sends(self, user: str, event: Mapping[str, Any], *, group: str | None = None) -> Answers:
        """A user sends a message, or causes an event, given as LINE's JSON.

        Missing ids, token, time and source are filled in.
        """
        source = self._source(user, group)
        if event.get("type") in MESSAGES:
            return self._deliver(self._webhooks.message(event, source, at=self.now))
        made = self._webhooks.event(str(event.get("type")), source, at=self.now)
        return self._deliver({**made, **event})

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

    def taps(self, user: str, *, group: str | None = None) -> Answers:
        """A user taps the last button for a slow answer (SLOW_ANSWERS=button)."""
        chat = group or user
        shown = (one for sent in self._sent if sent.to == chat for one in sent.messages)
        data = [found for one in shown if (found := answer_data_in(one)) is not None]
        if not data:
            raise ValueError(f"no button for a slow answer was shown to {chat}")
        return self.presses(user, data[-1], group=group)

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
        return self._happens("memberJoined", None, group, joined=self._members(user, group))

    def member_leaves(self, user: str, *, group: str) -> Answers:
        """A member leaves a group of the bot."""
        return self._happens("memberLeft", None, group, left=self._members(user, group))

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
        return self._media("image", user, data, "photo.jpg", group)

    def video(self, user: str, data: bytes = b"video", *, group: str | None = None) -> Answers:
        """A user sends a video."""
        return self._media("video", user, data, "video.mp4", group)

    def audio(self, user: str, data: bytes = b"audio", *, group: str | None = None) -> Answers:
        """A user sends a voice message."""
        return self._media("audio", user, data, "voice.m4a", group)

    def file(
        self, user: str, data: bytes = b"", *, name: str = "notes.txt", group: str | None = None
    ) -> Answers:
        """A user sends a file."""
        return self._media("file", user, data, name, group)

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
            to = Daily.parse(to, tz).after(self.now)
        moment = to if to is not None else self.now + timedelta(seconds=seconds or 0.0)
        if moment < self.now:
            raise ValueError(f"time only moves forward: it is {self.now}, after {moment}")
        return self._noted(self._go_to(moment))

    @property
    @abstractmethod
    def now(self) -> datetime:
        """The time in the conversation, as in `talk.now`."""

    # State of the conversations.

    @abstractmethod
    def id(self, name: str) -> str:
        """The id that the bot sees for a user, group or room of the test."""

    @abstractmethod
    def names(self, user: str, name: str) -> None:
        """Give a user a name in LINE."""

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
        own = [row for row in self._rows() if row["_id"] == f"{start}{row['name']}"]
        return waiting([row for row in own if row["name"] != STATE_TIMER])

    def _place(self, user: str | None, group: str | None) -> Mapping[str, Any]:
        """The place of state and data: the conversation, or a member's own part of it."""
        id_, member = self._whose(user, group)
        stored = self._stored(id_)
        return (stored.get("states") or {}).get(member, {}) if member else stored

    def _whose(self, user: str | None, group: str | None) -> tuple[str, str | None]:
        """The conversation's `_id`, and the member for whose own part it is used."""
        if user is None and group is None:
            raise ValueError("name a user, a group or both")
        if group is None:
            return f"{CHANNEL}/{self.id(user or '')}", None
        member = self.id(user) if user is not None and self._per_member else None
        return f"{CHANNEL}/{self.id(group)}", member

    @abstractmethod
    def _rows(self) -> list[Document]:
        """The timers that wait, as rows of `schedule`."""

    @abstractmethod
    def _stored(self, id_: str) -> Document:
        """A conversation's document; empty if there is none."""

    @abstractmethod
    def _meet(self, user: str | None, group: str | None) -> None:
        """Make sure that the user and group exist."""

    @abstractmethod
    def _keep_content(self, message_id: str, kind: str, data: bytes, name: str) -> None: ...

    @abstractmethod
    def _handle(self, event: Document) -> tuple[Sent, ...]: ...

    @abstractmethod
    def _go_to(self, moment: datetime) -> tuple[Sent, ...]: ...

    def _happens(self, kind: str, user: str | None, group: str | None, **more: Any) -> Answers:
        source = self._source(user, group)
        return self._deliver(self._webhooks.event(kind, source, at=self.now, **more))

    def _media(self, kind: str, user: str, data: bytes, name: str, group: str | None) -> Answers:
        message = {"id": self._webhooks.message_id(), **media(kind, len(data), name)}
        self._keep_content(message["id"], kind, data, name)
        return self.sends(user, message, group=group)

    def _members(self, user: str, group: str) -> Document:
        self._meet(user, group)
        return {"members": [source_of(self.id(user), None)]}

    def _source(self, user: str | None, group: str | None) -> dict[str, str]:
        self._meet(user, group)
        return source_of(
            None if user is None else self.id(user), None if group is None else self.id(group)
        )

    def _deliver(self, event: Document) -> Answers:
        return self._noted(self._handle(event))

    def _noted(self, sent: tuple[Sent, ...]) -> Answers:
        self._sent.extend(sent)
        self.last = Answers(sent)
        return self.last
