"""Authentication: HTTP Basic for people, whose user name is the audit's name, a token for scripts.

The rate of guesses is limited by one lock: a wrong guess holds it for half a second. Guesses delay
other first logins and never lock them out. A name and password that were right once since the start
of the console pass without the lock, as does the token.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
from hashlib import sha256

log = logging.getLogger(__name__)

# The longest name for the audit, in characters.
MOST_NAME = 40
SCRIPT = "the token"
# At most 172,800 guesses a day, from all addresses.
GUESS_SECONDS = 0.5
# A guess waits for the lock at most 25 s; more guesses are refused.
MOST_WAITING = 50
MOST_KNOWN = 1_000


class TooManyGuesses(Exception):
    """Too many guesses wait for the lock."""


class Doorkeeper:
    """Knows the secrets, and who has shown them; belongs to the event loop."""

    def __init__(
        self, *, password: str = "", token: str = "", guess_seconds: float = GUESS_SECONDS
    ) -> None:
        self._password = _digest(password) if password else None
        self._token = _digest(token) if token else None
        self._guess_seconds = guess_seconds
        # The digests of the right headers since the start.
        self._known = set[str]()
        self._lock = asyncio.Lock()
        self._waiting = 0

    @property
    def asks(self) -> bool:
        """Whether a visitor needs a password or the token."""
        return bool(self._password or self._token)

    @property
    def takes_names(self) -> bool:
        """Whether people can give their name: with the password, or where none is needed."""
        return self._password is not None or not self.asks

    async def visitor(self, authorization: str, *, address: str) -> str | None:
        """Return the visitor's name for the audit, by an Authorization header (RFC 7617, RFC 6750).

        It is empty where none is needed. None: the credentials are missing or wrong. Raises
        TooManyGuesses.
        """
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() == "bearer":
            name, secret, expected = SCRIPT, given.strip(), self._token
        else:
            name, secret = _name_and_password(given) if scheme.lower() == "basic" else ("", "")
            expected = self._password
        if not self.asks:
            return name
        if expected is None or not name:
            return None
        if _digest(authorization) in self._known:
            return name
        if not await self._is_right(expected, secret):
            return None
        if len(self._known) < MOST_KNOWN:
            self._known.add(_digest(authorization))
        log.info("logged in by=%s address=%s", name, address)
        return name

    async def _is_right(self, expected: str, secret: str) -> bool:
        if self._waiting >= MOST_WAITING:
            raise TooManyGuesses
        self._waiting += 1
        try:
            async with self._lock:
                # In constant time.
                is_right = hmac.compare_digest(expected, _digest(secret))
                if not is_right:
                    await asyncio.sleep(self._guess_seconds)
                return is_right
        finally:
            self._waiting -= 1


def _name_and_password(given: str) -> tuple[str, str]:
    """Return the name, on one line and bounded, and the password; both empty where unreadable."""
    try:
        name, _, password = base64.b64decode(given, validate=True).decode().partition(":")
    except ValueError:
        return "", ""
    words = "".join(c if c.isprintable() else " " for c in name).split()
    return " ".join(words)[:MOST_NAME], password


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
