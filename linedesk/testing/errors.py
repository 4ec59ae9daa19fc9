"""What can go wrong in a test of a bot, apart from what the bot itself raises.

* BotWarning       the bot goes well in a test and badly in production

* KitError
  * EndlessTimers  timers ring one another and no time goes by
  * HandlerFailed  the bot's handler failed on the real stack
  * NotHere        what there is only with a network, or only without
"""

from __future__ import annotations


class BotWarning(UserWarning):
    """A handler returns a message instead of sending it."""


class KitError(Exception):
    """Base of the kit's own errors."""


class EndlessTimers(KitError):
    """Timers of the bot ring at once, again and again: production would never get to an end."""


class HandlerFailed(KitError):
    """A handler failed on the real stack, where its own exception stays in the other process."""


class NotHere(KitError):
    """The test asks for what this kind of run does not have; the message says what to do."""
