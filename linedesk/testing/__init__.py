"""The test kit for bots: a bot in a conversation, without MongoDB and without network.

`BotTest` runs the bot like the dispatcher and returns its answers. The pytest plugin
`linedesk.testing.pytest_plugin` provides it as the fixture `bot_test`. pytest loads this package in
every run, so names are imported at first use.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from linedesk.testing.answers import Answers, Sent, Waiting
    from linedesk.testing.bot_test import BotTest, BotWarning, EndlessTimers, KitError, NotHere

__all__ = [
    "Answers",
    "BotTest",
    "BotWarning",
    "EndlessTimers",
    "KitError",
    "NotHere",
    "Sent",
    "Waiting",
]


# Type checkers see the imports above and thus reject unknown names.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of the kit, imported at its first use."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = "answers" if name in ("Answers", "Sent", "Waiting") else "bot_test"
        return getattr(import_module(f"linedesk.testing.{module}"), name)
