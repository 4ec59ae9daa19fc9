"""A bot: which handler runs for which event. Pure; made at import by whoever writes the bot."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from linebot.v3.webhooks import Event, MessageContent, MessageEvent, PostbackEvent

from jobworker.bot.events import TimerEvent, is_event, model_of
from jobworker.bot.gather import MOST_SECONDS, MOST_TOGETHER, Gather
from jobworker.bot.states import STATE_TIMER, checked_state
from jobworker.bot.timers import checked_name
from jobworker.errors import BotError, NoTimerHandler
from linedesk.store.documents import Document, text_of

if TYPE_CHECKING:
    from jobworker.bot.talk import Talk

Handler = Callable[[Any, "Talk"], None]
F = TypeVar("F", bound=Callable[..., None])
Profiles = bool | Literal["later"]

# Messages that are handled together where a handler does not say how many.
MOST_DEFAULT = 20
# A handler that runs for longer belongs into another program.
MOST_LIMIT_SECONDS = 3600.0
# What a person says or presses in a conversation; all else is news about it.
UTTERANCES = (MessageEvent, PostbackEvent)


@dataclass(frozen=True)
class Rule:
    """One handler and what it is for."""

    handler: Handler
    profile: Profiles
    """Whether the sender's profile is fetched where it is missing or a day old: before the handler,
    "later", when the answer is out and the gate has nothing else to do, or not at all."""
    limit: float | None = None
    """Seconds that the handler may run; None for HANDLER_LIMIT_SECONDS."""
    gather: Gather | None = None
    """Which messages the handler gets together, as a list; None where it gets one event."""


class Bot:
    """Handlers by event and message class, as line-bot-sdk's WebhookHandler knows them.

    With `profiles=True` every handler gets the sender's profile, as far as LINE tells it in
    time; with `profiles="later"` it is asked for after the answer, for the operator's eyes and the
    next event. A single rule may say otherwise. With `per_member=True` state, data and timers in a
    group or room are each member's own. `settings` names the bot's own settings with their
    defaults (text, int, float or bool); an operator sets them by BOT_SETTINGS, and
    `talk.settings` tells them. `check_settings` is called with them at the start and raises
    ValueError, with the name and what would be right, for what the types cannot tell. `secrets`
    names what the operator must give by BOT_SECRETS, such as another API's key; `talk.secrets` has
    the values.
    """

    sends_by_itself = False
    """Whether its handlers call LINE on their own, so that the reply token is theirs."""

    def __init__(
        self,
        *,
        profiles: Profiles = False,
        per_member: bool = False,
        settings: Mapping[str, Any] | None = None,
        check_settings: Callable[[Mapping[str, Any]], None] | None = None,
        secrets: Sequence[str] = (),
    ) -> None:
        self._profiles = profiles
        self.per_member = per_member
        self.settings: Mapping[str, Any] = MappingProxyType(dict(settings or {}))
        self.check_settings = check_settings
        self.secrets = tuple(_each(secrets))
        self._rules: dict[tuple[type | None, type | None, str | None], Rule] = {}
        self._timers: dict[str, Rule] = {}
        self._timeouts: dict[str, Rule] = {}
        self.has_states = False
        """Whether some handler is for a state, so that the conversation is asked for it."""

    def add(
        self,
        event: type,
        message: type | Sequence[type] | None = None,
        *,
        state: str | Sequence[str] | None = None,
        profile: Profiles | None = None,
        limit: float | None = None,
        gather: float | None = None,
        most: int | None = None,
    ) -> Callable[[F], F]:
        """Decorate the handler of an event class and, for MessageEvent, of message classes.

        The classes are those of `linebot.v3.webhooks`. With `state` it runs in that state, or in
        one of those, only. A later handler of the same classes and state replaces an earlier one.
        `limit` is how many seconds the handler may run, 3,600 at most, where that is not
        HANDLER_LIMIT_SECONDS; handlers with a longer limit use at most half of the threads.

        With `gather`, for MessageEvent only, the handler gets a list: the messages of one sender
        that follow each other directly, once the newest is that many seconds old (30 at most),
        `most` are there (20 unless told, 2 to 99), anything else comes behind them, or the first is
        30 s old. Raises BotError.
        """
        _check_class(event, Event, "bot.add", "MessageEvent")
        for one in _each(message):
            if one is not None:
                _check_class(one, MessageContent, "message=", "TextMessageContent")
        together = _gather(event, gather, most)

        def decorate(handler: F) -> F:
            rule = replace(self._rule(handler, profile, limit), gather=together)
            for one in _each(message):
                self._add(event, one, state, rule)
            return handler

        return decorate

    def default(
        self,
        *,
        state: str | Sequence[str] | None = None,
        profile: Profiles | None = None,
        limit: float | None = None,
    ) -> Callable[[F], F]:
        """Decorate the handler of every event that no other handler is for.

        With `state` it is the fallback of that state: it takes the messages and postbacks for
        which the state has no handler of its own, before any handler without a state. `limit` is
        as in `add`.
        """

        def decorate(handler: F) -> F:
            self._add(None, None, state, self._rule(handler, profile, limit))
            return handler

        return decorate

    def timer(
        self, name: str, *, profile: Profiles | None = None, limit: float | None = None
    ) -> Callable[[F], F]:
        """Decorate the handler of a timer's name; it gets a TimerEvent. Raises BotError.

        It is also for names that go on behind a colon, unless they have a handler of their own:
        that of "ring" is for "ring:1" too. So several can wait at once. `limit` is as in `add`.
        """
        checked_name(name)

        def decorate(handler: F) -> F:
            self._timers[name] = self._rule(handler, profile, limit)
            return handler

        return decorate

    def timeout(
        self, state: str, *, profile: Profiles | None = None, limit: float | None = None
    ) -> Callable[[F], F]:
        """Decorate what runs when the time of `talk.expect(state, within=...)` is over.

        The state has been left by then. `limit` is as in `add`. Raises BotError.
        """
        checked_state(state)

        def decorate(handler: F) -> F:
            self._timeouts[state] = self._rule(handler, profile, limit)
            return handler

        return decorate

    def rule_in(self, talk: Talk, event: Any) -> Rule | None:
        """The rule of an event in its conversation; a state whose time is over is left by it."""
        is_time_out = isinstance(event, TimerEvent) and event.name == STATE_TIMER
        if is_time_out and not talk.leave_state(event.data.get("state")):
            return None
        return self.rule_for(event, talk.state if self.has_states else None)

    def rule_for(self, event: Any, state: str | None = None) -> Rule | None:
        """The rule of an event model in a state; None where the bot has nothing to do.

        Asked are, in this order: the state's rule of the event's message class, its rule of the
        event's class, its fallback; then the same without a state. Raises NoTimerHandler.
        """
        if isinstance(event, TimerEvent):
            return self._rule_of_timer(event)
        message = type(getattr(event, "message", None))
        keys = [(type(event), message), (type(event), None)]
        if state is not None:
            fallback = [(None, None)] if isinstance(event, UTTERANCES) else []
            for classes in (*keys, *fallback):
                if (*classes, state) in self._rules:
                    return self._rules[(*classes, state)]
        for classes in (*keys, (None, None)):
            if (*classes, None) in self._rules:
                return self._rules[(*classes, None)]
        return None

    def gathers(self, rule: Rule, talk: Talk, document: Document) -> bool:
        """Whether a document is a message of the same sender as the talk's, for the same handler.

        Of a message that was taken back only the sender is known.
        """
        if not is_event(document):
            return False
        event = document["event"]
        is_alike = (
            event.get("type") == "message"
            and event.get("mode") == talk.raw.get("mode")
            and text_of(event, "source", "userId") == talk.user_id
        )
        if not is_alike or document.get("unsent"):
            return is_alike
        return self.rule_for(model_of(event), talk.state if self.has_states else None) == rule

    @property
    def rules(self) -> Mapping[tuple[type | None, type | None, str | None], Rule]:
        """The rules by class of event and of message, and by state; None is for any."""
        return MappingProxyType(self._rules)

    @property
    def timers(self) -> Mapping[str, Rule]:
        """The rules of timers, by name."""
        return MappingProxyType(self._timers)

    @property
    def timeouts(self) -> Mapping[str, Rule]:
        """The rules of states whose time is over, by state."""
        return MappingProxyType(self._timeouts)

    def has_timer(self, name: str) -> bool:
        """Whether a timer of that name has a handler."""
        return self._named(name) is not None

    def _rule_of_timer(self, event: TimerEvent) -> Rule | None:
        if event.name == STATE_TIMER:
            return self._timeouts.get(str(event.data.get("state")))
        rule = self._named(event.name)
        if rule is None:
            raise NoTimerHandler(f"no handler for the timer {event.name!r}")
        return rule

    def _named(self, timer: str) -> Rule | None:
        return self._timers.get(timer) or self._timers.get(timer.partition(":")[0])

    def _add(
        self,
        event: type | None,
        message: type | None,
        state: str | Sequence[str] | None,
        rule: Rule,
    ) -> None:
        for where in _each(state):
            if where is not None:
                checked_state(where)
            self._rules[event, message, where] = rule
            self.has_states = self.has_states or where is not None

    def _rule(self, handler: Handler, profile: Profiles | None, limit: float | None) -> Rule:
        _check_handler(handler)
        if limit is not None:
            _check_seconds(limit, "limit=", MOST_LIMIT_SECONDS)
        return Rule(handler, self._profiles if profile is None else profile, limit)


def _check_class(one: object, kind: type, where: str, example: str) -> None:
    """A class that could be met; else its handler would never run, and nobody would see why."""
    if not (isinstance(one, type) and issubclass(one, kind)):
        raise BotError(
            f"{where} takes a class of linebot.v3.webhooks such as {example}, not {one!r:.80}"
        )


def _gather(event: type, seconds: float | None, most: int | None) -> Gather | None:
    """What `gather=` and `most=` say. Raises BotError."""
    if seconds is None:
        if most is not None:
            raise BotError("most= is for a handler with gather=")
        return None
    if not issubclass(event, MessageEvent):
        raise BotError(f"gather= is for MessageEvent, not for {event.__name__}")
    _check_seconds(seconds, "gather=", MOST_SECONDS)
    most = MOST_DEFAULT if most is None else most
    if not isinstance(most, int) or isinstance(most, bool) or not 2 <= most <= MOST_TOGETHER:
        raise BotError(f"most= takes a whole number, 2 to {MOST_TOGETHER}, not {most!r:.80}")
    return Gather(float(seconds), most)


def _check_seconds(seconds: object, where: str, most: float) -> None:
    """A number of seconds above 0. Raises BotError."""
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not (is_number and 0 < seconds <= most):  # type: ignore[operator]
        raise BotError(f"{where} takes seconds above 0, {most:g} at most, not {seconds!r:.80}")


def _check_handler(handler: object) -> None:
    """What runs to its end when it is called, which a coroutine and a generator do not."""
    if not callable(handler):
        raise BotError(f"a handler is a function, not {handler!r:.80}")
    for is_other in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    ):
        if is_other(handler):
            name = getattr(handler, "__qualname__", handler)
            raise BotError(f"{name} is a coroutine or generator: make it a plain function")


def _each(one_or_more: Any) -> Sequence[Any]:
    """A single class or state, or None for any, as the only one of a list."""
    if isinstance(one_or_more, Sequence) and not isinstance(one_or_more, str):
        return one_or_more
    return [one_or_more]
