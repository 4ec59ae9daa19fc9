"""LINE's misbehaviour, by rules.

A rule states the calls that fail, how often, and how. It also states whether the call is accepted
nevertheless, which makes the outcome unknown to the caller. A rule with a probability is drawn for
each matching call from one seeded generator, so that a run can be repeated. Error bodies are those
of LINE's refusals (linesim.model.errors), or those of a proxy on the way.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from linemessages import Finding, values
from linesim.model import errors
from linesim.model.calls import Call
from linesim.model.endpoints import BY_NAME
from linesim.model.errors import LineError

ANY = "*"


@dataclass(frozen=True)
class Status:
    """Answer with this status and body; LINE's 500 body unless another is given."""

    status: int
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Close:
    """Close the connection without a byte of answer."""


@dataclass(frozen=True)
class Late:
    """Answer as usual, this many seconds late."""

    seconds: float


@dataclass(frozen=True)
class Cut:
    """Answer as usual, but close the connection after this number of bytes of the body."""

    after_bytes: int


@dataclass(frozen=True)
class Drip:
    """Answer as usual, but the body in pieces of this size, with a pause after each."""

    piece_bytes: int
    seconds: float


@dataclass(frozen=True)
class BadMember:
    """Answer LINE's 400 that names one of the recipients: the rule's user, else the first one."""

    def status(self, call: Call, user: str | None) -> Status:
        place = call.to.index(user) if user in call.to else 0
        return _refusal(errors.invalid_property(f"to[{place}]"))


Outcome = Status | Close | Late | Cut | Drip


HTML = b"<html><head><title>502 Bad Gateway</title></head>\xff\xfe<body>\x83\x47</body></html>"


def _refusal(error: LineError, headers: dict[str, str] | None = None) -> Status:
    return Status(error.status, error.body(), headers or {})


# LINE's own answers.
server_error = partial(Status, 500, {"message": "Internal server error"})
monthly_limit = partial(_refusal, errors.monthly_limit())
too_many_to_one = partial(_refusal, errors.too_many_to_one())
too_many_at_once = partial(_refusal, errors.too_many_at_once())
unauthorized = partial(_refusal, errors.not_authenticated("invalid token"))


def html_error(status: int = 502) -> Status:
    """An error page of a proxy on the way, which is not UTF-8."""
    return Status(status, HTML, {"content-type": "text/html"})


def garbage(status: int = 200) -> Status:
    """A body that is not JSON, with LINE's content type; by default with a success status."""
    return Status(status, b'{"sentMessages":[{"id":\x00\xff')


def too_many(retry_after: int | None = None) -> Status:
    """LINE's 429 for its rate limit, with `Retry-After` in seconds if given."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return _refusal(errors.rate_limited(), headers)


def bad_request(property_: str = "messages[0].text") -> Status:
    """LINE's 400 for an invalid message, with the name of the wrong property."""
    return _refusal(errors.invalid_body(Finding(values.EMPTY, property_)))


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`outcome` for calls of `endpoint` (a name of linesim.model.endpoints, or `*`) about `user`,
    with that probability, `count` times at most.

    `user` is a user's, group's or room's id. With `accept` LINE has carried out the call
    nevertheless; with a success status always, with a 4xx never. Raises ValueError for impossible
    rules.
    """

    outcome: Outcome | BadMember
    endpoint: str = ANY
    user: str | None = None
    probability: float = 1.0
    count: int | None = None
    accept: bool = False

    def __post_init__(self) -> None:
        if self.endpoint != ANY and self.endpoint not in BY_NAME:
            raise ValueError(f"no endpoint {self.endpoint!r}; there are {', '.join(BY_NAME)}")
        if not 0 <= self.probability <= 1:
            raise ValueError(f"a probability is between 0 and 1, not {self.probability}")
        if self.count is not None and self.count < 1:
            raise ValueError(f"a count is at least 1, not {self.count}")
        status = self.outcome.status if isinstance(self.outcome, Status) else None
        status = 400 if isinstance(self.outcome, BadMember) else status
        # But 409, by which it says that it did.
        if self.accept and status is not None and 400 <= status < 500 and status != 409:
            raise ValueError(f"LINE does not answer {status} to a call that it carried out")

    @property
    def accepts(self) -> bool:
        """Whether LINE carries out the call before the outcome. After a late answer's wait it does
        so in any case; with the others only the outcome happens.
        """
        success = isinstance(self.outcome, Status) and self.outcome.status < 300
        return self.accept or success

    @property
    def invites_retry(self) -> bool:
        """Whether the caller gets a 5xx or no answer, after which LINE's documentation says to
        retry.
        """
        broken = isinstance(self.outcome, Status) and self.outcome.status >= 500
        return broken or isinstance(self.outcome, Close)

    def is_about(self, call: Call) -> bool:
        is_to = self.user is None or self.user in (*call.to, call.user_id)
        return is_to and self.endpoint in (ANY, call.endpoint)


@dataclass
class _Standing:
    rule: Rule
    left: int | None


class Rules:
    """The active rules, in the order of their addition. Callers hold the simulator's lock."""

    def __init__(self) -> None:
        self._standing: list[_Standing] = []
        self._random = random.Random(0)

    def add(self, *rules: Rule) -> None:
        self._standing += [_Standing(rule, rule.count) for rule in rules]

    def draw_anew(self, seed: int) -> None:
        """Restarts the draws of all rules from this seed."""
        self._random = random.Random(seed)

    def take(self, call: Call) -> Rule | None:
        """The first matching rule whose draw succeeds; uses it up by one."""
        for standing in self._standing:
            rule = standing.rule
            if not rule.is_about(call) or not self._falls(rule):
                continue
            if standing.left is not None:
                standing.left -= 1
                if standing.left == 0:
                    self._standing.remove(standing)
            if isinstance(rule.outcome, BadMember):
                return replace(rule, outcome=rule.outcome.status(call, rule.user))
            return rule
        return None

    def _falls(self, rule: Rule) -> bool:
        # A rule for every call draws none, so that it does not shift the draws of others.
        return rule.probability == 1 or self._random.random() < rule.probability

    def clear(self) -> None:
        self._standing.clear()
