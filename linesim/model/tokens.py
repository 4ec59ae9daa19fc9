"""Channel access tokens: one that is long-lived, and those that a bot has LINE issue. A bot is
refused a 31st token of version 2.1, and a 31st short-lived one ends the oldest (docs, "Channel
access token").

Reply tokens: valid once, and for a short time after their webhook.

LINE's rule for a redelivered webhook (reference, "Reply token"): its token is valid for the same
time again, unless it has been used or 20 minutes have passed since the event.

Retry keys: an accepted key is answered 409 with the first request's id and sent messages for 24
hours. A retry has to be the same request (docs, "Retry failed API requests": "Don't change the
content or the recipient").
"""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from linesim.model import errors
from linesim.model.clock import Clock
from linesim.model.deliveries import Event
from linesim.model.events import chat_id_of
from linesim.model.ids import Lasting, Recent

MOST_CHANNEL_TOKENS = 30
STATELESS_SECONDS = 15 * 60
LONG_LIVED_SECONDS = 100 * 365 * 24 * 60 * 60
MOST_KEPT = 1_000
# Of {"alg":"HS256"}: bots take a token as it is, and LINE's own begin so.
_JWS = "eyJhbGciOiJIUzI1NiJ9"

Kind = Literal["long-lived", "short-lived", "v2.1"]


@dataclass
class ChannelToken:
    """`until` is Unix time: the end of its life, or when it was revoked."""

    kind: Kind
    until: float
    key_id: str


class ChannelTokens:
    """Also the public keys for assertions (JWK), by their ids. Callers hold the simulator's lock.

    A stateless token carries the end of its life and a signature, and nothing is kept of it.
    """

    def __init__(self, first: str, secret: str, clock: Clock) -> None:
        self._secret = secret
        self._clock = clock
        until = clock.time() + LONG_LIVED_SECONDS
        self.tokens = {first: ChannelToken("long-lived", until, "")}
        self.keys: dict[str, dict[str, str]] = {}

    @property
    def kept(self) -> dict[str, ChannelToken]:
        """Without long-lived ones: that of the start may be a real channel's."""
        return {name: one for name, one in self.tokens.items() if one.kind != "long-lived"}

    @kept.setter
    def kept(self, tokens: dict[str, ChannelToken]) -> None:
        """The token of this start stays."""
        self.tokens = tokens | self.tokens

    def is_valid(self, token: str) -> bool:
        if known := self.tokens.get(token):
            return known.until > self._clock.time()
        content, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._sign(content).encode()):
            return False
        return int(content.rpartition(".")[2], 16) > self._clock.time()

    def valid(self, kind: Kind) -> list[ChannelToken]:
        """Return the valid ones of a kind, oldest first."""
        now = self._clock.time()
        return [each for each in self.tokens.values() if each.kind == kind and each.until > now]

    def seconds_left(self, token: str, *kinds: Kind) -> int | None:
        """None for a token that is unknown or of another kind."""
        known = self.tokens.get(token)
        if known is None or known.kind not in kinds:
            return None
        return max(0, math.ceil(known.until - self._clock.time()))

    def issue(self, kind: Kind, seconds: int) -> tuple[str, str]:
        """Return a new token and its key id."""
        valid, now = self.valid(kind), self._clock.time()
        if len(valid) >= MOST_CHANNEL_TOKENS:
            if kind == "v2.1":
                told = "The maximum number of access tokens has already been issued"
                raise errors.LineError(400, told)
            valid[0].until = now
        if len(self.tokens) >= MOST_KEPT:
            self.tokens = {name: each for name, each in self.tokens.items() if each.until > now}
        parts = secrets.token_urlsafe(128), secrets.token_urlsafe(32)
        token = f"{_JWS}.{parts[0]}.{parts[1]}" if kind == "v2.1" else parts[0]
        made = self.tokens[token] = ChannelToken(kind, now + seconds, secrets.token_urlsafe(16))
        return token, made.key_id

    def issue_stateless(self) -> str:
        until = int(self._clock.time()) + STATELESS_SECONDS
        content = f"{_JWS}.{secrets.token_hex(16)}.{until:x}"
        return f"{content}.{self._sign(content)}"

    def revoke(self, token: str, *kinds: Kind) -> None:
        if self.seconds_left(token, *kinds):
            self.tokens[token].until = self._clock.time()

    def _sign(self, content: str) -> str:
        return hmac.new(self._secret.encode(), content.encode(), hashlib.sha256).hexdigest()


REDELIVERY_SECONDS = 20 * 60


@dataclass
class ReplyToken:
    event_id: str
    chat_id: str
    user_id: str | None
    until: float = 0.0  # of the monotonic clock
    used: bool = False


class ReplyTokens:
    """The newest 200,000 tokens. Callers hold the simulator's lock."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds = seconds
        self._clock = clock
        self._tokens: Recent[str, ReplyToken] = Recent(200_000)

    def deliver(self, event: Event) -> None:
        """The event goes out now, for the first time or again."""
        token, chat_id, now = event.get("replyToken"), chat_id_of(event), self._clock.time()
        if not token or not chat_id:
            return
        known = self._tokens.get(token)
        if known is None:
            event_id, user_id = event.get("webhookEventId", ""), event["source"].get("userId")
            known = self._tokens[token] = ReplyToken(event_id, chat_id, user_id)
        if now - event.get("timestamp", now * 1000) / 1000 <= REDELIVERY_SECONDS:
            known.until = self._clock.monotonic() + self._seconds

    def find(self, token: str) -> ReplyToken | None:
        return self._tokens.get(token)

    def has_lapsed(self, token: str) -> bool:
        """Whether a token that LINE gave ran out before anything used it."""
        known = self._tokens.get(token)
        return known is not None and not known.used and self._clock.monotonic() >= known.until

    def spend(self, token: str) -> ReplyToken:
        known = self._tokens.get(token)
        if known is None or known.used or self._clock.monotonic() >= known.until:
            raise errors.invalid_reply_token()
        known.used = True
        return known


KEY_SECONDS = 24 * 60 * 60
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


@dataclass
class Keyed:
    """The first request with a key, and, once it is accepted, its id and the sent messages."""

    endpoint: str
    body: Any
    request_id: str | None = None
    sent_messages: Sequence[dict[str, str]] = ()


class RetryKeys:
    """The newest 400,000 keys of all endpoints together, each for the 24 hours after its first
    request. Callers hold the simulator's lock.

    A refused call is not recorded, so its key stays valid. A call that ended in a 5xx or without an
    answer binds its key to that request.
    """

    def __init__(self, clock: Clock) -> None:
        self._known: Lasting[Keyed] = Lasting(KEY_SECONDS, clock, limit=400_000)

    def find(self, key: str) -> Keyed | None:
        """Raises LineError if the key is not a UUID."""
        if not UUID.fullmatch(key):
            raise errors.retry_key_malformed()
        return self._known.get(key.lower())

    def note(self, key: str, endpoint: str, body: Any) -> Keyed:
        """The key belongs to this request unless it came before."""
        if (known := self._known.get(key.lower())) is None:
            known = self._known[key.lower()] = Keyed(endpoint, body)
        return known
