"""A capacity model: the load that a server carries, simulated and checked against the real
processes.

The simulation is of discrete events. A message costs processor time at the front desk, MongoDB and
the dispatcher, which share the cores; the dispatcher uses one core at most. It waits for its
conversation and for a thread; its handler sleeps; its send waits for the gate and for LINE. All
costs are measured first, on this machine and in this run.

The model leaves out: sends that travel together, retries, time-outs, processor time of the
handlers, and pauses such as those of the garbage collector and the journal. Its long waits (p99)
where there is no queue are therefore too short.
"""

from __future__ import annotations

import argparse
import heapq
import math
import os
import random
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, pairwise
from pathlib import Path

from linebot.v3.webhooks import MessageEvent
from rich.console import Console

from bench.load import Post, post_all
from bench.processes import cpu_seconds
from bench.report import BenchFailed, Figures, Report, Row, by_turns
from bench.stack import Running, running
from bench.started import Started, started_log
from bench.waiting import until
from bench.webhooks import ids_of, text_event
from linedesk import Bot, Talk
from linesim.model.calls import Call

# The simulation.

Steps = Generator["float | Resource", None, None]
"""A process: it yields seconds to wait for, or a resource to get one of."""


class Resource:
    """A number of units, granted in the order of the requests."""

    def __init__(self, clock: Clock, size: int) -> None:
        self.waiting: deque[Steps] = deque()
        self.free = size
        self._clock = clock

    def release(self) -> None:
        """Give one back."""
        if self.waiting:
            self._clock.at(self._clock.now, self.waiting.popleft())
        else:
            self.free += 1


class Clock:
    """Runs processes in the order of their times."""

    def __init__(self) -> None:
        self.now = 0.0
        self._due: list[tuple[float, int, Steps]] = []
        self._numbers = count()

    def at(self, when: float, steps: Steps) -> None:
        """Continue a process at this time."""
        heapq.heappush(self._due, (when, next(self._numbers), steps))

    def run(self) -> None:
        """Run until no process is left."""
        while self._due:
            self.now, _, steps = heapq.heappop(self._due)
            self._go_on(steps)

    def _go_on(self, steps: Steps) -> None:
        for wanted in steps:
            if isinstance(wanted, float):
                self.at(self.now + wanted, steps)
                return
            if not wanted.free:
                wanted.waiting.append(steps)
                return
            wanted.free -= 1


@dataclass(frozen=True)
class Costs:
    """Of one answered message, in seconds; measured by `calibrate`."""

    front_desk: float
    """Of the processor, as the next three."""
    mongod: float
    dispatcher: float
    others: float
    """The load and linesim, which are on the same machine in a measurement."""
    waited: float
    """The part of the work before the handler that the message waits for; no seconds."""
    to_store: float
    """Waiting for the journal and the change stream, without the processor."""
    to_record: float
    """Waiting for the journal after the handler."""
    to_call: float
    """The time of a call of LINE without LINE's own time and the processor."""


@dataclass(frozen=True)
class Box:
    """One machine and its settings."""

    cores: int = 2
    threads: int = 20
    interval: float = 0.1
    concurrency: int = 1
    line: float = 0.0
    """Seconds that LINE takes."""


@dataclass
class Times:
    """The times of each message in seconds: its POST, and its steps."""

    posted: list[float]
    handled: list[float]
    called: list[float]


def simulate(
    costs: Costs, box: Box, arrivals: Sequence[tuple[float, int]], *, handler: float
) -> Times:
    """Simulate these messages, each a time and a key."""
    clock = Clock()
    times = Times([at for at, _ in arrivals], [0.0] * len(arrivals), [0.0] * len(arrivals))
    cores, python = Resource(clock, box.cores), Resource(clock, 1)
    threads, gate = Resource(clock, box.threads), Resource(clock, box.concurrency)
    keys: dict[int, Resource] = {}
    next_turn = 0.0

    def work(seconds: float) -> Steps:
        yield cores
        yield seconds
        cores.release()

    def python_work(seconds: float) -> Steps:
        yield python
        yield from work(seconds)
        python.release()

    def message(number: int, key: int) -> Steps:
        nonlocal next_turn
        arrival = costs.front_desk + costs.others / 2 + costs.mongod / 3
        clock.at(clock.now, work(arrival * (1 - costs.waited)))
        yield from work(arrival * costs.waited)
        yield costs.to_store
        mine = keys.setdefault(key, Resource(clock, 1))
        yield mine
        yield threads
        yield from python_work(costs.dispatcher / 3)
        times.handled[number] = clock.now
        yield handler
        yield from python_work(costs.dispatcher / 3)
        yield from work(costs.mongod / 3)
        yield costs.to_record
        threads.release()
        mine.release()
        yield gate
        turn = max(clock.now, next_turn)
        next_turn = turn + box.interval
        yield turn - clock.now
        times.called[number] = clock.now
        yield from work(costs.others / 2)
        yield box.line + costs.to_call
        yield from python_work(costs.dispatcher / 3)
        yield from work(costs.mongod / 3)
        gate.release()

    for number, (at, key) in enumerate(arrivals):
        clock.at(at, message(number, key))
    clock.run()
    return times


