"""The metrics of a worker: its handlers, and its calls of LINE by the template of their path."""

from __future__ import annotations

import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge

from linedesk.runtime.metrics import SECONDS_BUCKETS, Figure, Histogram, Measured, Values
from linedesk.store.records.calls import MULTICAST, PUSH

OTHER = "other"
# The words in the paths of LINE's Messaging API reference.
_REFERENCE = """
    v2 bot acquire aggregation alias all audienceGroup batch broadcast bulk byFile channel chat
    click close consumption content control count coupon daily delivery demographic detach
    endpoint event followers group ids imp info insight leave link linkToken list loading
    markAsRead member members membership message multicast narrowcast pnp preview profile
    progress push quota release reply richmenu room shared start subscription summary templated
    test transcoding unlink updateDescription upload user users validate webhook
    """
_WORDS = frozenset(_REFERENCE.split())
_FILLED_IN = re.compile(r"\{\w*\}")


def endpoint_of(path: str) -> str:
    """Return the label of a path or its template; OTHER for paths outside LINE's reference.

    A bot may call any path with an id in it, and each would be a series of its own.
    """
    template = _FILLED_IN.sub("{}", path)
    parts = template.strip("/").split("/")
    if parts[0] == "v2" and all(part == "{}" or part in _WORDS for part in parts):
        return template
    return OTHER


# The gate's use is measured over this many seconds.
USE_SECONDS = 10.0
# The labels of pushes and multicasts.
COUNTED = {PUSH: "push", MULTICAST: "multicast"}
# LINE takes up to five messages a call and 500 people a multicast.
SENDS_BUCKETS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 50.0, 100.0, 500.0)
GIVEN_UP = ("quota", "late", "expired")
# Readings closer together than this add no information.
LEAST_LOOK_SECONDS = 0.1
NO_STATUS = "none"


@dataclass(frozen=True)
class GateMetrics:
    """The counts of one host's gate."""

    turns: Any
    """A counter: calls that got their turn."""
    wait: Any
    """A histogram of seconds: from entering the queue to the start of the turn."""


