"""One chaos run: load and damage for a while, then everything whole again, then the verdict."""

import heapq
import itertools
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from linedesk.runtime.exit_codes import Exit
from linedesk.store.documents import BATCHES, CONVERSATIONS, DEADLETTERS, HELD, RECVQ, SCHEDULE
from linedesk.store.records.batches import READY, STATE
from linedesk.store.records.effects import CALL, WITH_OUTBOX, effects_of
from linesim.judge.checker import check
from linesim.judge.history import said_in
from linesim.judge.report import Report
from linesim.people.load import Load
from tests.chaos.chaos_bots import expected
from tests.chaos.chaos_timers import CANCELLED, ISSUE_SECONDS, READER, timers_of, wrong_rows
from tests.chaos.cluster import INTERVAL_MS, City, running
from tests.chaos.damages import Undo
from tests.chaos.plan import Blow, plan, step_downs
from tests.chaos.slipped import without_slipped

TICK_SECONDS = 0.05
READERS = 30
WORKERS = 3
READY_ROWS = {STATE: READY}
LOAD_SECONDS = 30.0
# Longer than the minute between two probes of a channel whose token was refused.
STILL_SECONDS = 100.0


@dataclass(frozen=True)
class Order:
    """The options of a run. `rate` is messages a second in all."""

    seed: int
    seconds: float
    nodes: int = 3
    users: int = 24
    rate: float = 25.0
    workers: int = 0
    """Worker processes behind RabbitMQ; without them handlers run in the dispatcher."""
    step_downs: int = 0
    """Forced step-downs in place of all other damages; no process may end by them, but a leader
    whose lease ran out.
    """

    def plan(self) -> list[Blow]:
        if self.step_downs:
            return step_downs(self.step_downs, self.seconds)
        return plan(self.seed, self.seconds, workers=bool(self.workers))


