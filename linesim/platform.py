"""Everything that LINE's side knows, under one lock: people, chats, tokens, keys, limits, faults,
rules and records.
"""

import itertools
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from linesim import ids
from linesim.calls import Calls
from linesim.chats import Bubble, Chats
from linesim.deliveries import MOST_DELIVERIES, Delivery
from linesim.faults import Faults
from linesim.limits import Quota, RateLimits
from linesim.media import Contents
from linesim.options import Options
from linesim.retrykeys import RetryKeys
from linesim.rules import Rules
from linesim.stream import Change, Stream
from linesim.tokens import ReplyTokens
from linesim.views import bubble_view, clock_view
from linesim.watch import Watch
from linesim.world import World

T = TypeVar("T")


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
        self.chats = Chats()
        self.contents = Contents(self.clock)
        self.message_ids = ids.MessageIds(self.clock.time())
        self.reply_tokens = ReplyTokens(options.reply_token_seconds, self.clock)
        self.retry_keys = RetryKeys(self.clock)
        self.rate_limits = RateLimits(options.rate_limits, self.clock)
        self.quota = Quota(options.quota, self.clock)
        self.faults = Faults()
        self.rules = Rules()
        self.calls = Calls()
        self.deliveries: deque[Delivery] = deque(maxlen=MOST_DELIVERIES)
        self.delivery_numbers = itertools.count(1)
        self.stream = Stream()

    def read(self, look: Callable[["Platform"], T]) -> T:
        """Looks at the state under the lock."""
        with self.watch.reading():
            return look(self)

    def show(self, bubble: Bubble) -> None:
        """Sends a new or changed bubble to the open pages."""
        if self.stream.watched:
            self.stream.publish(Change("bubble", bubble_view(bubble)))

    def show_people(self) -> None:
        self.stream.publish(Change("people", {}))

    def show_clock(self) -> None:
        """Tells the open pages, and whoever else follows the clock, that it was moved."""
        self.stream.publish(Change("clock", clock_view(self.clock)))
