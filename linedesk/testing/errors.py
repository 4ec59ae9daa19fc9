"""The errors of the test kit, apart from the bot's own exceptions.

* BotWarning       the bot works in a test and fails in production

* KitError
  * EndlessTimers  timers fire one another without any time passing
  * HandlerFailed  the bot's handler failed on the real stack
  * NotHere        a feature that exists only with a network, or only without
"""

from __future__ import annotations


class BotWarning(UserWarning):
    """A handler returns a message instead of sending it."""


class KitError(Exception):
    """Base of the kit's own errors."""


class EndlessTimers(KitError):
    """Timers of the bot fire at once, endlessly: production would never finish."""


class HandlerFailed(KitError):
    """A handler failed on the real stack, where its own exception stays in the other process."""


class NotHere(KitError):
    """The test uses a feature that this kind of run lacks; the message explains the alternative."""
