"""The metrics of a worker: its handlers, and its calls of LINE by the template of their path."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry

from linedesk.runtime.metrics import COUNTER, GAUGE, HISTOGRAM, Figure, Metrics
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


TABLE = (
    # Jobs.
    Figure("wait_seconds", HISTOGRAM, "From an event's arrival to the first start of its handler."),
    Figure("handler_seconds", HISTOGRAM, "How long the bot's handlers run."),
    Figure(
        "decided_events",
        COUNTER,
        "Events decided: recorded with effects, finished without any, found applied by a "
        "predecessor, or ended without a handler (taken back by the sender, or overtaken).",
        ("outcome",),
        begin=("recorded", "finished", "applied", "unheard"),
    ),
    Figure(
        "failed_handlers",
        COUNTER,
        "Handlers that raised an error, or did not return in time.",
        ("kind",),
        begin=("error", "timeout"),
    ),
    Figure(
        "unhandled_events",
        COUNTER,
        "Events that no handler takes, or that line-bot-sdk cannot read.",
        ("cause",),
        begin=("no_handler", "unreadable"),
    ),
    Figure("async_handlers", GAUGE, "Async handlers that run or wait for a place."),
    # The outbox.
    Figure(
        "dead_letters",
        COUNTER,
        "Effects and events that were given up, each with its cause in deadletters.",
        ("kind",),
        begin=("event", "send", "timer"),
    ),
    Figure(
        "given_up_sends",
        COUNTER,
        "Sends given up because the month's messages are used up, as late replies over their "
        "daily limit, or because they expired; each is a dead letter, too.",
        ("cause",),
        begin=GIVEN_UP,
    ),
    Figure("dead_letters_kept", GAUGE, "Dead letters that are stored, also those replayed lately."),
    Figure("dead_letters_open", GAUGE, "Dead letters that were neither replayed nor dropped."),
    Figure("outbox_effects", GAUGE, "Effects recorded and not yet carried out: sends and timers."),
    Figure(
        "oldest_send_seconds",
        GAUGE,
        "Age of the oldest send that LINE has not accepted, since its event; 0 without one.",
    ),
    Figure("send_retries", COUNTER, "Sends that failed and are tried again."),
    Figure(
        "unproved_replies",
        COUNTER,
        "Replies of unknown outcome that cannot be proved or repeated; each may have "
        "arrived twice, or not at all (REPLY_UNKNOWN).",
    ),
    Figure(
        "late_replies_a_day",
        GAUGE,
        "Late replies that one conversation may cost a day (LATE_REPLIES_A_DAY).",
    ),
    Figure(
        "late_replies_today",
        GAUGE,
        "Late replies of today, each a counted push, since the start of the process.",
    ),
    Figure("quota_messages", GAUGE, "Messages that LINE's plan allows this month."),
    Figure(
        "quota_used_messages",
        GAUGE,
        "Messages of this month: LINE's count plus the sends since then.",
    ),
    Figure(
        "quota_closed_since_seconds",
        GAUGE,
        "Unix time since when all messages of the month are used.",
    ),
    Figure(
        "unwritten_rows",
        COUNTER,
        "Rows of calls and jobs that were dropped: MongoDB was away, or too many at a time.",
        ("collection",),
        begin=("calls", "jobs"),
    ),
    # LINE.
    Figure(
        "calls",
        COUNTER,
        "Calls of the LINE API by the status of the answer; none: no answer came.",
        ("host", "endpoint", "status"),
    ),
    Figure("call_seconds", HISTOGRAM, "How long calls of the LINE API take.", ("endpoint",)),
    Figure(
        "call_sends",
        HISTOGRAM,
        "How many sends a call that LINE accepted contained.",
        ("endpoint",),
        SENDS_BUCKETS,
    ),
    Figure(
        "counted_messages",
        COUNTER,
        "Messages that LINE counts for accepted calls; a push to a group or room of unknown "
        "size is one.",
        ("kind",),
        begin=("push", "multicast", "group"),
    ),
    Figure(
        "counted_today_messages",
        GAUGE,
        "The same since midnight in Japan, including the sends of earlier processes.",
    ),
    Figure("gate_turns", COUNTER, "Calls that got a turn at the gate.", ("host",)),
    Figure(
        "gate_wait_seconds",
        HISTOGRAM,
        "From entering the gate's queue to the start of the turn.",
        ("host",),
    ),
    Figure(
        "gate_use",
        GAUGE,
        f"Share of the last {USE_SECONDS:.0f} s in which the gate was busy or kept its interval, "
        "0 to 1.",
        ("host",),
    ),
    Figure("gate_waiting", GAUGE, "Number of tickets that wait for a turn at the gate.", ("host",)),
    Figure(
        "gate_class_waiting",
        GAUGE,
        "Number of tickets of a class that wait for a turn at the gate.",
        ("host", "class"),
    ),
    Figure(
        "gate_class_longest_seconds",
        GAUGE,
        "How long the first ticket of a class has waited.",
        ("host", "class"),
    ),
    Figure("breaker_open", GAUGE, "1 while LINE fails and only probes are sent.", ("host",)),
    Figure(
        "breaker_pause_seconds",
        GAUGE,
        "Until the next call of LINE may begin, while it fails.",
        ("host",),
    ),
    Figure("token_refused", GAUGE, "1 while LINE refuses the channel access token."),
)


class WorkerMetrics(Metrics):
    """The metrics of one worker, on a registry; without one, on a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        super().__init__(TABLE, registry)

    def called(self, host: str, path: str, status: int | None, seconds: float) -> None:
        """Count a call that has ended; `path` may have ids in it."""
        endpoint = endpoint_of(path)
        self.add("calls", host, endpoint, NO_STATUS if status is None else str(status))
        self.observe("call_seconds", seconds, endpoint)

    def sent(self, path: str, *, sends: int, people: int, is_group: bool = False) -> None:
        self.observe("call_sends", sends, endpoint_of(path))
        kind = COUNTED.get(path)
        if kind is not None:
            self.add("counted_messages", "group" if is_group else kind, by=people)

    def turn_taken(self, host: str, wait_seconds: float) -> None:
        """Count a call that got its turn at a host's gate."""
        self.add("gate_turns", host)
        self.observe("gate_wait_seconds", wait_seconds, host)

    def unwritten(self, collection: str) -> Callable[[int], None]:
        """Return the counter of rows of a collection that are never written."""
        return lambda rows: self.add("unwritten_rows", collection, by=rows)


