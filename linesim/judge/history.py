"""A run in the form for the checker: the webhooks sent and accepted, and the bot's messages.

Pure: made from linesim's records, which it does not change.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from linesim.model.calls import Call
from linesim.model.deliveries import Delivery, Event
from linesim.model.events import chat_id_of
from linesim.model.tokens import REDELIVERY_SECONDS

SENDS = frozenset({"reply", "push", "multicast"})

Expect = Callable[[Event], Sequence[str]]
Place = tuple[str, str]
"""A chat and a text."""


def text_of(event: Event) -> Sequence[str]:
    """The answer of an echo bot to an event: the event's text, and none without a text."""
    text = (event.get("message") or {}).get("text")
    return [text] if isinstance(text, str) else []


@dataclass(slots=True)
class Asked:
    """One event. Times are seconds of time.monotonic(); `accepted` is its first 2xx.

    `token` is its reply token, whose life began last at `token_at`, Unix time of linesim's clock.
    `said` has for each expected text the calls that said it, in the order in which LINE took them.
    """

    event_id: str
    chat: str
    texts: Sequence[str]
    posted: float
    accepted: float | None = None
    token: str | None = None
    token_at: float = float("-inf")
    said: list[list[Call]] = field(default_factory=list)

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(text for text, calls in zip(self.texts, self.said, strict=True) if not calls)

    @property
    def doubled(self) -> list[tuple[str, list[Call]]]:
        """The texts said more than once."""
        pairs = zip(self.texts, self.said, strict=True)
        return [(text, calls) for text, calls in pairs if len(calls) > 1]

    @property
    def begun(self) -> float:
        """When LINE accepted the first of its texts; for an event with an answer."""
        return min(taken(calls[0]) for calls in self.said if calls)

    @property
    def done(self) -> float:
        """When LINE first accepted the last of its texts that were sent at all."""
        return max(taken(calls[0]) for calls in self.said if calls)


def asked_in(deliveries: Iterable[Delivery], expect: Expect) -> dict[str, Asked]:
    """Every event that was posted, by its id, in the order of the first POST."""
    found: dict[str, Asked] = {}
    for delivery in deliveries:
        if delivery.error == "no_webhook_url":
            continue
        for event in delivery.events:
            if event_id := event.get("webhookEventId"):
                if (asked := found.get(event_id)) is None:
                    chat, texts = chat_id_of(event) or event_id, tuple(expect(event))
                    asked = found[event_id] = Asked(event_id, chat, texts, delivery.started)
                    asked.said = [[] for _ in texts]
                _note(asked, event, delivery)
    return found


def _note(asked: Asked, event: Event, delivery: Delivery) -> None:
    """A redelivered webhook renews its token until 20 minutes after the event (reference, "Reply
    token").
    """
    asked.posted = min(asked.posted, delivery.started)
    if delivery.delivered and delivery.answered is not None:
        known = asked.accepted
        asked.accepted = delivery.answered if known is None else min(known, delivery.answered)
    token, happened_at = event.get("replyToken"), event.get("timestamp", delivery.at * 1000) / 1000
    if isinstance(token, str) and delivery.at - happened_at <= REDELIVERY_SECONDS:
        asked.token, asked.token_at = token, delivery.at


def said_in(calls: Iterable[Call]) -> dict[Place, list[Call]]:
    """The accepted sends by chat and text, in the order in which LINE took them."""
    said: defaultdict[Place, list[Call]] = defaultdict(list)
    sends = (call for call in calls if call.accepted and call.endpoint in SENDS)
    for call in sorted(sends, key=lambda call: (taken(call), call.number)):
        for place in _places(call):
            said[place].append(call)
    return said


def _places(call: Call) -> Iterator[Place]:
    for chat in dict.fromkeys(call.to):
        for message in messages_of(call):
            if isinstance(text := message.get("text"), str):
                yield chat, text


def messages_of(call: Call) -> Sequence[dict[str, Any]]:
    """The message objects of an accepted send."""
    messages: Sequence[dict[str, Any]] = (call.body or {}).get("messages", ())
    return messages


def taken(call: Call) -> float:
    """When LINE accepted it, in seconds of time.monotonic()."""
    return call.started if call.accepted_at is None else call.accepted_at


def attribute(asked: Iterable[Asked], said: Mapping[Place, Sequence[Call]]) -> None:
    """Gives each event the calls that said its texts.

    If several events of a chat expect the same text, they get the calls in order, and the last one
    gets all remaining calls.
    """
    wanting: defaultdict[Place, list[list[Call]]] = defaultdict(list)
    for each in asked:
        for text, calls in zip(each.texts, each.said, strict=True):
            wanting[each.chat, text].append(calls)
    for place, slots in wanting.items():
        for number, call in enumerate(said.get(place, ())):
            slots[min(number, len(slots) - 1)].append(call)