@dataclass(frozen=True)
class Verdict:
    """How a run ended; without problems every promise was kept."""

    order: Order
    report: Report
    problems: list[str]
    damages: Counter[str]
    exits: dict[str, list[int]]
    closest_turns_ms: float | None
    settle_seconds: float
    deadletters: list[dict[str, Any]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


Tell = Callable[[float, str], None]


def run(order: Order, folder: Path, *, tell: Tell = lambda seconds, words: None) -> Verdict:
    """Run once in `folder`; `tell` gets the seconds passed and the current step."""
    with running(folder, nodes=order.nodes, workers=order.workers) as city:
        users = [city.sim.add_user(f"客{n}") for n in range(order.users)]
        city.users = users
        _begin_issues(city, order)
        load = Load(city.sim, users, rate=order.rate, seed=order.seed)
        mayhem = Mayhem(city, order, tell)
        load.start()
        try:
            mayhem.rage()
        finally:
            mayhem.end_all()
            load.stop()
        tell(order.seconds, "settling")
        started = time.monotonic()
        city.wait_until_whole()
        city.resume_all()
        load.join(LOAD_SECONDS)
        city.sim.settle()
        _settle(city, load)
        return _verdict(city, order, mayhem.done, time.monotonic() - started)


def _begin_issues(city: City, order: Order) -> None:
    """Readers become friends, so that multicasts reach them, and order that many issues."""
    issues = max(2, int(order.seconds / ISSUE_SECONDS))
    for number in range(READERS):
        reader = city.sim.add_user(f"{READER}{number}")
        for delivery in (city.sim.follow(reader), city.sim.say(reader, f"{reader.name}-{issues}")):
            while not delivery.delivered:
                delivery = city.sim.redeliver(delivery)


class Mayhem:
    """Carries out the plan at its times, and restarts processes that ended."""

    def __init__(self, city: City, order: Order, tell: Tell) -> None:
        self.done: Counter[str] = Counter()
        self._city = city
        self._seconds = order.seconds
        self._tell = tell
        self._chance = Random(order.seed)
        self._blows = deque(order.plan())
        # When each damage under way ends, and how.
        self._ends: list[tuple[float, int, Undo]] = []
        self._numbers = itertools.count()

    def rage(self) -> None:
        """Until the run's time is over."""
        pause = threading.Event()
        started = time.monotonic()
        while (now := time.monotonic() - started) < self._seconds:
            while self._ends and self._ends[0][0] <= now:
                heapq.heappop(self._ends)[2]()
            if self._blows and self._blows[0].at <= now:
                self._strike(self._blows.popleft(), now)
            self._city.look()
            pause.wait(TICK_SECONDS)

    def end_all(self) -> None:
        """End the remaining damages."""
        while self._ends:
            heapq.heappop(self._ends)[2]()

    def _strike(self, blow: Blow, now: float) -> None:
        self._tell(now, " + ".join(one.name for one in blow.damages))
        for damage, lasts in zip(blow.damages, blow.lasts, strict=True):
            undo = damage.do(self._city, self._chance)
            heapq.heappush(self._ends, (now + lasts, next(self._numbers), undo))
            self.done[damage.name] += 1


def _settle(city: City, load: Load) -> None:
    """Wait until all that was accepted is answered and carried out, or nothing moves any more."""
    pause = threading.Event()
    moved, calls = time.monotonic(), -1
    while time.monotonic() < moved + STILL_SECONDS:
        city.look()
        before, calls = calls, city.sim.platform.calls.count
        if calls != before:
            moved = time.monotonic()
        elif load.ended and not _left(city) and not _is_owed(city):
            return
        pause.wait(1.0)


def _judged(city: City) -> Report:
    timers = timers_of(city.sim.deliveries, city.rows(SCHEDULE))
    report = check(city.sim, expect=expected, expect_timers=timers)
    calls = city.sim.platform.calls.since()
    return replace(report, overlapping=without_slipped(report.overlapping, calls, city.freezes))


def _is_owed(city: City) -> bool:
    report = _judged(city)
    return bool(report.unanswered or report.timers_missing)


def _left(city: City) -> list[str]:
    """The rows that should not exist once all work is done."""
    waiting = city.rows(CONVERSATIONS, WITH_OUTBOX)
    left = [f"{row['_id']} has {len(effects_of(row))} effects in its outbox" for row in waiting]
    calling = city.rows(CONVERSATIONS, {CALL: {"$exists": True}})
    left += [f"{row['_id']} has a call that never ended" for row in calling]
    # An open one may be written late, after it was called off: the next leader removes it.
    left += [f"the multicast {row['_id']} is still there" for row in city.rows(BATCHES, READY_ROWS)]
    left += [f"{row['_id']} is still held" for row in city.rows(HELD)]
    left += wrong_rows(city.rows(SCHEDULE))
    spool = city.readiness().get("spool")
    return left + ([f"the spool holds {spool}"] if spool and spool.get("documents") else [])


def _decided_twice(city: City) -> list[str]:
    """LINE's retry keys and tokens hide a second decision from its users; the record shows it."""
    return [
        f"{row['_id']} has recorded {name} {times} times"
        for row in city.rows(CONVERSATIONS)
        for name, times in Counter(row["applied"]).items()
        if times > 1
    ]


def _fired_though_cancelled(city: City) -> list[str]:
    said = said_in(city.sim.platform.calls.since())
    return [f"a cancelled timer fired: {text}" for _, text in said if text.endswith(CANCELLED)]


def _verdict(city: City, order: Order, done: Counter[str], settle_seconds: float) -> Verdict:
    report = _judged(city)
    stored = {row.get("eventId") for row in city.rows(RECVQ)}
    lost = [
        id_
        for delivery in city.sim.deliveries
        if delivery.delivered
        for id_ in delivery.event_ids
        if id_ not in stored
    ]
    letters = city.rows(DEADLETTERS)
    turns = city.closest_turns_ms()
    problems = [*report.problems(), *_left(city)]
    problems += [f"accepted and not in recvq: {id_}" for id_ in dict.fromkeys(lost)]
    problems += _decided_twice(city)
    problems += _fired_though_cancelled(city)
    problems += [f"dead letter {row['_id']}: {row['cause']}" for row in letters]
    exits = {kept.name: list(kept.exits) for kept in city.kept}
    if order.step_downs:
        # On a busy machine an election may outlast the lease, and the standby takes over.
        ends = {
            name: [code for code in codes if code != Exit.REPLACED] for name, codes in exits.items()
        }
        problems += [f"{name} ended with {codes}" for name, codes in ends.items() if codes]
    if turns is not None and turns < INTERVAL_MS:
        problems.append(f"two calls started {turns} ms apart")
    return Verdict(
        order=order,
        report=report,
        problems=problems,
        damages=done,
        exits=exits,
        closest_turns_ms=turns,
        settle_seconds=settle_seconds,
        deadletters=letters,
    )
