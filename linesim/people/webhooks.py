"""Sends webhooks like LINE, optionally late, doubled, redelivered without need, or overtaken by
those of other users.

Threads of this module send the additional webhooks; `settle` waits for them.
"""

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Condition, Event, Lock, Thread, current_thread
from typing import Annotated

from pydantic import Field

from linesim.model import events
from linesim.model.deliveries import Delivery, WebhookSender, encode
from linesim.model.deliveries import Event as Webhook
from linesim.model.platform import Platform
from linesim.model.views import Strict

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Fate:
    """The draws for one webhook."""

    redelivered: bool
    doubled: bool
    at_once: bool
    overtaken: bool
    late_seconds: float


Probability = Annotated[float, Field(ge=0, le=1)]


class Unruly(Strict):
    """Probabilities, drawn for each webhook from one generator with this seed.

    `redeliver`: it comes again as LINE's redelivery, whatever the bot server answered. `double`:
    the same body comes twice, at once or one after the other. `shuffle`: it waits until another one
    has overtaken it. `delay`: it is late, by up to this many seconds. Raises ValueError for an
    invalid probability.
    """

    redeliver: Probability = 0.0
    double: Probability = 0.0
    shuffle: Probability = 0.0
    delay: tuple[Probability, Annotated[float, Field(ge=0, le=60)]] = (0.0, 0.0)
    seed: int = 0

    def draw(self, chosen: random.Random) -> Fate:
        """All draws are made each time, so that one probability does not shift the others'."""
        draws = [chosen.random() for _ in range(6)]
        return Fate(
            redelivered=draws[0] < self.redeliver,
            doubled=draws[1] < self.double,
            at_once=draws[2] < 0.5,
            overtaken=draws[3] < self.shuffle,
            late_seconds=draws[5] * self.delay[1] if draws[4] < self.delay[0] else 0.0,
        )


class Webhooks:
    """Safe to use from any number of threads."""

    def __init__(self, platform: Platform) -> None:
        options = platform.options
        self._platform = platform
        self._sender = WebhookSender(options.secret, options.webhook_timeout_seconds)
        self._closed = Event()
        self._lock = Lock()
        self._unruly = Unruly()  # under _lock
        self._random = random.Random(0)  # under _lock
        self._extras: set[Thread] = set()  # under _lock
        self._sent = Condition(self._lock)
        self._count = 0  # under _lock

    def be(self, unruly: Unruly) -> None:
        with self._lock:
            self._unruly, self._random = unruly, random.Random(unruly.seed)

    def deliver(self, made: Sequence[Webhook]) -> Delivery:
        """One POST with these events, and the additional ones drawn for it; returns once this POST
        is answered.
        """
        with self._lock:
            fate = self._unruly.draw(self._random)
        self._closed.wait(fate.late_seconds)
        if fate.overtaken:
            self._let_another_pass()
        if fate.doubled and fate.at_once:
            self._extra(lambda: self._post(made))
        delivery = self._post(made)
        if fate.doubled and not fate.at_once:
            self._extra(lambda: self._post(made))
        if fate.redelivered:
            self._extra(lambda: self._redeliver(made))
        return delivery

    def deliver_later(self, made: Sequence[Webhook]) -> None:
        """One POST with these events, which the caller does not wait for."""
        if not self._extra(lambda: self._post(made)):
            log.warning("webhook not sent: too many are under way type=%s", made[0]["type"])

    def test(self, url: str) -> Delivery:
        """The connectivity check of a URL: one POST without events and without misbehaviour."""
        with self._platform.watch.changing():
            delivery = self._begin(())
        self._sender.post(url, encode(self._platform.bot_user_id, ()), delivery)
        return delivery

    def settle(self, timeout_seconds: float) -> bool:
        """Waits for the additional webhooks; returns whether all are answered."""
        deadline = time.monotonic() + timeout_seconds
        with self._lock:
            extras = list(self._extras)
        for thread in extras:
            thread.join(max(deadline - time.monotonic(), 0))
        return not any(thread.is_alive() for thread in extras)

    def stop(self) -> None:
        """Sends no more additional webhooks, and releases delayed ones."""
        with self._lock:
            self._closed.set()
            self._sent.notify_all()

    def close(self) -> None:
        """Waits for the webhooks under way, which end by their own time limit."""
        self.stop()
        self.settle(self._platform.options.webhook_timeout_seconds + 1)
        self._sender.close()

    def _let_another_pass(self) -> None:
        deadline = time.monotonic() + self._platform.options.overtaken_seconds
        with self._lock:
            seen = self._count
            while self._count == seen and not self._closed.is_set():
                if not self._sent.wait(deadline - time.monotonic()):
                    return

    def _extra(self, post: Callable[[], object]) -> bool:
        """Whether it was begun."""
        with self._lock:
            most = self._platform.options.most_extras
            if len(self._extras) >= most or self._closed.is_set():
                return False
            thread = Thread(target=self._run, args=(post,), name="linesim-extra", daemon=True)
            self._extras.add(thread)
            thread.start()
            return True

    def _run(self, post: Callable[[], object]) -> None:
        try:
            post()
        finally:
            with self._lock:
                self._extras.discard(current_thread())

    def _redeliver(self, made: Sequence[Webhook]) -> None:
        if not self._closed.wait(self._platform.options.redelivered_seconds):
            self._post([events.redelivered(event) for event in made])

    def _post(self, made: Sequence[Webhook]) -> Delivery:
        platform = self._platform
        with platform.watch.changing():
            delivery = self._begin(made)
            for event in made:
                platform.reply_tokens.deliver(event)
        url = platform.webhook_url if platform.webhook_active else None
        self._sender.post(url, encode(platform.bot_user_id, made), delivery)
        outcome = delivery.status or delivery.error
        level = logging.DEBUG if delivery.delivered else logging.INFO
        log.log(level, "webhook events=%d outcome=%s", len(made), outcome)
        with platform.watch.changing():
            for event in made:
                self._settle(event, delivery)
        with self._lock:
            self._count += 1
            self._sent.notify_all()
        return delivery

    def _begin(self, made: Sequence[Webhook]) -> Delivery:
        platform = self._platform
        delivery = Delivery(
            number=next(platform.delivery_numbers),
            at=platform.clock.time(),
            started=time.monotonic(),
            event_ids=tuple(event["webhookEventId"] for event in made if "webhookEventId" in event),
            events=tuple(made),
        )
        platform.deliveries.append(delivery)
        return delivery

    def _settle(self, event: Webhook, delivery: Delivery) -> None:
        event_id, chat_id = event.get("webhookEventId"), events.chat_id_of(event)
        if not (event_id and chat_id):
            return
        chats = self._platform.chats
        found = [chats.of_event(chat_id, event_id)]
        if event.get("type") == "messageEdited":
            found.append(chats.of_message(chat_id, event["message"]["id"]))
        for bubble in found:
            if bubble and bubble.fate != "delivered":
                bubble.fate = "delivered" if delivery.delivered else "failed"
                bubble.status, bubble.error = delivery.status, delivery.error
                bubble.read = delivery.delivered and self._platform.options.chat_mode == "bot"
                self._platform.show(bubble)
