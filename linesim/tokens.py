"""Reply tokens: good once, and for a short time after the webhook that brought them.

LINE's rule for a redelivered webhook (reference, "Reply token"): its token is good for as long
again, unless it has been used or 20 minutes have passed since the event.
"""

from dataclasses import dataclass

from linesim import errors
from linesim.clock import Clock
from linesim.recent import Recent

REDELIVERY_SECONDS = 20 * 60


@dataclass
class ReplyToken:
    event_id: str
    chat_id: str
    user_id: str | None
    until: float = 0.0  # of the monotonic clock
    used: bool = False


class ReplyTokens:
    """The newest 200,000 tokens. Whoever calls holds the simulator's lock."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._tokens: Recent[str, ReplyToken] = Recent(200_000)

    def deliver(
        self, token: str, *, event_id: str, chat_id: str, user_id: str | None, age_seconds: float
    ) -> None:
        """A webhook with this token goes out now, for the first time or again; `age_seconds` is its
        event's.
        """
        known = self._tokens.get(token)
        if known is None:
            known = self._tokens[token] = ReplyToken(event_id, chat_id, user_id)
        if age_seconds <= REDELIVERY_SECONDS:
            known.until = self._clock.monotonic() + self._seconds

    def find(self, token: str) -> ReplyToken | None:
        return self._tokens.get(token)

    def spend(self, token: str) -> ReplyToken:
        known = self._tokens.get(token)
        if known is None or known.used or self._clock.monotonic() >= known.until:
            raise errors.invalid_reply_token()
        known.used = True
        return known
