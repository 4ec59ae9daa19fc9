"""Finding the bot that the setting BOT names."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path

from jobworker import Bot
from linedesk.errors import SettingsError


def load_bot(spec: str) -> Bot:
    """Import `module:name`, looked for in the working directory first.

    Raises SettingsError where the module or the name is missing, where importing it fails, and
    where it is no Bot.
    """
    module_name, _, name = spec.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # importing runs somebody else's code
        raise SettingsError([f"BOT names the module {module_name!r}: {_told(error)}"]) from error
    bot = getattr(module, name, None)
    if not isinstance(bot, Bot):
        found = "nothing" if bot is None else f"a {type(bot).__name__}"
        raise SettingsError([f"BOT must name a jobworker.Bot, and {spec} is {found}"])
    return bot


def _told(error: Exception) -> str:
    """What went wrong and in which line of whose file.

    Python's own words for what it cannot import or parse are told, but not those of any other
    error: they may hold a secret.
    """
    words = f": {error.msg}" if isinstance(error, (ImportError, SyntaxError)) else ""
    if isinstance(error, SyntaxError):
        return f"{type(error).__name__}{words} at {error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "importlib" not in one.filename and one.name == "<module>"]
    place = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"{type(error).__name__}{words}{place}"
