"""The bot's own settings and secrets: what BOT_SETTINGS and BOT_SECRETS say, for this bot."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from pydantic import SecretStr

from jobworker import Bot
from linedesk.errors import SettingsError


def read_bot_settings(bot: Bot, given: Mapping[str, str]) -> Mapping[str, Any]:
    """The bot's defaults with what the operator gave, for reading only.

    Raises SettingsError, which names all that is wrong.
    """
    problems = [_unknown(name, bot.settings) for name in given if name not in bot.settings]
    read = dict(bot.settings)
    for name in bot.settings.keys() & given.keys():
        try:
            read[name] = _value(given[name], bot.settings[name])
        except ValueError:
            must_be = _kind(bot.settings[name])[0]
            problems.append(f"BOT_SETTINGS: {name} must be {must_be}, not {given[name]!r}")
    if problems:
        raise SettingsError(sorted(problems))
    if bot.check_settings is not None:
        try:
            bot.check_settings(read)
        except ValueError as error:
            raise SettingsError([f"BOT_SETTINGS: {error}"]) from error
    return MappingProxyType(read)


def read_bot_secrets(bot: Bot, given: Mapping[str, SecretStr]) -> Mapping[str, str]:
    """The secrets that the bot names, in plain text, for reading only.

    Raises SettingsError, which names those that are missing and no others: a line that was broken
    by mistake may have a secret in the place of its name.
    """
    missing = [name for name in bot.secrets if name not in given]
    if missing:
        raise SettingsError(
            [f"BOT_SECRETS has no {name}: the bot needs a line {name}=VALUE" for name in missing]
        )
    return MappingProxyType({name: given[name].get_secret_value() for name in bot.secrets})


def _value(text: str, default: Any) -> Any:
    return _kind(default)[1](text)


def _kind(default: Any) -> tuple[str, Callable[[str], Any]]:
    """What a value must be, and how it is read. Raises SettingsError for other defaults."""
    # bool first, since True is an int as well.
    kinds: tuple[tuple[type, str, Callable[[str], Any]], ...] = (
        (bool, "true or false", _bool),
        (int, "a whole number", int),
        (float, "a number", _finite),
        (str, "a text", str),
    )
    for kind, must_be, read in kinds:
        if isinstance(default, kind):
            return must_be, read
    raise SettingsError(
        [f"BOT: a default in its settings is a {type(default).__name__}, not text or number"]
    )


def _bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError
    return text.lower() == "true"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError
    return number


def _unknown(name: str, declared: Mapping[str, Any]) -> str:
    if not declared:
        return f"BOT_SETTINGS has {name}, and the bot has no settings of its own"
    close = difflib.get_close_matches(name, declared, n=1)
    meant = f"did you mean {close[0]}?" if close else f"the bot has {', '.join(declared)}"
    return f"BOT_SETTINGS has an unknown name: {name} ({meant})"
