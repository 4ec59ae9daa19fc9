"""Authentication: a password opens a session, and scripts send a token in a header.

Sessions are kept in memory, each under the digest of its cookie. They end with the process, and
therefore with a change of the password, which is read at the start.

The rate of guesses is limited by turns, not by refusals: passwords are checked at a fixed rate for
each address and for all addresses together. Wrong passwords delay others and never lock them out. A
browser that has logged in before, or a network that has sent the token, has turns of its own.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from hashlib import scrypt, sha256
from ipaddress import IPv6Address, ip_address, ip_network

SESSION_SECONDS = 12 * 3600.0
MOST_SESSIONS = 200
# The longest name for the audit, in characters.
MOST_NAME = 40
SCRIPT = "the token"
# 400 days, the longest that browsers keep a cookie (RFC 6265bis).
BROWSER_SECONDS = 400 * 86_400.0


@dataclass(frozen=True)
class Rate:
    """`burst` checks at once, then one each `seconds`."""

    burst: int
    seconds: float


# At most 172,800 guesses a day, from all addresses.
OF_EVERYBODY = Rate(10, 0.5)
OF_A_LANE = Rate(5, 2.0)
# The wait for a check: at most 20 s at the rate of a lane, 25 s at the common rate.
MOST_WAITING_OF_A_LANE = 10
MOST_WAITING = 50
# A lane counts as served lately for so long. Other lanes come before it.
LATELY_SECONDS = 60.0


@dataclass(frozen=True)
class Visitor:
    """A visitor. `form` is the secret in the visitor's forms; a script needs none."""

    name: str
    """For the audit; empty while it is not known."""
    form: str
    by_token: bool = False


@dataclass(frozen=True)
class _LoginSession:
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
        self._anybody = Visitor("", form=secrets.token_urlsafe(24))
        self._lock = threading.Lock()
        # Under _lock, oldest first.
        self._sessions: OrderedDict[str, _LoginSession] = OrderedDict()
        # Networks that have sent the token, oldest first; belongs to the event loop.
        self._networks = dict[str, None]()

    @property
    def asks(self) -> bool:
        """Whether a visitor needs a password or the token."""
        return bool(self._password or self._token)

    @property
    def takes_passwords(self) -> bool:
        """Whether people can log in with a password."""
        return self._password is not None

    def visitor(self, cookie: str | None, authorization: str | None) -> Visitor | None:
        """Return the visitor; None if the visitor has to log in first."""
        if not self.asks:
            return self._anybody
        if self.is_token(authorization or ""):
            return Visitor(SCRIPT, form="", by_token=True)
        with self._lock:
            session = self._sessions.get(_digest(cookie or ""))
            if session is None or session.until <= self._monotonic():
                return None
            return session.visitor

    def is_password(self, given: str) -> bool:
        """Return whether this is the password. Call it only after a turn."""
        return _same(self._password, given)

    def is_token(self, authorization: str) -> bool:
        """Return whether an Authorization header has the token. Call it only after a turn."""
        scheme, _, given = authorization.partition(" ")
        return scheme.lower() == "bearer" and _same(self._token, given.strip())

    def is_guess(self, authorization: str) -> bool:
        """Return whether a header has to wait for a turn because it may be a guess at the token."""
        return self._token is not None and authorization.lower().startswith("bearer ")

    def log_in(self, name: str) -> str:
        """Open a session and return its cookie."""
        cookie = secrets.token_urlsafe(32)
        visitor = Visitor(name_from(name), form=secrets.token_urlsafe(24))
        with self._lock:
            self._sessions[_digest(cookie)] = _LoginSession(
                visitor, until=self._monotonic() + SESSION_SECONDS
            )
            while len(self._sessions) > MOST_SESSIONS:
                self._sessions.popitem(last=False)
        return cookie

    def log_out(self, cookie: str | None) -> None:
        """End the session, also for copies of its cookie."""
        with self._lock:
            self._sessions.pop(_digest(cookie or ""), None)

    def new_browser(self) -> str:
        """Return the cookie that identifies a browser that has logged in, also after a restart."""
        name = secrets.token_urlsafe(12)
        return f"{name}.{self._sign(name)}"

    def lane(self, address: str, browser: str = "") -> Lane:
        """Return the lane of an attempt; `browser` is the cookie of `new_browser`."""
        name, _, signature = browser.partition(".")
        # Without a password the signature has no secret.
        may_be_ours = self.takes_passwords and bool(name)
        if may_be_ours and hmac.compare_digest(signature.encode(), self._sign(name).encode()):
            return Lane(f"browser {name}", known=True)
        network = network_of(address)
        return Lane(network, known=network in self._networks)

    def know(self, lane: Lane) -> None:
        """Serve the network of a script before strangers, because it has sent the token."""
        self._networks[lane.name] = None
        if len(self._networks) > MOST_SESSIONS:
            del self._networks[next(iter(self._networks))]

    def _sign(self, name: str) -> str:
        return hmac.new(self._browser_key, name.encode(), sha256).hexdigest()

    @cached_property
    def _browser_key(self) -> bytes:
        """The key of the signatures; it changes with the password.

        It is slow to compute, so a stolen cookie does not reveal the password.
        """
        secret = (self._password or "").encode()
        return scrypt(secret, salt=b"linedesk_browser", n=2**14, r=8, p=1)