def poisson(rate: float, events: int, chance: random.Random) -> Iterator[float]:
    """Times of arrival."""
    at = 0.0
    for _ in range(events):
        at += chance.expovariate(rate)
        yield at


def zipf(keys: int, chance: random.Random) -> Callable[[], int]:
    """Draws keys of which the n-th is n times as rare as the first."""
    weights = [1 / (place + 1) for place in range(keys)]
    return lambda: chance.choices(range(keys), weights)[0]


def carried(times: Times) -> float:
    """Messages a second of a burst, from its first handler to its last call.

    All of it: decisions come first in a burst, and sends alone at its end are faster.
    """
    return len(times.called) / (max(times.called) - min(times.handled))


def waits(times: Times) -> Figures:
    """From the POST to the handler and to the call of LINE, in ms."""
    to_handler = _waits_ms(times.posted, times.handled)
    to_call = _waits_ms(times.posted, times.called)
    return {
        "to handler p50 ms": to_handler[49],
        "to handler p99 ms": to_handler[98],
        "to LINE p50 ms": to_call[49],
        "to LINE p99 ms": to_call[98],
    }


def _waits_ms(begun: Sequence[float], ended: Sequence[float]) -> list[float]:
    waits = [(end - begin) * 1000 for begin, end in zip(begun, ended, strict=True)]
    return statistics.quantiles(waits, n=100)


def sustained(costs: Costs, box: Box, *, handler: float) -> float:
    """The highest rate of messages, evenly spaced and each of another user, that the box carries.

    Carried is a rate if all are called for as soon after the last POST as the first one was after
    its own, but for 2 % of the time in which all came.
    """
    events, low, high = 10 * max(box.threads, 50), 0.1, 2_000.0
    while high > low * 1.01:
        rate = math.sqrt(low * high)
        arrivals = [(number / rate, number) for number in range(events)]
        times = simulate(costs, box, arrivals, handler=handler)
        behind = max(times.called) - times.posted[-1] - (times.called[0] - times.posted[0])
        if behind <= 0.02 * events / rate:
            low = rate
        else:
            high = rate
    return low


# The real processes.

BURST_EVENTS = 400
THREADS = 20
HANDLERS_MS = (0, 10, 50, 200)
INTERVALS_MS = (0, 20, 100)
SHARE = 0.6
"""The share of the modelled capacity at which waits are compared."""
CALIBRATION_RATE = 20.0
CALIBRATION_SECONDS = 6.0
LOAD_SECONDS = 6.0
LEAST_BURST = 60
CALIBRATION_BURST = 150
SETTLE_SECONDS = 60.0

