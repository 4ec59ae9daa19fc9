"""The record of every call that reached the simulator, with the time its request line arrived.

Kept are the newest million calls, fewer where their bodies together pass 256 MB.
"""

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from linesim.model.world import Unreached

MOST_CALLS = 1_000_000
API_HOST = "api.line.me"
DATA_HOST = "api-data.line.me"
DATA_ENDPOINTS = {"content", "preview", "transcoding", "menu_image", "set_menu_image"}
MOST_BODY_BYTES = 256 * 1024 * 1024


@dataclass(slots=True)
class Call:
    """One call. `started` and `finished` are seconds of time.monotonic(), `at` is Unix time.

    `endpoint` is a name of linesim.model.endpoints or "unknown". `query` has a repeated parameter's
    values joined by commas. `accepted` is whether LINE carried out the call, regardless of the
    answer, and `accepted_at` when; `status` is None while the call is under way, and if the
    connection was closed; `message` and `details` are a refusal's. `connection` numbers the
    connection that it came by; `hung_up` is when the caller closed that before the answer.
    `chat_id`, `user_id` and `event_id` name its target; for a reply, those of its token. `paid` is
    the number of users that count toward the month's quota. `unreached` are the chats that an
    accepted call did not reach, each with the reason. `token_lapsed`: a reply with a token that
    expired unused.
    """

    number: int
    started: float
    at: float
    endpoint: str
    method: str
    path: str
    request_id: str
    query: Mapping[str, str] = field(default_factory=dict)
    retry_key: str | None = None
    body: Any = field(default=None, repr=False)
    body_bytes: int = 0
    status: int | None = None
    message: str | None = None
    details: Sequence[Mapping[str, str]] = ()
    accepted: bool = False
    accepted_at: float | None = None
    connection: int | None = None
    hung_up: float | None = None
    fault: str | None = None
    chat_id: str | None = None
    user_id: str | None = None
    event_id: str | None = None
    accepted_request_id: str | None = None
    retry_differs: bool = False
    paid: int = 0
    unreached: tuple[tuple[str, Unreached], ...] = ()
    token_lapsed: bool = False
    finished: float | None = None

    @property
    def to(self) -> list[str]:
        """The chats that its body names, or its token."""
        match self.body:
            case {"to": [*to]}:
                return to
        return [] if self.chat_id is None else [self.chat_id]

    @property
    def host(self) -> str:
        """The host of LINE's that the call would have gone to."""
        return DATA_HOST if self.endpoint in DATA_ENDPOINTS else API_HOST


class Calls:
    """Callers hold the simulator's lock."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._most = most
        self._calls: deque[Call] = deque()
        self._body_bytes = 0
        self._next = 1

    def begin(self, **known: Any) -> Call:
        call = Call(number=self._next, **known)
        self._next += 1
        self._calls.append(call)
        self._forget()
        return call

    def note_body(self, call: Call, size: int) -> None:
        call.body_bytes = size
        self._body_bytes += size
        self._forget()

    def _forget(self) -> None:
        calls = self._calls
        while len(calls) > self._most or (self._body_bytes > MOST_BODY_BYTES and len(calls) > 1):
            self._body_bytes -= calls.popleft().body_bytes

    @property
    def count(self) -> int:
        """All calls so far, also those no longer kept."""
        return self._next - 1

    def since(self, number: int = 0) -> list[Call]:
        """The calls after the one of this number."""
        return [call for call in self._calls if call.number > number]

    def closest_starts(self, after: int = 0) -> float | None:
        """Seconds between the two calls to one of LINE's hosts that started closest together.

        None with fewer than two after the call of that number.
        """
        hosts = by_host(self.since(after))
        return min(closest_of(hosts).values(), default=None)


def by_host(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """The calls to each of LINE's hosts, in order of their starts."""
    hosts: defaultdict[str, list[Call]] = defaultdict(list)
    for call in sorted(calls, key=lambda call: (call.started, call.number)):
        hosts[call.host].append(call)
    return hosts


def closest_of(hosts: Mapping[str, Sequence[Call]]) -> dict[str, float]:
    """Seconds between the two calls that started closest together, by host with at least two."""
    return {
        host: min(later.started - first.started for first, later in pairwise(calls))
        for host, calls in hosts.items()
        if len(calls) > 1
    }
