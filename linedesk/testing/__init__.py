"""The test kit for bots: a bot in a conversation, without MongoDB and without network.

`BotTest` runs the bot as the dispatcher does and shows what came of it. The pytest plugin
`linedesk.testing.pytest_plugin` has it as the fixture `bot_test`, which `--real-stack` turns into
the real processes. pytest loads this package in every run, so names are imported at first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linedesk.testing.answers import Answers, Sent, Waiting
    from linedesk.testing.bot_test import BotTest
    from linedesk.testing.errors import BotWarning, EndlessTimers, HandlerFailed, KitError, NotHere
    from linedesk.testing.people import People

__all__ = [
    "Answers",
    "BotTest",
    "BotWarning",
    "EndlessTimers",
    "HandlerFailed",
    "KitError",
    "NotHere",
    "People",
    "Sent",
    "Waiting",
]

_MODULES = {
    "linedesk.testing.answers": (
        "Answers",
        "Sent",
        "Waiting",
    ),
    "linedesk.testing.bot_test": ("BotTest",),
    "linedesk.testing.errors": (
        "BotWarning",
        "EndlessTimers",
        "HandlerFailed",
        "KitError",
        "NotHere",
    ),
    "linedesk.testing.people": ("People",),
}


# A checker of types sees the imports above, so that it refuses a name that is not there.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of the kit, imported at its first use."""
        from importlib import import_module

        for module, names in _MODULES.items():
            if name in names:
                return getattr(import_module(module), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