bot = Bot()
_started = started_log()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Sleeps as many milliseconds as the text begins with, then answers by a push."""
    _started(talk.event_id)
    milliseconds, _, _ = event.message.text.partition(" ")
    time.sleep(float(milliseconds) / 1000)
    talk.data["count"] = talk.data.get("count", 0) + 1
    talk.push(f"answer to {talk.event_id}")


class Bench:
    """The processes with one interval, and users who have not written yet."""

    def __init__(self, stack: Running, log: Started, *, interval: float, seed: int) -> None:
        self.stack, self.log = stack, log
        self.box = Box(threads=THREADS, interval=interval, cores=os.cpu_count() or 1)
        self._users = count(1)
        self.chance = random.Random(seed)

    def said(self, arrivals: Sequence[float], *, handler_ms: int) -> Times:
        """One message of a new user at each of these times, once all are answered."""
        sim = self.stack.sim
        users = [next(self._users) for _ in arrivals]
        for user in users:
            sim.add_user(f"客{user}", user_id=f"U{user:032x}")
        events = [text_event(user, f"{handler_ms} {user}") for user in users]
        seen = len(sim.calls)
        posts = [Post(at, [event]) for at, event in zip(arrivals, events, strict=True)]
        posted = post_all(str(sim.webhook_url), posts)
        ids = ids_of(events)
        started = self.log.wait_for(ids, seconds=SETTLE_SECONDS)
        until(
            lambda: len(_pushes(sim.calls[seen:])) >= len(ids),
            f"{len(ids)} messages are answered",
            seconds=SETTLE_SECONDS,
            every=0.2,
        )
        called = _pushes(sim.calls[seen:])
        return Times(
            [posted.sent[id_] for id_ in ids],
            [started[id_] for id_ in ids],
            [called[id_] for id_ in ids],
        )


def _pushes(calls: Sequence[Call]) -> dict[str, float]:
    """When LINE was called for each event."""
    found: dict[str, float] = {}
    for call in calls:
        if call.accepted and call.endpoint == "push":
            for message in call.body["messages"]:
                found.setdefault(message["text"].rpartition(" ")[2], call.started)
    return found


def calibrate(bench: Bench, console: Console) -> Costs:
    """Measure the costs of a message at a low rate, and of a call while many wait for the gate."""
    idle = _processor(bench, lambda: time.sleep(CALIBRATION_SECONDS))
    number = int(CALIBRATION_RATE * CALIBRATION_SECONDS)
    arrivals = list(poisson(CALIBRATION_RATE, number, bench.chance))
    measured: list[Times] = []
    busy = _processor(bench, lambda: measured.append(bench.said(arrivals, handler_ms=0)))
    times = measured[0]
    # The idle part is a trifle and is taken for the same length.
    per = {name: max(0.0, busy[name] - idle[name]) / number for name in busy}
    to_handler = statistics.median(_waits_ms(times.posted, times.handled)) / 1000
    to_call = statistics.median(_waits_ms(times.handled, times.called)) / 1000
    called = sorted(bench.said([0.0] * CALIBRATION_BURST, handler_ms=0).called)
    gaps = [later - sooner for sooner, later in pairwise(called[CALIBRATION_BURST // 2 :])]
    third = per["mongod"] / 3 + per["dispatcher"] / 3
    arrival = per["frontdesk"] + per["others"] / 2 + per["mongod"] / 3
    before_handler = to_handler - per["dispatcher"] / 3
    return Costs(
        front_desk=per["frontdesk"],
        mongod=per["mongod"],
        dispatcher=per["dispatcher"],
        others=per["others"],
        waited=min(1.0, before_handler / arrival),
        to_store=max(0.0, before_handler - arrival),
        to_record=max(0.0, to_call - third),
        to_call=max(0.0, statistics.median(gaps) - third - per["others"] / 2),
    )


def _processor(bench: Bench, during: Callable[[], object]) -> dict[str, float]:
    """Seconds of the processor by process."""
    pids = {**bench.stack.pids, "others": os.getpid()}
    before = {name: cpu_seconds(pid) for name, pid in pids.items()}
    during()
    return {name: cpu_seconds(pid) - before[name] for name, pid in pids.items()}


def checked(
    bench: Bench, costs: Costs, console: Console, *, rounds: int
) -> tuple[list[Row], list[Row]]:
    """Bursts, and waits below the modelled capacity: measured and simulated."""
    bursts, loads = [], []
    for handler_ms in HANDLERS_MS:
        most = sustained(costs, bench.box, handler=handler_ms / 1000)
        at_once = [0.0] * max(LEAST_BURST, min(BURST_EVENTS, int(most * LOAD_SECONDS)))
        rate = most * SHARE
        arrivals = list(poisson(rate, max(LEAST_BURST, int(rate * LOAD_SECONDS)), bench.chance))
        case = {"handler ms": handler_ms, "interval ms": bench.box.interval * 1000}
        both = partial(_both, bench, costs, handler_ms=handler_ms)
        figures = both(at_once, lambda times: {"events/s": carried(times)})
        bursts += by_turns(figures, rounds, console, case=case)
        case = {**case, "events/s": round(rate, 1)}
        loads += by_turns(both(arrivals, waits), rounds, console, case=case)
    return bursts, loads


def _both(
    bench: Bench,
    costs: Costs,
    arrivals: Sequence[float],
    figures: Callable[[Times], Figures],
    *,
    handler_ms: int,
) -> dict[str, Callable[[], Figures]]:
    """The same messages through the real processes and through the model."""
    keyed = [(at, number) for number, at in enumerate(arrivals)]
    return {
        MEASURED: lambda: figures(bench.said(arrivals, handler_ms=handler_ms)),
        SIMULATED: lambda: figures(simulate(costs, bench.box, keyed, handler=handler_ms / 1000)),
    }


MEASURED = "measured"
SIMULATED = "simulated"


# Predictions beyond the measurements.

PREDICTED_HANDLERS_MS = (1, 10, 100, 1_000, 5_000)
SETTINGS = {
    "one call at a time, 100 ms": Box(interval=0.1),
    "one call at a time, 20 ms": Box(interval=0.02),
    "one call at a time, 0 ms": Box(interval=0.0),
    "ten calls at a time, 0 ms": Box(interval=0.0, concurrency=10),
    "the same with 200 threads": Box(interval=0.0, concurrency=10, threads=200),
}
LINE_SECONDS = 0.05
GROWTH = (1, 10, 100, 1_000)
BASE_RATE = 5.0
"""Events a second: a load that one server as installed carries easily."""
ROOM = 0.5
"""The share of a server's capacity to plan with."""


