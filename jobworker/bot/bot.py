"""A bot: the rules that select a handler for an event. Pure; the bot author makes it at import."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from linebot.v3.webhooks import (
    Event,
    MessageContent,
    MessageEvent,
    PostbackEvent,
    TextMessageContent,
)

from jobworker.bot.events import TimerEvent, is_event, model_of
from jobworker.bot.filters import Condition, Filter, filter_of
from jobworker.bot.gather import MOST_SECONDS, MOST_TOGETHER, Gather
from jobworker.bot.places import is_coroutine, place_of
from jobworker.bot.timers import checked_name, checked_state
from jobworker.errors import BotError, NoTimerHandler
from linedesk.store.documents import Document, text_of
from linedesk.store.timers import START_TIMER, STATE_TIMER

if TYPE_CHECKING:
    from jobworker.bot.talk import Talk

Handler = Callable[[Any, "Talk"], Coroutine[Any, Any, None] | None]
F = TypeVar("F", bound=Callable[..., Coroutine[Any, Any, None] | None])
Profiles = bool | Literal["later"]

# The number of messages handled together unless the handler sets another.
MOST_DEFAULT = 20
# A handler that runs longer belongs in another program.
MOST_LIMIT_SECONDS = 3600.0
MOST_TRIES = 100
# Events in which a user writes or presses something; all others only inform the bot.
UTTERANCES = (MessageEvent, PostbackEvent)


@dataclass(frozen=True)
class Rule:
    """One handler and the events it handles."""

    handler: Handler
    profile: Profiles
    """Whether the sender's profile is fetched where it is missing or a day old: before the handler,
    "later", after the answer while the gate is idle, or not at all."""
    limit: float | None = None
    """The handler's time limit in seconds; None for HANDLER_LIMIT_SECONDS."""
    gather: Gather | None = None
    """Which messages the handler gets together, as a list; None if it gets single events."""
    filter: Filter | None = None
    """What its events must have besides their classes."""
    tries: int | None = None
    """The total number of runs of the handler while it fails; None for HANDLER_TRIES."""
    backoff: tuple[float, ...] = ()
    """Seconds before each further try; empty for the usual ones."""
    is_async: bool = False
    """Whether the handler is a coroutine function, and runs on the event loop."""


def first_of(rules: Iterator[Rule], event: Any, talk: Talk) -> Rule | None:
    """Return the first rule whose filter holds. Raises the errors of the bot's conditions."""
    return next((one for one in rules if one.filter is None or one.filter.holds(event, talk)), None)


Place = tuple[type | None, type | None, str | None, Filter | None]
Choose = Callable[[Iterator[Rule], Any, "Talk"], Rule | None]


