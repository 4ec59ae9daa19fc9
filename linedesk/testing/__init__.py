"""The test kit for bots: a bot in a conversation, without MongoDB and without network.

`BotTest` runs the bot like the dispatcher and returns its answers. The pytest plugin
`linedesk.testing.pytest_plugin` provides it as the fixture `bot_test`; with `--real-stack` the
fixture uses the real processes. pytest loads this package in every run, so names are imported at
first use.
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

_ELSEWHERE = {
    **dict.fromkeys(("Answers", "Sent", "Waiting"), "answers"),
    "BotTest": "bot_test",
    "People": "people",
}


# Type checkers see the imports above and thus reject unknown names.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """A name of the kit, imported at its first use."""
        from importlib import import_module

        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = _ELSEWHERE.get(name, "errors")
        return getattr(import_module(f"linedesk.testing.{module}"), name)
