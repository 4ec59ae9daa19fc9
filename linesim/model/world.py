"""Users, groups and rooms with friendship and membership, and the transcripts of their chats in
order.

Callers hold the simulator's lock.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from linesim.model import ids
from linesim.model.clock import Clock
from linesim.model.errors import UnknownChat
from linesim.model.ids import Recent

WROTE_LATELY_SECONDS = 7 * 24 * 60 * 60

GroupKind = Literal["group", "room"]
Way = Literal["reply", "push", "multicast", "broadcast", "narrowcast"]
Unreached = Literal["left", "unknown", "blocked", "no friend"]


@dataclass
class User:
    """`friend`, `blocked`: of the bot. `wrote_at`: Unix time of the last 1:1 message.

    `loading_until`: until then the chat shows the loading animation. `followed_at`: Unix time at
    which it became a friend for the first time; `blocked_at`: of the last block.
    """

    user_id: str
    name: str
    friend: bool = True
    blocked: bool = False
    wrote_at: float | None = None
    status_message: str | None = None
    language: str = "ja"
    loading_until: float | None = None
    followed_at: float | None = None
    blocked_at: float | None = None

    def sees_loading(self, now: float) -> bool:
        """Whether the chat shows the loading animation; the bot's next message ends it."""
        return self.loading_until is not None and now < self.loading_until

    def takes_pushes(self, now: float) -> bool:
        """LINE delivers a push to friends, and to users who wrote in 1:1 within seven days
        (reference, "Conditions for sending push message").
        """
        wrote_lately = self.wrote_at is not None and now - self.wrote_at < WROTE_LATELY_SECONDS
        return not self.blocked and (self.friend or wrote_lately)

    @property
    def takes_multicasts(self) -> bool:
        """LINE delivers a multicast to friends only, and so broadcasts and narrowcasts (reference,
        "Conditions for sending multicast message").
        """
        return self.friend and not self.blocked


@dataclass
class Group:
    """A group or a room (LINE's multi-person chat); `present` says whether the bot is in it."""

    chat_id: str
    name: str
    kind: GroupKind
    members: list[str] = field(default_factory=list)
    present: bool = True


class World:
    def __init__(self) -> None:
        self.users: dict[str, User] = {}
        self.groups: dict[str, Group] = {}

    def add_user(self, name: str, *, user_id: str | None, friend: bool) -> User:
        user = User(user_id or ids.user_id(), name, friend=friend)
        self.users[user.user_id] = user
        return user

    def add_group(
        self, name: str, members: Iterable[User], *, kind: GroupKind, present: bool
    ) -> Group:
        chat_id = ids.group_id() if kind == "group" else ids.room_id()
        group = Group(chat_id, name, kind, [member.user_id for member in members], present)
        self.groups[chat_id] = group
        return group

    def user(self, user_id: str) -> User:
        if user_id not in self.users:
            raise UnknownChat(f"no user {user_id}")
        return self.users[user_id]

    def group(self, chat_id: str) -> Group:
        if chat_id not in self.groups:
            raise UnknownChat(f"no group or room {chat_id}")
        return self.groups[chat_id]

    def friends(self) -> list[str]:
        """The ids of all users whom broadcasts reach: LINE's target reach."""
        return [user.user_id for user in self.users.values() if user.takes_multicasts]

    def reach(self, chat_id: str, way: Way, now: float) -> list[str] | Unreached:
        """The users who see a message to this chat, or why LINE, which accepts it, does not deliver
        it. A reply reaches the user who wrote, friend or not.
        """
        if group := self.groups.get(chat_id):
            return list(group.members) if group.present else "left"
        user = self.users.get(chat_id)
        if user is None:
            return "unknown"
        if user.blocked:
            return "blocked"
        arrives = user.takes_pushes(now) if way == "push" else user.takes_multicasts
        return [chat_id] if arrives or way == "reply" else "no friend"


MOST_BUBBLES = 10_000

Speaker = Literal["user", "bot", "notice", "hidden"]
Fate = Literal["sending", "delivered", "failed"]


