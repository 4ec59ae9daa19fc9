"""The transcripts: what people see in each chat, in order."""

from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import Any, Literal

MOST_BUBBLES = 10_000

Speaker = Literal["user", "bot", "notice"]
Fate = Literal["sending", "delivered", "failed"]


@dataclass
class Bubble:
    """One line of a chat: a user's message, the bot's message, or a notice such as a block.

    `message` is LINE's message object; a notice's has the event's `type`. `fate` is that of a
    user's webhook, with `status` or `error` saying how it ended. `via` is reply, push or multicast
    for what the bot sent.
    """

    number: int
    chat_id: str
    at: float
    speaker: Speaker
    message: dict[str, Any] = field(repr=False)
    user_id: str | None = None
    message_id: str | None = None
    event_id: str | None = None
    fate: Fate | None = None
    status: int | None = None
    error: str | None = None
    via: str | None = None
    request_id: str | None = None
    unsent: bool = False

    @property
    def text(self) -> str | None:
        return self.message.get("text")


class Chats:
    """The newest 10,000 bubbles of each chat. Whoever calls holds the simulator's lock."""

    def __init__(self) -> None:
        self._chats: defaultdict[str, deque[Bubble]] = defaultdict(
            lambda: deque(maxlen=MOST_BUBBLES)
        )
        self._next = 1

    def add(self, chat_id: str, **known: Any) -> Bubble:
        bubble = Bubble(number=self._next, chat_id=chat_id, **known)
        self._next += 1
        self._chats[chat_id].append(bubble)
        return bubble

    def of(self, chat_id: str) -> list[Bubble]:
        return list(self._chats.get(chat_id, ()))

    def of_event(self, chat_id: str, event_id: str) -> Bubble | None:
        """Looks from the newest back: what is asked for was added a moment ago."""
        bubbles = reversed(self._chats.get(chat_id, ()))
        return next(
            (each for each in bubbles if each.event_id == event_id and each.speaker != "bot"), None
        )

    def of_message(self, chat_id: str, message_id: str) -> Bubble | None:
        bubbles = reversed(self._chats.get(chat_id, ()))
        return next((each for each in bubbles if each.message_id == message_id), None)

    def last(self) -> list[Bubble]:
        """The newest bubble of each chat."""
        return [bubbles[-1] for bubbles in self._chats.values() if bubbles]