class WorkerMetrics:
    """The metrics of one worker, on a registry; without one, on a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self._registry = CollectorRegistry() if registry is None else registry
        self._jobs()
        self._outbox()
        self._line()

    def _jobs(self) -> None:
        self.wait_seconds = self._seconds(
            "wait", "From an event's arrival to the first start of its handler."
        )
        self.handler_seconds = self._seconds("handler", "How long the bot's handlers run.")
        self.decided = self._each(
            "decided_events",
            "Events decided: recorded with effects, finished without any, found applied by a "
            "predecessor, or ended without a handler (taken back by the sender, or overtaken).",
            outcome=("recorded", "finished", "applied", "unheard"),
        )
        self.failed = self._each(
            "failed_handlers",
            "Handlers that raised an error, or did not return in time.",
            kind=("error", "timeout"),
        )

    def _outbox(self) -> None:
        self.dead_letters = self._each(
            "dead_letters",
            "Effects and events that were given up, each with its cause in deadletters.",
            kind=("event", "send", "timer"),
        )
        self.given_up = self._each(
            "given_up_sends",
            "Sends given up because the month's messages are used up, as late replies over their "
            "daily limit, or because they expired; each is a dead letter, too.",
            cause=GIVEN_UP,
        )
        self.kept_letters = self._measured(
            Figure(
                "dead_letters_kept", "Dead letters that are stored, also those replayed lately."
            ),
            Figure("dead_letters_open", "Dead letters that were neither replayed nor dropped."),
        )
        self.outbox_effects = Gauge(
            "linedesk_outbox_effects",
            "Effects recorded and not yet carried out: sends and timers.",
            registry=self._registry,
        )
        self.oldest_send = Gauge(
            "linedesk_oldest_send_seconds",
            "Age of the oldest send that LINE has not accepted, since its event; 0 without one.",
            registry=self._registry,
        )
        self.send_retries = self._count("send_retries", "Sends that failed and are tried again.")
        self.unproved_replies = self._count(
            "unproved_replies",
            "Replies of unknown outcome that cannot be proved or repeated; each may have "
            "arrived twice, or not at all (REPLY_UNKNOWN).",
        )
        self.late_replies_a_day = Gauge(
            "linedesk_late_replies_a_day",
            "Late replies that one conversation may cost a day (LATE_REPLIES_A_DAY).",
            registry=self._registry,
        )
        self.late_replies_today = Gauge(
            "linedesk_late_replies_today",
            "Late replies of today, each a counted push, since the start of the process.",
            registry=self._registry,
        )
        self._ask_quota: Callable[[], Values] = dict
        Measured(
            self._registry,
            (
                Figure("quota_messages", "Messages that LINE's plan allows this month."),
                Figure(
                    "quota_used_messages",
                    "Messages of this month: LINE's count plus the sends since then.",
                ),
                Figure(
                    "quota_closed_since_seconds",
                    "Unix time since when all messages of the month are used.",
                ),
            ),
            ask=lambda: self._ask_quota(),
        )
        self.unwritten_rows = self._each(
            "unwritten_rows",
            "Rows of calls and jobs that were dropped: MongoDB was away, or too many at a time.",
            collection=("calls", "jobs"),
        )

    def _line(self) -> None:
        self._calls = Counter(
            "linedesk_calls",
            "Calls of the LINE API by the status of the answer; none: no answer came.",
            ["host", "endpoint", "status"],
            registry=self._registry,
        )
        self._call_seconds = Histogram(
            "linedesk_call_seconds",
            "How long calls of the LINE API take.",
            ["endpoint"],
            buckets=SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._call_sends = Histogram(
            "linedesk_call_sends",
            "How many sends a call that LINE accepted contained.",
            ["endpoint"],
            buckets=SENDS_BUCKETS,
            registry=self._registry,
        )
        self.counted = self._each(
            "counted_messages",
            "Messages that LINE counts for accepted calls; a push to a group or room of unknown "
            "size is one.",
            kind=("push", "multicast", "group"),
        )
        self.counted_today = Gauge(
            "linedesk_counted_today_messages",
            "The same since midnight in Japan, including the sends of earlier processes.",
            registry=self._registry,
        )
        self._gate_turns = self._by_host(
            Counter, "gate_turns", "Calls that got a turn at the gate."
        )
        self._gate_wait = Histogram(
            "linedesk_gate_wait_seconds",
            "From entering the gate's queue to the start of the turn.",
            ["host"],
            buckets=SECONDS_BUCKETS,
            registry=self._registry,
        )
        self._gate_use = self._by_host(
            Gauge,
            "gate_use",
            f"Share of the last {USE_SECONDS:.0f} s in which the gate was busy or kept its "
            "interval, 0 to 1.",
        )
        self._gate_waiting = self._by_host(
            Gauge, "gate_waiting", "Number of tickets that wait for a turn at the gate."
        )
        self._class_waiting = self._by_class(
            "waiting", "Number of tickets of a class that wait for a turn at the gate."
        )
        self._class_longest = self._by_class(
            "longest_seconds", "How long the first ticket of a class has waited."
        )
        self._breaker_open = self._by_host(
            Gauge, "breaker_open", "1 while LINE fails and only probes are sent."
        )
        self._breaker_pause = self._by_host(
            Gauge, "breaker_pause_seconds", "Until the next call of LINE may begin, while it fails."
        )
        self._token_refused = Gauge(
            "linedesk_token_refused",
            "1 while LINE refuses the channel access token.",
            registry=self._registry,
        )

    def called(self, host: str, path: str, status: int | None, seconds: float) -> None:
        """Count a call that has ended; `path` may have ids in it."""
        endpoint = endpoint_of(path)
        self._calls.labels(host, endpoint, NO_STATUS if status is None else str(status)).inc()
        self._call_seconds.labels(endpoint).observe(seconds)

    def sent(self, path: str, *, sends: int, people: int, is_group: bool = False) -> None:
        """Count a call whose messages LINE accepted."""
        self._call_sends.labels(endpoint_of(path)).observe(sends)
        kind = COUNTED.get(path)
        if kind is not None:
            self.counted["group" if is_group else kind].inc(people)

    def of_gate(self, host: str) -> GateMetrics:
        """Return the counts of a host's gate."""
        return GateMetrics(self._gate_turns.labels(host), self._gate_wait.labels(host))

    def watch_gate(
        self, host: str, *, used_seconds: Callable[[], float], waiting: Callable[[], int]
    ) -> None:
        """Read a gate with the figures; `used_seconds` is its total use."""
        self._gate_use.labels(host).set_function(Use(used_seconds))
        self._gate_waiting.labels(host).set_function(waiting)

    def watch_class(
        self,
        host: str,
        name: str,
        *,
        waiting: Callable[[], int],
        longest_seconds: Callable[[], float],
    ) -> None:
        """Read one of a gate's classes with the figures."""
        self._class_waiting.labels(host, name).set_function(waiting)
        self._class_longest.labels(host, name).set_function(longest_seconds)

    def watch_breaker(
        self, host: str, is_open: Callable[[], bool], *, pause_seconds: Callable[[], float]
    ) -> None:
        """Read a host's breaker with the figures."""
        self._breaker_open.labels(host).set_function(lambda: float(is_open()))
        self._breaker_pause.labels(host).set_function(lambda: round(pause_seconds(), 3))

    def watch_token(self, is_refused: Callable[[], bool]) -> None:
        """Read with the figures whether LINE refuses the access token."""
        self._token_refused.set_function(lambda: float(is_refused()))

    def watch_quota(self, ask: Callable[[], Values]) -> None:
        """Read the month's known figures with the others."""
        self._ask_quota = ask

    # Making metrics.

    def _seconds(self, name: str, words: str) -> Histogram:
        return Histogram(
            f"linedesk_{name}_seconds", words, buckets=SECONDS_BUCKETS, registry=self._registry
        )

    def _count(self, name: str, words: str) -> Counter:
        return Counter(f"linedesk_{name}", words, registry=self._registry)

    def _each(self, name: str, words: str, **label: Iterable[str]) -> Mapping[str, Counter]:
        """Return a counter for each value of a label, with 0 from the start."""
        ((of, values),) = label.items()
        counter = Counter(f"linedesk_{name}", words, [of], registry=self._registry)
        return {value: counter.labels(value) for value in values}

    def _by_host(self, kind: type[Any], name: str, words: str) -> Any:
        return kind(f"linedesk_{name}", words, ["host"], registry=self._registry)

    def _by_class(self, name: str, words: str) -> Gauge:
        labels = ["host", "class"]
        return Gauge(f"linedesk_gate_class_{name}", words, labels, registry=self._registry)

    def _measured(self, *figures: Figure) -> Measured:
        return Measured(self._registry, figures)