@dataclass
class Bubble:
    """One line of a chat: a user's message, the bot's message, or a notice such as a block. A
    hidden one is not shown: an event about an earlier message.

    `message` is LINE's message object; a notice's has the event's `type`. `fate` is that of a
    user's webhook, with `status` or `error` for its end; after an edit all three are the edit's.
    `via` is the endpoint of the bot's messages. `read`: whether the bot has read a user's message,
    at once or by a call. `quote_token` is for quoting it; `quoted` is the message that the
    bot quotes. `ahead`: by how much the clock was moved then. `event` is the webhook's.
    """

    number: int
    chat_id: str
    at: float
    speaker: Speaker
    message: dict[str, Any] = field(repr=False)
    user_id: str | None = None
    message_id: str | None = None
    quote_token: str | None = None
    quoted: str | None = None
    event_id: str | None = None
    fate: Fate | None = None
    status: int | None = None
    error: str | None = None
    via: str | None = None
    request_id: str | None = None
    unsent: bool = False
    read: bool = False
    edited: bool = False
    ahead: float = 0.0
    event: dict[str, Any] | None = field(default=None, repr=False)

    @property
    def text(self) -> str | None:
        return self.message.get("text")


class Chats:
    """The newest 10,000 bubbles of each chat. Callers hold the simulator's lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: defaultdict[str, deque[Bubble]] = defaultdict(
            lambda: deque(maxlen=MOST_BUBBLES)
        )
        self._read_tokens: Recent[str, Bubble] = Recent(200_000)
        self._next = 1

    def add(self, chat_id: str, **known: Any) -> Bubble:
        bubble = Bubble(number=self._next, chat_id=chat_id, ahead=self._clock.ahead, **known)
        self._next += 1
        self._append(bubble)
        return bubble

    def _append(self, bubble: Bubble) -> None:
        self._chats[bubble.chat_id].append(bubble)
        if token := (bubble.event or {}).get("message", {}).get("markAsReadToken"):
            self._read_tokens[token] = bubble

    def of_read_token(self, token: str) -> Bubble | None:
        return self._read_tokens.get(token)

    def of(self, chat_id: str) -> list[Bubble]:
        return [bubble for bubble in self.all_of(chat_id) if bubble.speaker != "hidden"]

    def all_of(self, chat_id: str) -> list[Bubble]:
        """Also the hidden ones."""
        return list(self._chats.get(chat_id, ()))

    @property
    def kept(self) -> dict[str, list[Bubble]]:
        return {chat_id: list(bubbles) for chat_id, bubbles in self._chats.items()}

    @kept.setter
    def kept(self, chats: dict[str, list[Bubble]]) -> None:
        """What was on its way has failed; numbers go on rising."""
        self._chats.clear()
        self._read_tokens.clear()
        for bubbles in chats.values():
            for bubble in bubbles:
                self._append(bubble)
                self._next = max(self._next, bubble.number + 1)
                if bubble.fate == "sending":
                    bubble.fate, bubble.error = "failed", "unclassified"

    def of_event(self, chat_id: str, event_id: str) -> Bubble | None:
        """Searches from the newest back, since the bubble was added a moment ago."""
        return self._newest(chat_id, lambda one: one.event_id == event_id and one.speaker != "bot")

    def of_message(self, chat_id: str, message_id: str) -> Bubble | None:
        return self._newest(chat_id, lambda one: one.message_id == message_id)

    def _newest(self, chat_id: str, is_it: Callable[[Bubble], bool]) -> Bubble | None:
        return next(filter(is_it, reversed(self._chats.get(chat_id, ()))), None)

    def quoted_id(self, chat_id: str, quote_token: str | None) -> str | None:
        """The message of this chat that a quote token stands for."""
        if quote_token is None:
            return None
        found = self._newest(chat_id, lambda one: one.quote_token == quote_token)
        return found.message_id if found else None

    def last(self) -> list[Bubble]:
        """The newest shown bubble of each chat."""
        shown = (self._newest(one, lambda each: each.speaker != "hidden") for one in self._chats)
        return [bubble for bubble in shown if bubble]