class Use:
    """The share of the last USE_SECONDS in which something was in use; under its owner's lock.

    Every time is monotonic. A use may end in the future; one that begins before that end counts
    from the end on.
    """

    def __init__(self, now: float) -> None:
        self._ended = 0.0
        self._until = -math.inf
        self._since: float | None = None
        # The times of readings, each with the total use until then.
        self._looks = [(now, 0.0)]

    def begin(self, now: float) -> None:
        """It is in use from now on, unless it was already."""
        if self._since is None:
            self._since = now

    def end(self, until: float) -> None:
        if self._since is not None:
            until = max(until, self._until)
            self._ended += until - max(self._since, self._until)
            self._since, self._until = None, until

    def seconds(self, now: float) -> float:
        """Return the total time of use."""
        to_come = max(0.0, self._until - now)
        under_way = 0.0 if self._since is None else now - max(self._since, self._until)
        return self._ended - to_come + max(0.0, under_way)

    def share(self, now: float) -> float:
        """Return the present share; shortly after the beginning, of the time since then."""
        used, looks = self.seconds(now), self._looks
        first = sum(at <= now - USE_SECONDS for at, _ in looks[1:])
        if now - looks[-1][0] >= LEAST_LOOK_SECONDS:
            self._looks = [*looks[first:], (now, used)]
        then, before = looks[first]
        return 0.0 if now <= then else min(1.0, max(0.0, (used - before) / (now - then)))


def since_ms(moment: datetime) -> float:
    """Return the milliseconds from a moment to now, for a log line."""
    return (datetime.now(UTC) - moment).total_seconds() * 1000
