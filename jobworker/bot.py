"""A bot: which handler runs for which event. Pure; made at import by whoever writes the bot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from jobworker.talk import Talk

Handler = Callable[[Any, "Talk"], None]
F = TypeVar("F", bound=Callable[..., None])


@dataclass(frozen=True)
class Rule:
    """One handler and what it is for."""

    handler: Handler
    profile: bool
    """Whether the sender's profile is fetched first where it is missing or a day old."""


class Bot:
    """Handlers by event and message class, as line-bot-sdk's WebhookHandler knows them.

    With `profiles=True` every handler gets the sender's profile, as far as LINE tells it in
    time; a single rule may say otherwise.
    """

    def __init__(self, *, profiles: bool = False) -> None:
        self._profiles = profiles
        self._rules: dict[tuple[type, type | None], Rule] = {}
        self._default: Rule | None = None

    def add(
        self,
        event: type,
        message: type | Sequence[type] | None = None,
        *,
        profile: bool | None = None,
    ) -> Callable[[F], F]:
        """Decorate the handler of an event class and, for MessageEvent, of message classes.

        The classes are those of `linebot.v3.webhooks`. A later handler of the same classes
        replaces an earlier one.
        """
        messages: Sequence[type | None] = (
            [message] if not isinstance(message, Sequence) else message
        )

        def decorate(handler: F) -> F:
            for one in messages:
                self._rules[event, one] = self._rule(handler, profile)
            return handler

        return decorate

    def default(self, *, profile: bool | None = None) -> Callable[[F], F]:
        """Decorate the handler of every event that no other handler is for."""

        def decorate(handler: F) -> F:
            self._default = self._rule(handler, profile)
            return handler

        return decorate

    def rule_for(self, event: Any) -> Rule | None:
        """The rule of an event model: by its message's class, else by its own, else the default."""
        message = getattr(event, "message", None)
        if message is not None and (type(event), type(message)) in self._rules:
            return self._rules[type(event), type(message)]
        return self._rules.get((type(event), None), self._default)

    def _rule(self, handler: Handler, profile: bool | None) -> Rule:
        return Rule(handler, self._profiles if profile is None else profile)
