"""The test kit for bot authors: a bot in a conversation, without MongoDB and without network.

`BotTest` runs the bot as the dispatcher does and shows what came of it. The pytest plugin
`linedesk.pytestplugin` has it as the fixture `bot_test`, which `--real-stack` turns into the real
processes.
"""

from jobworker.testing.answers import Answers, Sent, Waiting
from jobworker.testing.bottest import BotTest
from jobworker.testing.errors import BotWarning, EndlessTimers, HandlerFailed, KitError, NotHere
from jobworker.testing.people import People

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
