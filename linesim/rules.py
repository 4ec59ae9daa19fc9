"""Faults by rule: which calls LINE's side misbehaves on, how often, and how.

A rule is drawn for each call that it is about, from one seeded generator, so that a run can be
repeated. The error bodies are those of LINE's own refusals (linesim.errors) where they claim to be
LINE's, and those of something on the way where they do not.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass

from linesim import errors
from linesim.calls import Call
from linesim.endpoints import BY_NAME
from linesim.errors import LineError
from linesim.faults import ANY, Fault, Outcome, Status

HTML = b"<html><head><title>502 Bad Gateway</title></head>\xff\xfe<body>\x83\x47</body></html>"


def server_error() -> Status:
    """LINE's 500."""
    return Status(500, {"message": "Internal server error"})


def html_error(status: int = 502) -> Status:
    """An error page of something on the way, which is not even UTF-8."""
    return Status(status, HTML, {"content-type": "text/html"})


def garbage(status: int = 200) -> Status:
    """A body that is no JSON under LINE's own content type; by default under a success."""
    return Status(status, b'{"sentMessages":[{"id":\x00\xff')


def too_many(retry_after: int | None = None) -> Status:
    """LINE's 429 for its rate limit, with `Retry-After` in seconds where it is given."""
    headers = {} if retry_after is None else {"retry-after": str(retry_after)}
    return _refusal(errors.rate_limited(), headers)


def unauthorized() -> Status:
    return _refusal(errors.not_authenticated("invalid token"))


def bad_request() -> Status:
    """LINE's 400 for a message that it does not take."""
    detail = {"message": "May not be empty", "property": "messages[0].text"}
    return _refusal(errors.invalid_body([detail]))


def _refusal(error: LineError, headers: dict[str, str] | None = None) -> Status:
    return Status(error.status, error.body(), headers or {})


@dataclass(frozen=True, kw_only=True)
class Rule:
    """`outcome` for calls of `endpoint` (a name of linesim.endpoints, or `*`) about `user`, with
    that probability, `count` times at most.

    `user` is a user's, group's or room's id. With `accept` LINE has done what the call asks all
    the same; a success always has, and a 4xx never. Raises ValueError for what cannot be.
    """

    outcome: Outcome
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
        if self.accept and isinstance(self.outcome, Status) and 400 <= self.outcome.status < 500:
            raise ValueError(f"LINE answers no {self.outcome.status} to what it has done")

    @property
    def accepts(self) -> bool:
        """Whether LINE does what the call asks; of a late answer, whether before the wait."""
        success = isinstance(self.outcome, Status) and self.outcome.status < 300
        return self.accept or success

    def is_about(self, call: Call) -> bool:
        return self.endpoint in (ANY, call.endpoint) and (
            self.user is None or self.user in _addressed(call)
        )


def _addressed(call: Call) -> Iterable[str | None]:
    match call.body:
        case {"to": [*to]}:
            return to
    return (call.chat_id, call.user_id)


@dataclass
class _Standing:
    rule: Rule
    left: int | None


class Rules:
    """The rules that stand, in the order in which they were added. Whoever calls holds the
    simulator's lock.
    """

    def __init__(self) -> None:
        self._standing: list[_Standing] = []
        self._random = random.Random(0)

    def add(self, rules: Iterable[Rule], *, seed: int) -> None:
        """Adds the rules, and begins the draws of all anew from this seed."""
        self._random = random.Random(seed)
        self._standing += [_Standing(rule, rule.count) for rule in rules]

    def take(self, call: Call) -> Fault | None:
        """What the call meets: the first rule about it whose draw falls on it, used up by one."""
        for standing in self._standing:
            rule = standing.rule
            if standing.left == 0 or not rule.is_about(call):
                continue
            if self._random.random() < rule.probability:
                if standing.left is not None:
                    standing.left -= 1
                return Fault(rule.outcome, rule.accepts, times=1)
        return None

    def clear(self) -> None:
        self._standing.clear()
