"""The state of LINE's side under one lock: users, chats, tokens, keys, limits, rules and records.

Also that lock, with waits for a condition of the protected state.
"""

import itertools
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, RLock
from typing import Any, TypeVar

from linesim.model import ids
from linesim.model.calls import Calls
from linesim.model.deliveries import Delivery
from linesim.model.endpoints import RateLimits
from linesim.model.faults import Rules
from linesim.model.ids import Lasting
from linesim.model.media import Contents
from linesim.model.menus import Menus
from linesim.model.options import Options
from linesim.model.sent import Quota, Sent
from linesim.model.tokens import ChannelTokens, ReplyTokens, RetryKeys
from linesim.model.views import Change, Stream, bubble_view, clock_view
from linesim.model.world import Bubble, Chats, World

# How long LINE knows a token for the next page, and one for account linking.
PAGE_SECONDS = 24 * 60 * 60
LINK_SECONDS = 10 * 60

T = TypeVar("T")


class Watch:
    """Hold `changing` to change the protected state, and `reading` to read it."""

    def __init__(self) -> None:
        self._changed = Condition(RLock())
        self._version = 0  # under _changed

    @contextmanager
    def changing(self) -> Iterator[None]:
        """The lock; releasing it wakes the threads in `wait_for`."""
        with self._changed:
            try:
                yield
            finally:
                self._version += 1
                self._changed.notify_all()

    def reading(self) -> Condition:
        """The lock; releasing it wakes no thread, so a reading predicate does not wake itself."""
        return self._changed

    def wait_for(self, predicate: Callable[[], T], timeout_seconds: float) -> T:
        """The predicate's first true value; it is called without the lock, once after each change.

        Raises TimeoutError when it is still false after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        seen = self.wait_past(-1)
        while not (value := predicate()):
            left, before = deadline - time.monotonic(), seen
            if left <= 0 or (seen := self.wait_past(before, left)) == before:
                raise TimeoutError(f"the condition is still false after {timeout_seconds:g} s")
        return value

    def wait_past(self, version: int, timeout_seconds: float | None = None) -> int:
        """The number of changes, once it is not this one."""
        with self._changed:
            self._changed.wait_for(lambda: self._version != version, timeout_seconds)
            return self._version


class Platform:
    """`watch` protects every other attribute; hold it while reading or changing them."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.clock = options.clock
        self.watch = Watch()
        self.bot_user_id = ids.user_id()
        self.webhook_url = options.webhook_url
        self.webhook_active = True
        self.world = World()
        self.chats = Chats(self.clock)
        self.contents = Contents(self.clock)
        self.message_ids = ids.MessageIds(self.clock.time())
        self.channel_tokens = ChannelTokens(options.token, options.secret, self.clock)
        self.reply_tokens = ReplyTokens(options.reply_token_seconds, self.clock)
        self.retry_keys = RetryKeys(self.clock)
        self.rate_limits = RateLimits(options.rate_limits, self.clock, to_one=options.pushes_to_one)
        self.sent = Sent(self.clock)
        self.quota = Quota(options.quota, self.sent)
        self.coupons: dict[str, dict[str, Any]] = {}
        self.pages: Lasting[tuple[str, Sequence[str]]] = Lasting(
            PAGE_SECONDS, self.clock, limit=10_000
        )
        self.link_tokens: Lasting[str] = Lasting(LINK_SECONDS, self.clock, limit=10_000)
        self.rules = Rules()
        self.calls = Calls(options.most_calls)
        self.deliveries: deque[Delivery] = deque(maxlen=options.most_deliveries)
        self.delivery_numbers = itertools.count(1)
        self.stream = Stream()
        self.menus = Menus(self.world, self.clock, self.stream)

    def read(self, look: Callable[["Platform"], T]) -> T:
        """Reads the state under the lock."""
        with self.watch.reading():
            return look(self)

    def show(self, bubble: Bubble) -> None:
        """Sends a new or changed bubble to the open pages."""
        if self.stream.watched and bubble.speaker != "hidden":
            self.stream.publish(Change("bubble", bubble_view(bubble)))

    def show_people(self) -> None:
        self.stream.publish(Change("people", {}))

    def show_clock(self) -> None:
        """Notifies the open pages, and other subscribers of the clock, that it was moved."""
        self.stream.publish(Change("clock", clock_view(self.clock)))