def one_box(costs: Costs) -> Report:
    """The capacity of a server by handler time and settings, with the real LINE."""
    apart = replace(costs, others=0.0)
    rows = [
        Row(
            name,
            [{"events/s": sustained(apart, replace(box, line=LINE_SECONDS), handler=ms / 1000)}],
            {"handler ms": ms},
        )
        for name, box in SETTINGS.items()
        for ms in PREDICTED_HANDLERS_MS
    ]
    return Report(
        f"Simulated: capacity of one box with 2 cores, LINE takes {LINE_SECONDS * 1000:g} ms",
        rows,
    )


def many_boxes(costs: Costs) -> Report:
    """The resources for more events, by handler time, at half of a server's capacity."""
    apart = replace(costs, others=0.0)
    box = replace(SETTINGS["the same with 200 threads"], line=LINE_SECONDS)
    rows = []
    for ms in PREDICTED_HANDLERS_MS:
        most = sustained(apart, box, handler=ms / 1000) * ROOM
        for times in GROWTH:
            rate = BASE_RATE * times
            figures = {
                "boxes": math.ceil(rate / most),
                "handlers at work": rate * ms / 1000,
                "workers of 20 threads": math.ceil(rate * ms / 1000 / THREADS / ROOM),
                "front desk cores": rate * costs.front_desk,
                "mongod cores": rate * costs.mongod,
                "dispatcher cores": rate * costs.dispatcher,
            }
            rows.append(Row("", [figures], {"handler ms": ms, "times": times, "events/s": rate}))
    title = (
        "Resources for 1 to 1,000 times the load, at half load, each box with its own conversations"
    )
    return Report(title, rows)


def skewed(costs: Costs, seed: int) -> Report:
    """The costs of unequal keys: an even load against one by Zipf's law."""
    chance = random.Random(seed)
    box = replace(SETTINGS["ten calls at a time, 0 ms"], line=LINE_SECONDS)
    apart = replace(costs, others=0.0)
    rows = []
    for ms in (10, 100):
        rate = sustained(apart, box, handler=ms / 1000) * ROOM
        at = list(poisson(rate, 2_000, chance))
        draws: dict[str, Callable[[], int]] = {
            "even": partial(chance.randrange, KEYS),
            "by Zipf's law": zipf(KEYS, chance),
        }
        for name, draw in draws.items():
            times = simulate(apart, box, [(when, draw()) for when in at], handler=ms / 1000)
            case = {"handler ms": ms, "events/s": round(rate, 1)}
            rows.append(Row(name, [waits(times)], case))
    return Report(f"Simulated: {KEYS:,} conversations, at half of what the box carries", rows)


KEYS = 1_000


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--seed", type=int, default=1)


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Measure the costs, compare the model with the real processes, and let it predict."""
    costs: Costs | None = None
    bursts: list[Row] = []
    loads: list[Row] = []
    for interval_ms in INTERVALS_MS:
        with tempfile.TemporaryDirectory() as folder:
            log = Started(Path(folder) / "started.log")
            with running(
                Path(folder),
                settings={
                    "BOT": "bench.model:bot",
                    "DISPATCHER_THREADS": str(THREADS),
                    "LINE_ACCESS_INTERVAL_MS": str(interval_ms),
                    "LOADING_ANIMATION": "false",
                    "STARTED_LOG": str(log.path),
                },
            ) as stack:
                stack.until_taken(stack.sim.add_user("花子"), "0 準備")
                stack.sim.wait_for(lambda: stack.sim.calls_to("push"), timeout=60)
                bench = Bench(stack, log, interval=interval_ms / 1000, seed=options.seed)
                # The first interval is 0, so that a call's own time is seen.
                costs = costs or calibrate(bench, console)
                found = checked(bench, costs, console, rounds=options.rounds)
                bursts += found[0]
                loads += found[1]
                versions = {"MongoDB": stack.version}
    if costs is None:
        raise BenchFailed("no interval was measured")
    title = f"POST to handler and to LINE at {SHARE:g} of what the model says is carried"
    settings = {name: round(value, 5) for name, value in vars(costs).items()}
    return [
        Report("A burst is answered", bursts, MEASURED, versions=versions, settings=settings),
        Report(title, loads, MEASURED, versions=versions),
        one_box(costs),
        many_boxes(costs),
        skewed(costs, options.seed),
    ]
