"""What a scene is, and what people do in more than one of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from linedesk.conversation import Conversation, Deed, Event, Person
from linedesk.errors import DemoFailed
from linedesk.rings import Ring, Rings


@dataclass
class Scene:
    """A piece of the conversation with its events handled; `remark` closes it.

    In a scene by the clock nobody does anything: it was moved ahead by `advanced` seconds, and
    `rings` came.
    """

    title: str
    events: list[Event] = field(default_factory=list)
    remark: str = ""
    advanced: float = 0.0
    rings: list[Ring] = field(default_factory=list)


def act_out(talk: Conversation, title: str, webhooks: Sequence[Sequence[Deed]]) -> Scene:
    """Each webhook's deeds are done, and what they ask for was answered. Raises DemoFailed."""
    events = [event for deeds in webhooks for event in talk.send(*deeds)[1]]
    wait(talk, title, events)
    return Scene(title, events)


def wait(talk: Conversation, title: str, events: Sequence[Event]) -> None:
    """Wait until all are handled; raises DemoFailed, naming the scene."""
    try:
        talk.wait_for(events)
    except DemoFailed as error:
        raise DemoFailed(f"{title}: {error}") from error


def let_ring(
    rings: Rings, title: str, expected: Sequence[tuple[Person, str]], *, waiting: int
) -> Scene:
    """The clock goes to the next of so many timers, and these messages come. Raises DemoFailed."""
    try:
        advanced = rings.advance_to_next(waiting=waiting)
        return Scene(title, advanced=advanced, rings=rings.wait_for(expected))
    except DemoFailed as error:
        raise DemoFailed(f"{title}: {error}") from error


def says(
    who: Person, text: str, answer: str | None = None, *, chat: str | None = None, where: str = ""
) -> Deed:
    """A text message, and what the bot has to answer where the script knows it."""
    act = {"act": "text", "text": text, "chat": chat}
    return Deed(who, text, act, where=where, answer=answer)
