"""Who may: a password makes a session, a token stands in a header, neither leaves this module.

Sessions are kept in memory, each under the digest of what its cookie holds. So they end with the
process, and thereby with a change of the password, which is read at the start.
"""

from __future__ import annotations

import hmac
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from ipaddress import IPv6Address, ip_address, ip_network

SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 200
# Failed logins of one address: so many within the time, then none is looked at.
MOST_FAILURES = 5
FAILURE_SECONDS = 300.0
MOST_ADDRESSES = 2_000
# What a person may call himself for the audit.
MOST_NAME = 40
NOBODY = "somebody on this machine"
SCRIPT = "the token"


@dataclass(frozen=True)
class Visitor:
    """Who asks. `form` is what his forms must bring along; a script with the token needs none."""

    name: str
    form: str
    by_token: bool = False


@dataclass(frozen=True)
class _Session:
    visitor: Visitor
    until: float


class Doorkeeper:
    """Knows the secrets and the sessions; every method may be called from any thread."""

    def __init__(
        self,
        *,
        password: str = "",
        token: str = "",
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._password = _digest(password) if password else None
        self._token = _digest(token) if token else None
        self._monotonic = monotonic
        self._anybody = Visitor(NOBODY, form=secrets.token_urlsafe(24))
        self._lock = threading.Lock()
        # Both under _lock, oldest first.
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._failures: OrderedDict[str, deque[float]] = OrderedDict()

    @property
    def asks(self) -> bool:
        """Whether anybody has to show something."""
        return bool(self._password or self._token)

    @property
    def takes_passwords(self) -> bool:
        """Whether a person can log in."""
        return self._password is not None

    def visitor(self, cookie: str | None, authorization: str | None) -> Visitor | None:
        """Who that is; None if he has to log in first."""
        if not self.asks:
            return self._anybody
        scheme, _, given = (authorization or "").partition(" ")
        if scheme.lower() == "bearer" and _same(self._token, given.strip()):
            return Visitor(SCRIPT, form="", by_token=True)
        with self._lock:
            session = self._sessions.get(_digest(cookie or ""))
            if session is None or session.until <= self._monotonic():
                return None
            return session.visitor

    def log_in(self, password: str, *, name: str, address: str) -> str | None:
        """The cookie of a new session; None if the password is wrong or `wait_seconds` not over."""
        right = _same(self._password, password)
        with self._lock:
            if self._wait_seconds(address) > 0:
                return None
            if not right:
                self._note_failure(address)
                return None
            cookie = secrets.token_urlsafe(32)
            called = " ".join(name.split())[:MOST_NAME] or "operator"
            visitor = Visitor(called, form=secrets.token_urlsafe(24))
            self._sessions[_digest(cookie)] = _Session(
                visitor, until=self._monotonic() + SESSION_SECONDS
            )
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
            return cookie

    def log_out(self, cookie: str | None) -> None:
        """End the session, whoever else has a copy of its cookie."""
        with self._lock:
            self._sessions.pop(_digest(cookie or ""), None)

    def wait_seconds(self, address: str) -> float:
        """How long nobody of this address can log in, after too many failures; 0: he can."""
        with self._lock:
            return self._wait_seconds(address)

    def _wait_seconds(self, address: str) -> float:
        failures = self._failures.get(network_of(address), deque())
        if len(failures) < MOST_FAILURES:
            return 0.0
        return max(0.0, failures[0] + FAILURE_SECONDS - self._monotonic())

    def _note_failure(self, address: str) -> None:
        failures = self._failures.setdefault(network_of(address), deque(maxlen=MOST_FAILURES))
        failures.append(self._monotonic())
        self._failures.move_to_end(network_of(address))
        while len(self._failures) > MOST_ADDRESSES:
            self._failures.popitem(last=False)


def is_form_of(visitor: Visitor, given: str) -> bool:
    """Whether a form came from a page that this visitor was shown."""
    return visitor.by_token or hmac.compare_digest(visitor.form.encode(), given.encode())


def network_of(address: str) -> str:
    """What one person has: an IPv4 address, or the /64 of an IPv6 one."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return str(ip_network((parsed, 64), strict=False))
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _same(expected: str | None, given: str) -> bool:
    """In constant time; a digest of something is compared even where nothing is expected."""
    return hmac.compare_digest(expected or _digest(""), _digest(given)) and expected is not None