class Bot:
    """Handlers by event and message class, as in line-bot-sdk's WebhookHandler.

    With `profiles=True` every handler gets the sender's profile, if LINE returns it in time. With
    `profiles="later"` it is fetched after the answer, for operators and the next event. A rule may
    override this. With `per_member=True` state, data and timers in a group or room are separate for
    each member.

    `settings` names the bot's own settings with their defaults (text, int, float or bool). An
    operator sets them by BOT_SETTINGS, and `talk.settings` has the values. `check_settings` is
    called with them at the start. It raises ValueError for an invalid value; the text names the
    setting and the valid values. `secrets` names the values that the operator must give by
    BOT_SECRETS, such as an API key; `talk.secrets` has them.
    """

    sends_by_itself = False
    """Whether its handlers call LINE themselves and therefore own the reply token."""

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
        self.rules: dict[Place, Rule] = {}
        """By class of event and of message, state and filter, in the order of definition; None
        means any.
        """
        self.on_failed: Rule | None = None
        """The handler of events that are given up."""
        self.timers: dict[str, Rule] = {}
        self.timeouts: dict[str, Rule] = {}
        """By the state that has expired."""
        self.starts: dict[str, Rule] = {}
        """By the name given to `start_timers`."""
        self.is_async = False
        """Whether any handler is async."""
        self.has_states = False
        """Whether any handler depends on a state, so that the conversation must be read."""

    def add(
        self,
        event: type,
        message: type | Sequence[type] | None = None,
        *,
        state: str | Sequence[str] | None = None,
        profile: Profiles | None = None,
        limit: float | None = None,
        tries: int | None = None,
        backoff: float | Sequence[float] = (),
        gather: float | None = None,
        most: int | None = None,
        text: str | re.Pattern[str] | None = None,
        mentioned: bool = False,
        postback: str | None = None,
        when: Condition | None = None,
    ) -> Callable[[F], F]:
        """Decorate the handler of an event class and, for MessageEvent, of message classes.

        The classes are those of `linebot.v3.webhooks`. With `state` it runs only in that state, or
        in one of those. A later handler of the same classes and state replaces an earlier one.
        `limit` is the handler's time limit in seconds, 3,600 at most; the default is
        HANDLER_LIMIT_SECONDS. Handlers with a longer limit use at most half of the threads.
        `tries` is the total number of runs while it fails, by default HANDLER_TRIES; `backoff` are
        the seconds before each further one, of which the last repeats.

        `text` (the text without mentions of the bot, or a pattern in it), `mentioned` (or in a 1:1
        chat), `postback` (pairs in its data) and `when` (a condition of event and talk) are
        filters. In a state the first handler whose filters hold comes before those without.

        With `gather`, for MessageEvent only, the handler gets a list of directly consecutive
        messages of one sender. The list ends when one of these is true:

        * its newest message is `gather` seconds old (30 at most),
        * `most` messages are there (default 20, 2 to 99),
        * another event follows,
        * its first message is 30 s old.

        Raises BotError.
        """
        _check_class(event, Event, "bot.add", "MessageEvent")
        for one in _each(message):
            if one is not None:
                _check_class(one, MessageContent, "message=", "TextMessageContent")
        together = _gather(event, gather, most)
        found = filter_of(event, message, Filter(text, mentioned, postback, when))
        if when is not None:
            _check_handler(when)
        message = TextMessageContent if text is not None else message
        pauses = _pauses(tries, backoff)

        def decorate(handler: F) -> F:
            rule = self._rule(handler, profile, limit)
            rule = replace(rule, gather=together, filter=found, tries=tries, backoff=pauses)
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
        """Decorate the handler of every event without another handler.

        With `state` it is the fallback of that state. It takes messages and postbacks without a
        handler in that state, before any handler without a state. `limit` is as in `add`.
        """

        def decorate(handler: F) -> F:
            self._add(None, None, state, self._rule(handler, profile, limit))
            return handler

        return decorate

    def timer(
        self, name: str, *, profile: Profiles | None = None, limit: float | None = None
    ) -> Callable[[F], F]:
        """Decorate the handler of a timer's name; it gets a TimerEvent. Raises BotError.

        It also handles names that continue after a colon, unless they have a handler of their own:
        the handler of "ring" also handles "ring:1". Several timers can therefore wait at once.
        `limit` is as in `add`.
        """
        checked_name(name)

        def decorate(handler: F) -> F:
            self.timers[name] = self._rule(handler, profile, limit)
            return handler

        return decorate

    def timeout(
        self, state: str, *, profile: Profiles | None = None, limit: float | None = None
    ) -> Callable[[F], F]:
        """Decorate the handler that runs when the time of `talk.expect(state, within=...)` is over.

        The conversation has left the state by then. `limit` is as in `add`. Raises BotError.
        """
        checked_state(state)

        def decorate(handler: F) -> F:
            self.timeouts[state] = self._rule(handler, profile, limit)
            return handler

        return decorate

    def failed(self, handler: F) -> F:
        """Decorate the handler of events that are given up, once for each.

        It gets what the failed handler got. Its decisions are recorded with the dead letter; if it
        fails, it has decided nothing.
        """
        self.on_failed = self._rule(handler, False, None)
        return handler

    def start_timers(
        self, name: str, *, profile: Profiles | None = None, limit: float | None = None
    ) -> Callable[[F], F]:
        """Decorate the handler that sets timers in conversations that began before it was there.

        When a dispatcher first runs with this name, the handler gets a TimerEvent once in the
        conversation of each known user who has not blocked the bot. Under another name it runs once
        more. `limit` is as in `add`. Raises BotError.
        """
        if "." in checked_name(name) or "$" in name:
            raise BotError(f"a name for start_timers has no '.' and no '$': {name!r}")

        def decorate(handler: F) -> F:
            self.starts[name] = self._rule(handler, profile, limit)
            return handler

        return decorate

    def rule_in(self, talk: Talk, event: Any, choose: Choose = first_of) -> Rule | None:
        """Return the rule of an event in its conversation; an expired state is left first.

        `choose` returns one of the rules that may take it, or None.
        """
        is_time_out = isinstance(event, TimerEvent) and event.name == STATE_TIMER
        if is_time_out and not talk.leave_state(event.data.get("state")):
            return None
        return choose(self.rules_for(event, talk.state if self.has_states else None), event, talk)

    def rules_for(self, event: Any, state: str | None = None) -> Iterator[Rule]:
        """Return the rules of an event model in a state, the best first. All that stand before one
        without a filter may take it.

        The order is: the state's rules with a filter, its rule of the event's message class, its
        rule of the event's class, its fallback; then the same without a state. Raises
        NoTimerHandler.
        """
        if isinstance(event, TimerEvent):
            yield from filter(None, [self._rule_of_timer(event)])
            return
        message = type(getattr(event, "message", None))
        keys: list[tuple[type | None, type | None]] = [(type(event), message), (type(event), None)]
        for where in dict.fromkeys((state, None)):
            for (*classes, its_state, found), rule in self.rules.items():
                is_here = its_state == where and tuple(classes) in keys
                if found is not None and is_here and found.fits(event):
                    yield rule
            has_fallback = where is None or isinstance(event, UTTERANCES)
            for both in (*keys, (None, None)) if has_fallback else keys:
                if (*both, where, None) in self.rules:
                    yield self.rules[(*both, where, None)]

    def gathers(
        self, rule: Rule, talk: Talk, document: Document, choose: Choose = first_of
    ) -> bool:
        """Return whether a document is a message of the talk's sender for the same handler.

        For a message that was taken back only the sender is known.
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
        rules = self.rules_for(model := model_of(event), talk.state if self.has_states else None)
        return choose(rules, model, talk.about(event)) == rule

    def has_timer(self, name: str) -> bool:
        """Whether a timer of that name has a handler."""
        if name.startswith(START_TIMER):
            return name.removeprefix(START_TIMER) in self.starts
        return name in self.timers or name.partition(":")[0] in self.timers

    def _rule_of_timer(self, event: TimerEvent) -> Rule | None:
        name = event.name
        if name == STATE_TIMER:
            return self.timeouts.get(str(event.data.get("state")))
        if not self.has_timer(name):
            raise NoTimerHandler(f"no handler for the timer {name!r}")
        if name.startswith(START_TIMER):
            return self.starts[name.removeprefix(START_TIMER)]
        return self.timers.get(name) or self.timers[name.partition(":")[0]]

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
            self.rules[event, message, where, rule.filter] = rule
            self.has_states = self.has_states or where is not None

    def _rule(self, handler: Handler, profile: Profiles | None, limit: float | None) -> Rule:
        _check_handler(handler)
        if limit is not None:
            _check_seconds(limit, "limit=", MOST_LIMIT_SECONDS)
        is_async = getattr(handler, "is_async", False) is True or is_coroutine(handler)
        self.is_async = self.is_async or is_async
        profile = self._profiles if profile is None else profile
        return Rule(handler, profile, limit, is_async=is_async)


def _check_class(one: object, kind: type, where: str, example: str) -> None:
    """Raise BotError for a class that no event can have: its handler would never run."""
    if not (isinstance(one, type) and issubclass(one, kind)):
        raise BotError(
            f"{where} takes a class of linebot.v3.webhooks such as {example}, not {one!r:.80}"
        )


def _gather(event: type, seconds: float | None, most: int | None) -> Gather | None:
    """Return the rule for `gather=` and `most=`. Raises BotError."""
    if seconds is None:
        if most is not None:
            raise BotError("most= is for a handler with gather=")
        return None
    if not issubclass(event, MessageEvent):
        raise BotError(f"gather= is for MessageEvent, not for {event.__name__}")
    _check_seconds(seconds, "gather=", MOST_SECONDS)
    most = MOST_DEFAULT if most is None else most
    _check_number(most, "most=", 2, MOST_TOGETHER)
    return Gather(float(seconds), most)


def _pauses(tries: int | None, backoff: float | Sequence[float]) -> tuple[float, ...]:
    if tries is not None:
        _check_number(tries, "tries=", 1, MOST_TRIES)
    for seconds in _each(backoff):
        _check_seconds(seconds, "backoff=", MOST_LIMIT_SECONDS)
    return tuple(_each(backoff))


def _check_seconds(seconds: object, where: str, most: float) -> None:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not (is_number and 0 < seconds <= most):  # type: ignore[operator]
        raise BotError(f"{where} takes seconds above 0, {most:g} at most, not {seconds!r:.80}")


def _check_number(number: object, where: str, least: int, most: int) -> None:
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not (is_whole and least <= number <= most):  # type: ignore[operator]
        raise BotError(f"{where} takes a whole number, {least} to {most}, not {number!r:.80}")


def _check_handler(handler: object) -> None:
    if not callable(handler):
        raise BotError(f"a handler is a function, not {handler!r:.80}")
    name, place = getattr(handler, "__qualname__", handler), place_of(handler)
    if inspect.isgeneratorfunction(handler) or inspect.isasyncgenfunction(handler):
        raise BotError(f"{name} is a generator: make it a function without yield ({place})")
    try:
        inspect.signature(handler, follow_wrapped=False).bind(None, None)
    except TypeError as error:
        raise BotError(f"{name} does not take (event, talk): {error} ({place})") from error
    except ValueError:
        # A function in C, of which Python knows no arguments.
        return


def _each(one_or_more: Any) -> Sequence[Any]:
    """Return a single class or state, or None for any, as a list of one."""
    if isinstance(one_or_more, Sequence) and not isinstance(one_or_more, str):
        return one_or_more
    return [one_or_more]