@dataclass(frozen=True)
class Lane:
    """A source of attempts that share their turns: a network, or a known browser."""

    name: str
    known: bool = False


_ALL = Lane("all addresses")


@dataclass(frozen=True, eq=False)
class _Waiting:
    lane: Lane
    turn: asyncio.Future[bool]


class Turns:
    """The turns for checking passwords; belongs to the event loop.

    Known browsers are served first, then lanes that were not served lately, then the lane with the
    longest time since its last turn. Where too many attempts wait, one of the lane with the most
    waiting attempts is refused.
    """

    def __init__(
        self,
        *,
        of_everybody: Rate = OF_EVERYBODY,
        of_a_lane: Rate = OF_A_LANE,
        most_waiting_of_a_lane: int = MOST_WAITING_OF_A_LANE,
    ) -> None:
        self._of_everybody = of_everybody
        self._of_a_lane = of_a_lane
        self._most_waiting_of_a_lane = most_waiting_of_a_lane
        # Oldest first.
        self._waiting: list[_Waiting] = []
        # When the checks of a lane, or of _ALL, are available again, by the loop's clock.
        self._used: dict[Lane, float] = {}
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, lane: Lane) -> bool:
        """Wait for a turn; False where too many wait and this attempt is refused."""
        one = _Waiting(lane, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        self._serve()
        if crowd := self._crowd(lane):
            self._answer(secrets.choice(crowd), False)
        try:
            return await one.turn
        finally:
            self._waiting = [other for other in self._waiting if other is not one]

    def give_back(self, lane: Lane) -> None:
        """Return the turn of a right password or token: it does not count."""
        for used, rate in ((lane, self._of_a_lane), (_ALL, self._of_everybody)):
            if used in self._used:
                self._used[used] -= rate.seconds
        self._serve()

    def _crowd(self, lane: Lane) -> list[_Waiting]:
        """Return the attempts of which one is refused; the newest may be among them."""
        same = [one for one in self._waiting if one.lane == lane]
        if len(same) > self._most_waiting_of_a_lane:
            return same
        if len(self._waiting) <= MOST_WAITING:
            return []
        unknown = [one for one in self._waiting if not one.lane.known] or self._waiting
        count = Counter(one.lane for one in unknown)
        most = max(count.values())
        return [one for one in unknown if count[one.lane] == most]

    def _serve(self) -> None:
        """Serve all attempts that have a turn, and plan the next call."""
        now = asyncio.get_running_loop().time()
        self._used = {one: at for one, at in self._used.items() if at > now - LATELY_SECONDS}
        while self._waiting and (seconds := self._seconds_to_next(now)) <= 0:
            ready = [
                one for one in self._waiting if self._wait(one.lane, self._of_a_lane, now) <= 0
            ]
            first = min(ready, key=lambda one: (not one.lane.known, self._used.get(one.lane, 0.0)))
            for used, rate in ((first.lane, self._of_a_lane), (_ALL, self._of_everybody)):
                self._used[used] = max(now, self._used.get(used, now)) + rate.seconds
            self._answer(first, True)
        if self._timer is not None:
            self._timer.cancel()
        if self._waiting:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._serve)

    def _seconds_to_next(self, now: float) -> float:
        lanes = {one.lane for one in self._waiting}
        soonest = min(self._wait(lane, self._of_a_lane, now) for lane in lanes)
        return max(soonest, self._wait(_ALL, self._of_everybody, now))

    def _wait(self, lane: Lane, rate: Rate, now: float) -> float:
        """Return the seconds until the lane has a turn."""
        return self._used.get(lane, now) - now - rate.seconds * (rate.burst - 1)

    def _answer(self, one: _Waiting, served: bool) -> None:
        self._waiting.remove(one)
        if not one.turn.done():
            one.turn.set_result(served)


def name_from(typed: str) -> str:
    """Return a typed name for the audit, on one line and bounded."""
    return " ".join("".join(c if c.isprintable() else " " for c in typed).split())[:MOST_NAME]


def is_form_of(visitor: Visitor, given: str) -> bool:
    """Return whether a form came from a page of this visitor."""
    return visitor.by_token or hmac.compare_digest(visitor.form.encode(), given.encode())


def network_of(address: str) -> str:
    """Return the network of one person: an IPv4 address, an IPv6 /64, or this machine."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address
    parsed = getattr(parsed, "ipv4_mapped", None) or parsed
    if parsed.is_loopback:
        return "this machine"
    if isinstance(parsed, IPv6Address):
        return str(ip_network((parsed, 64), strict=False))
    return str(parsed)


def _digest(text: str) -> str:
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _same(expected: str | None, given: str) -> bool:
    """Compare in constant time, also where nothing is expected."""
    return hmac.compare_digest(expected or _digest(""), _digest(given)) and expected is not None