class Used:
    """The total time of use in seconds; under its owner's lock.

    Every time is monotonic. A use may end in the future; one that begins before that end counts
    from the end on.
    """

    def __init__(self) -> None:
        self._ended = 0.0
        self._until = -math.inf
        self._since: float | None = None

    def begin(self, now: float) -> None:
        """It is in use from now on, unless it was already."""
        if self._since is None:
            self._since = now

    def end(self, until: float) -> None:
        """It is in use until then."""
        if self._since is not None:
            until = max(until, self._until)
            self._ended += until - max(self._since, self._until)
            self._since, self._until = None, until

    def seconds(self, now: float) -> float:
        """Return the total at present."""
        to_come = max(0.0, self._until - now)
        under_way = 0.0 if self._since is None else now - max(self._since, self._until)
        return self._ended - to_come + max(0.0, under_way)


class Use:
    """The share of the last USE_SECONDS that was in use; any thread may ask.

    `used_seconds` returns the total time of use.
    """

    def __init__(
        self,
        used_seconds: Callable[[], float],
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._used_seconds = used_seconds
        self._monotonic = monotonic
        self._lock = threading.Lock()
        # Under _lock: readings with the total use.
        self._looks: deque[tuple[float, float]] = deque([(monotonic(), used_seconds())])

    def __call__(self) -> float:
        """Return the present share; shortly after a start, of the time since then."""
        with self._lock:
            now, used = self._monotonic(), self._used_seconds()
            while len(self._looks) > 1 and self._looks[1][0] <= now - USE_SECONDS:
                self._looks.popleft()
            then, before = self._looks[0]
            if now - self._looks[-1][0] >= LEAST_LOOK_SECONDS:
                self._looks.append((now, used))
            if now <= then:
                return 0.0
            return min(1.0, max(0.0, (used - before) / (now - then)))


def since_ms(moment: datetime) -> float:
    """Return the milliseconds from a moment to now, for a log line."""
    return (datetime.now(UTC) - moment).total_seconds() * 1000
