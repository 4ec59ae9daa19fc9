"""Finding the bot that the setting BOT names."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

from jobworker import Bot
from linedesk.errors import SettingsError


def load_bot(spec: str) -> Bot:
    """Import `module:name`, looked for in the working directory first.

    Raises SettingsError where the module or the name is missing or is no Bot. What the module
    itself raises while it is imported comes through.
    """
    module_name, _, name = spec.partition(":")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise SettingsError([f"BOT names the module {module_name!r}: {error.msg}"]) from error
    bot = getattr(module, name, None)
    if not isinstance(bot, Bot):
        found = "nothing" if bot is None else f"a {type(bot).__name__}"
        raise SettingsError([f"BOT must name a jobworker.Bot, and {spec} is {found}"])
    return bot
