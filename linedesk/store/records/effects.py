"""`pending` of a conversation: effects on their way, as `jobworker.effects` makes them."""

from __future__ import annotations

from typing import Final

EFFECT_ID: Final = "effectId"
"""How `control` and `status` name an effect."""
RETRY_KEY: Final = "retryKey"
TOKEN_FROM: Final = "tokenFrom"
"""When the webhook with the reply token arrived."""
TRIED_AT: Final = "triedAt"
"""Of a send: when a try began whose outcome is unknown."""
