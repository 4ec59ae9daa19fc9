"""The checker's result for one run: figures and findings, also as text."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """An event whose texts were said too often, or not; `calls` are the numbers of the calls that
    said them.
    """

    event_id: str
    chat: str
    texts: tuple[str, ...]
    calls: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.event_id} in {self.chat}" + _numbers(self.calls)


@dataclass(frozen=True)
class Disorder:
    """`later` was first sent after `earlier` had its 2xx, and yet was answered before it."""

    chat: str
    earlier: str
    later: str

    def __str__(self) -> str:
        return f"{self.later} before {self.earlier} in {self.chat}"


@dataclass(frozen=True)
class Pair:
    """Two calls that should not be as they are; `seconds` between their starts."""

    host: str
    first: int
    second: int
    seconds: float

    def __str__(self) -> str:
        return f"calls {self.first} and {self.second}, {self.seconds:.4f} s apart"


@dataclass(frozen=True)
class TimerFinding:
    """A timer that fired wrongly; `at` is Unix time, None if it never fired."""

    chat: str
    text: str
    due: float
    at: float | None
    calls: tuple[int, ...] = ()

    def __str__(self) -> str:
        off = "never" if self.at is None else f"{self.at - self.due:+.3f} s"
        return f"{off} in {self.chat}" + _numbers(self.calls)


@dataclass(frozen=True)
class Missed:
    """A chat for which LINE took a message that never arrived there, in this call or a later one.

    `reason` is one of linesim.model.world.Unreached.
    """

    chat: str
    reason: str
    call: int

    def __str__(self) -> str:
        return f"{self.chat} (call {self.call}: {self.reason})"


def _numbers(calls: tuple[int, ...]) -> str:
    return f" (calls {', '.join(map(str, calls))})" if calls else ""


# The problems of a run, as texts; the names are those of the report.
PROBLEMS = {
    "answered_twice": "answered twice",
    "unanswered": "accepted and never answered",
    "order_violations": "answered out of order",
    "too_close": "calls that started too close together",
    "overlapping": "calls that began before the one before was answered",
    "used_tokens_again": "used reply tokens used again without need",
    "reused_keys": "retry keys used again for another body",
    "timers_early": "timers early",
    "timers_late": "timers late",
    "timers_missing": "timers that never came",
    "timers_double": "timers that came twice",
    "never_reached": "addressed and never reached",
}


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of linesim.judge.checker.check. `seconds`: first webhook to last call.

    `unanswered` are of the accepted events. `answered_unaccepted` were stored although their
    confirmation was lost. `excepted` are doubled and allowed to be: a reply of unknown outcome that
    could not be repeated within its token's minute. `used_tokens` counts all calls with a token
    that LINE had accepted before; `used_tokens_again` are the ones whose caller knew it.
    `replies_too_late` counts calls that LINE refused for a token that had expired unused;
    `lapsed_tokens` are the events that a push or multicast answered after that. `paid_messages` is
    LINE's count for the month's quota: the users reached, regardless of the number of message
    objects. `never_reached` are chats for which LINE accepted a message that no call delivered,
    such as a multicast's member who is not a friend; `closed_chats` are those that their user
    closed to the bot. `closest_starts` is in seconds, by host of LINE's. `calls` is by endpoint,
    then by status; "closed" is a call without an answer.
    """

    events_sent: int
    accepted: int
    refused: int
    answered_once: int
    answered_unaccepted: int
    answered_twice: tuple[Finding, ...] = ()
    unanswered: tuple[Finding, ...] = ()
    excepted: tuple[Finding, ...] = ()
    order_violations: tuple[Disorder, ...] = ()
    closest_starts: Mapping[str, float] = field(default_factory=dict)
    too_close: tuple[Pair, ...] = ()
    overlapping: tuple[Pair, ...] = ()
    used_tokens: int = 0
    used_tokens_again: tuple[Pair, ...] = ()
    reused_keys: tuple[Pair, ...] = ()
    timers_early: tuple[TimerFinding, ...] = ()
    timers_late: tuple[TimerFinding, ...] = ()
    timers_missing: tuple[TimerFinding, ...] = ()
    timers_double: tuple[TimerFinding, ...] = ()
    never_reached: tuple[Missed, ...] = ()
    closed_chats: tuple[Missed, ...] = ()
    paid_messages: int = 0
    replies_too_late: int = 0
    lapsed_tokens: tuple[Finding, ...] = ()
    calls: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    forgotten: int = 0
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.problems()

    @property
    def calls_by_endpoint(self) -> dict[str, int]:
        """All calls, whatever became of them."""
        return {endpoint: sum(statuses.values()) for endpoint, statuses in self.calls.items()}

    @property
    def calls_made(self) -> int:
        return sum(self.calls_by_endpoint.values())

    def problems(self) -> list[str]:
        """Each kind of problem in one sentence, with how many there are and the first few."""
        found = [
            f"{len(findings)} {words}: {_examples(findings)}"
            for name, words in PROBLEMS.items()
            if (findings := getattr(self, name))
        ]
        if self.forgotten:
            found.append(f"{self.forgotten} records were forgotten, so nothing is proved")
        return found

    def as_document(self) -> dict[str, Any]:
        """The whole report as JSON."""
        return {
            **asdict(self),
            "calls_made": self.calls_made,
            "calls_by_endpoint": self.calls_by_endpoint,
            "ok": self.ok,
            "problems": self.problems(),
        }


def _examples(findings: tuple[Any, ...]) -> str:
    shown = "; ".join(str(each) for each in findings[:MOST_EXAMPLES])
    return shown + (" ..." if len(findings) > MOST_EXAMPLES else "")
