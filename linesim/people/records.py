"""A simulator's records, for code in the same process."""

from collections.abc import Callable
from typing import TypeVar

from linesim.model.calls import Call
from linesim.model.deliveries import Delivery
from linesim.model.platform import Platform
from linesim.model.world import Bubble, Group, User

T = TypeVar("T")


class Records:
    """Every method takes the simulator's lock itself."""

    def __init__(self, platform: Platform) -> None:
        self.platform = platform

    @property
    def calls(self) -> list[Call]:
        """Every call of the API so far, in order of arrival."""
        return self.platform.read(lambda platform: platform.calls.since())

    @property
    def deliveries(self) -> list[Delivery]:
        return self.platform.read(lambda platform: list(platform.deliveries))

    def calls_to(self, endpoint: str) -> list[Call]:
        return [call for call in self.calls if call.endpoint == endpoint]

    def replies_to(self, event_id: str) -> list[Call]:
        """The accepted replies that used this event's token."""
        return [
            call for call in self.calls_to("reply") if call.accepted and call.event_id == event_id
        ]

    def closest_starts(self, after: int = 0) -> float | None:
        """Seconds between the two calls to one host of LINE's that arrived closest together.

        Counted are the calls after the one of that number; None with fewer than two.
        """
        return self.platform.read(lambda platform: platform.calls.closest_starts(after))

    def chat(self, chat: User | Group | str) -> list[Bubble]:
        """The transcript of a 1:1 chat (by its user), group or room, in order."""
        chat_id = chat if isinstance(chat, str) else _chat_id(chat)
        return self.platform.read(lambda platform: platform.chats.of(chat_id))

    def answers(self, chat: User | Group | str) -> list[Bubble]:
        """The bot's messages in this chat, in order."""
        return [bubble for bubble in self.chat(chat) if bubble.speaker == "bot"]

    def sees_loading(self, user: User | str) -> bool:
        """Whether a user's 1:1 chat shows the loading animation."""
        user_id = user if isinstance(user, str) else user.user_id
        return self.platform.read(
            lambda platform: platform.world.user(user_id).sees_loading(platform.clock.time())
        )

    def wait_for(self, predicate: Callable[[], T], timeout: float = 10.0) -> T:
        """The predicate's first true value, checked after every change; TimeoutError after
        `timeout` seconds.
        """
        return self.platform.watch.wait_for(predicate, timeout)


def _chat_id(chat: User | Group) -> str:
    return chat.user_id if isinstance(chat, User) else chat.chat_id
