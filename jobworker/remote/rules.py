"""A bot's rules as JSON, so that the leader can choose handlers that run elsewhere.

By these rules the leader sees states, gathering, limits and profiles; it runs no code of the bot.
Types are LINE's names of events and messages, such as `message` and `text`. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from linebot.v3 import webhooks
from linebot.v3.models import UnknownEvent
from linebot.v3.webhooks import Event, MessageContent

from jobworker.bot.bot import Bot, Rule
from jobworker.errors import BotError

MOST_RULES = 10_000
UNKNOWN = "unknown"
# The fields that a rule of each kind may have; the last kind handles all other events.
_ALL = ("name", "profile", "limit")
_RETRIES = ("tries", "backoff")
_FILTERS = ("text", "mentioned", "postback", "when")
KINDS: Mapping[str, frozenset[str]] = {
    "timer": frozenset((*_ALL, "timer")),
    "timeout": frozenset((*_ALL, "timeout")),
    "start": frozenset((*_ALL, "start")),
    "failed": frozenset(("name", "profile", "failed")),
    "event": frozenset(
        (*_ALL, "event", "message", "state", "gather", "most", *_RETRIES, *_FILTERS)
    ),
    "default": frozenset((*_ALL, "state")),
}
FIELDS = frozenset[str]().union(*KINDS.values())


def _classes(base: Any) -> dict[str, type]:
    names = getattr(base, f"_{base.__name__}__discriminator_value_class_map")
    return {type_: getattr(webhooks, name) for type_, name in names.items()}


EVENTS: Mapping[str, type] = {**_classes(Event), UNKNOWN: UnknownEvent}
MESSAGES: Mapping[str, type] = _classes(MessageContent)
WITH_MESSAGE = {type_ for type_, one in EVENTS.items() if "message" in one.__annotations__}
_TYPES = {one: type_ for type_, one in (*EVENTS.items(), *MESSAGES.items())}


@dataclass(frozen=True)
class RemoteHandler:
    """Represents a handler of this name in the bot of this version."""

    version: str
    name: str
    is_async: bool = False

    def __call__(self, event: Any, talk: Any) -> None:
        raise BotError("the handler runs in a worker process")


def rules_of(bot: Bot) -> tuple[dict[str, Any], Mapping[str, Rule]]:
    """Return the bot's rules as JSON, and each rule by its name there."""
    rows, by_name = [], {}
    for number, (where, rule) in enumerate(_every_rule(bot)):
        by_name[str(number)] = rule
        row: dict[str, Any] = {"name": str(number), **where, "profile": rule.profile}
        if rule.limit is not None:
            row["limit"] = rule.limit
        if rule.gather is not None:
            row |= {"gather": rule.gather.seconds, "most": rule.gather.most}
        if rule.tries is not None or rule.backoff:
            row |= {"tries": rule.tries, "backoff": [*rule.backoff]}
        if (found := rule.filter) is not None:
            data = {name: getattr(found, name) for name in _FILTERS[:3]}
            row |= {name: one for name, one in data.items() if one and isinstance(one, str | bool)}
            row |= {"when": True} if found.is_code else {}
        rows.append(row)
    later = [name for name, rule in by_name.items() if rule.is_async]
    table = {"perMember": bot.per_member, "rules": rows, **({"async": later} if later else {})}
    return table, by_name


def bot_of(table: object, version: str) -> Bot:
    """Return a bot with these rules and a `RemoteHandler` for each. Raises ValueError."""
    if not isinstance(table, Mapping) or not isinstance(table.get("rules"), list):
        raise ValueError("rules: must be a list of rules")
    if len(table["rules"]) > MOST_RULES:
        raise ValueError(f"rules: {len(table['rules'])}, at most {MOST_RULES}")
    bot = Bot(per_member=table.get("perMember") is True)
    names: set[str] = set()
    later = table.get("async", [])
    if not isinstance(later, list):
        raise ValueError("async: must be a list of names")
    later = {str(one) for one in later}
    for number, row in enumerate(table["rules"]):
        try:
            _add(bot, row, version, names, later)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"rules: number {number}: {error}") from error
    return bot


def _every_rule(bot: Bot) -> Iterator[tuple[dict[str, Any], Rule]]:
    for (event, message, state, _), rule in bot.rules.items():
        if not {event, message} <= _TYPES.keys() | {None}:
            # A base class: no LINE event is exactly that, so its handler never runs.
            continue
        named = {"event": event, "message": message}
        where = {name: _TYPES[one] for name, one in named.items() if one is not None}
        if "message" in where and where["event"] not in WITH_MESSAGE:
            # No such event has a message, so its handler never runs either.
            continue
        yield {**where, **({} if state is None else {"state": state})}, rule
    for name, rule in bot.timers.items():
        yield {"timer": name}, rule
    for state, rule in bot.timeouts.items():
        yield {"timeout": state}, rule
    if bot.on_failed is not None:
        yield {"failed": True}, bot.on_failed
    for name, rule in bot.starts.items():
        yield {"start": name}, rule


def _add(
    bot: Bot, row: Mapping[str, Any], version: str, names: set[str], later: Collection[str]
) -> None:
    kind = _kind_of(row)
    name = row["name"]
    if not isinstance(name, str) or not name or name in names:
        raise ValueError("name: a text that no other rule has")
    names.add(name)
    handler = RemoteHandler(version, name, name in later)
    own: Any = {"profile": row.get("profile"), "limit": row.get("limit")}
    if own["profile"] not in (None, True, False, "later"):
        raise ValueError("profile: true, false or later")
    if kind == "timer":
        bot.timer(row["timer"], **own)(handler)
    elif kind == "timeout":
        bot.timeout(row["timeout"], **own)(handler)
    elif kind == "failed":
        bot.failed(handler)
    elif kind == "start":
        bot.start_timers(row["start"], **own)(handler)
    elif kind == "event":
        message = MESSAGES[row["message"]] if row.get("message") is not None else None
        if message is not None and row["event"] not in WITH_MESSAGE:
            raise ValueError(f"message: not for the event {row['event']!r:.40}")
        given = ("gather", "most", *_RETRIES, *_FILTERS[:3])
        more = {name: row[name] for name in given if row.get(name) is not None}
        if row.get("when"):
            more["when"] = handler
        event = EVENTS[row["event"]]
        bot.add(event, message, state=row.get("state"), **own, **more)(handler)
    else:
        bot.default(state=row.get("state"), **own)(handler)


def _kind_of(row: Mapping[str, Any]) -> str:
    """Return a rule's kind. Raises ValueError for a field that its kind does not have."""
    if unknown := set(row) - FIELDS:
        raise ValueError(f"unknown field {sorted(unknown)[0]!r:.40}")
    kind = next((one for one in KINDS if one in row), "default")
    if wrong := sorted(set(row) - KINDS[kind]):
        where = "without event, timer, timeout or start" if kind == "default" else f"with {kind}"
        raise ValueError(f"{wrong[0]}: not in a rule {where}")
    return kind
