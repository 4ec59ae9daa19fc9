"""Finds the bot that BOT names, and reads BOT_SETTINGS and BOT_SECRETS for it."""

from __future__ import annotations

import difflib
import importlib
import inspect
import logging
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

from linebot.v3 import WebhookHandler
from pydantic import SecretStr

from jobworker.bot.bot import Bot
from jobworker.bot.places import deepest
from linedesk.runtime.logging import masking
from linedesk.settings.errors import SettingsError
from linedesk.settings.settings import Settings

log = logging.getLogger(__name__)

# Older settings name the shipped bots by the first of each pair.
MOVED = {f"bots.{name}": f"linedesk.bots.{name}" for name in ("parrot", "timer")}


def load(settings: Settings) -> tuple[Bot, Mapping[str, Any], Mapping[str, str]]:
    """The bot that BOT names, its settings and its secrets. Raises SettingsError."""
    bot = load_bot(settings.bot, masked=masking(settings.secret_values))
    given = read_bot_settings(bot, settings.bot_settings)
    return bot, given, read_bot_secrets(bot, settings.bot_secrets)


def load_bot(spec: str, *, masked: Callable[[str], str] = str) -> Bot:
    """Import `module:name` from the installed packages, then from the working directory.

    This order keeps a bot's console.py or queue.py from replacing our modules. Raises SettingsError
    if the module or the name is missing, the import fails, the object is not a Bot or
    WebhookHandler, or a WebhookHandler's modules would call LINE past the gate.
    """
    module_name, _, name = spec.partition(":")
    folder = Path.cwd()
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    before = set(sys.modules)
    try:
        module = _imported(module_name)
    except (Exception, SystemExit) as error:  # an import runs the bot's code
        words = f"BOT names the module {module_name!r}: {masked(_told(error))}"
        raise SettingsError([f"{words}{_hint(module_name, folder)}"]) from error
    bot = getattr(module, name, None)
    if isinstance(bot, WebhookHandler):
        return _sdk_bot(bot, module, before)
    if bot is None:
        own = [key for key, one in vars(module).items() if isinstance(one, Bot | WebhookHandler)]
        has = f"{module_name} has no {name}; it has {', '.join(own) or 'no bot'}"
        raise SettingsError([f"BOT: {has}{_hint(module_name, folder)}"])
    if not isinstance(bot, Bot):
        # The name includes the module: line-bot-sdk 2 also has a WebhookHandler.
        found = f"a {type(bot).__module__}.{type(bot).__name__}"
        raise SettingsError(
            [
                f"BOT must name a linedesk.Bot or a linebot.v3.WebhookHandler, and {spec} is "
                f"{found}{_hint(module_name, folder)}"
            ]
        )
    return bot


def _imported(module_name: str) -> ModuleType:
    """The module; the bot author's own module has priority over the old name of a shipped bot."""
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        new_name = MOVED.get(module_name)
        if new_name is None or error.name not in {"bots", module_name}:
            raise
        module = importlib.import_module(new_name)
    log.warning("BOT uses an old name, set the new one old=%s new=%s", module_name, new_name)
    return module


def _sdk_bot(handler: WebhookHandler, module: ModuleType, before: set[str]) -> Bot:
    # Imported here, since they import all of the SDK.
    from jobworker.sdk.handler import SdkBot
    from linedesk.bots.ungated_clients import modules_of, ungated_names

    problems = [
        f"BOT names {module.__name__!r}: the handler {name!r} is a coroutine, which a "
        "WebhookHandler calls and never awaits: make it a plain function"
        for name in _coroutines_of(handler)
    ]
    problems += [
        f"BOT needs {module.__name__!r}: {name!r} is line-bot-sdk's own client, which calls LINE "
        "past the gate: take ApiClient from linedesk"
        for module in modules_of(module, before=before)
        for name in ungated_names(module)
    ]
    if problems:
        raise SettingsError(problems)
    return SdkBot(handler)


def _coroutines_of(handler: WebhookHandler) -> list[str]:
    """Return the names of handlers that are coroutines, which the SDK never awaits."""
    functions = [*handler._handlers.values(), handler._default]
    return sorted({_name_of(each) for each in functions if _is_coroutine(each)})


def _is_coroutine(function: Any) -> bool:
    # Also a callable object.
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004
    )


def _name_of(function: Any) -> str:
    function = getattr(function, "func", function)  # of a functools.partial
    return str(getattr(function, "__name__", type(function).__name__))


def _hint(module_name: str, folder: Path) -> str:
    """For another module that precedes the one in this folder: what to do."""
    name = module_name.partition(".")[0]
    own = [path for path in (folder / f"{name}.py", folder / name) if path.exists()]
    file = getattr(sys.modules.get(name), "__file__", None)
    if not own or file is None or Path(file).is_relative_to(folder):
        return ""
    return f": {file} hides {own[0]}: rename your module"


def _told(error: BaseException) -> str:
    """The error with its text and its place in the bot's files."""
    place, words = deepest(traceback.extract_tb(error.__traceback__)), str(error)
    if isinstance(error, SyntaxError):
        place, words = f"{error.filename}:{error.lineno}", error.msg
    told = f"{type(error).__name__}: {words}" if words else type(error).__name__
    # Of a missing module that BOT itself names, only Python's own files are known.
    return told if place.startswith("<frozen ") else f"{told} at {place}"


def read_bot_settings(bot: Bot, given: Mapping[str, str]) -> Mapping[str, Any]:
    """The bot's settings, read-only: its defaults with the operator's values.

    Raises SettingsError, which lists all problems.
    """
    problems = [_unknown(name, bot.settings) for name in given if name not in bot.settings]
    read = dict(bot.settings)
    for name in bot.settings.keys() & given.keys():
        must_be, parse = _kind(bot.settings[name])
        try:
            read[name] = parse(given[name])
        except ValueError:
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
    """The secrets that the bot declares, in plain text, read-only.

    Raises SettingsError, which lists only the missing names: a broken line may have a secret in
    place of a name.
    """
    missing = [name for name in bot.secrets if name not in given]
    if missing:
        raise SettingsError(
            [f"BOT_SECRETS has no {name}: the bot needs a line {name}=VALUE" for name in missing]
        )
    return MappingProxyType({name: given[name].get_secret_value() for name in bot.secrets})


def _kind(default: Any) -> tuple[str, Callable[[str], Any]]:
    """The description of valid values and their parser. Raises SettingsError for other defaults."""
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
