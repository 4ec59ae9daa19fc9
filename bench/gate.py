"""The throughput of the gate by its settings, with sends always waiting.

The dispatcher runs as the real process on a real mongod, and linesim answers, with LINE's rate
limits. Two tables:

How many of the possible turns one call at a time uses. The gaps are those of the dispatcher's own
clock, between the starts of two calls in a row; a gate that wasted nothing would show the interval
each time.

How long 1,000 users wait for a text of their own, pushed by timers that are due at one moment, by
interval, LINE_CONCURRENCY and the time that LINE takes. `sent` counts from the first call to the
end of the last one once all sends are recorded, `all in all` from the due time in a run in which
nothing was recorded before. With `--only-settings` there is the second table alone.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

import linesim
from bench.report import BenchFailed, Figures, Report, by_turns, percentiles
from bench.stack import Running, running
from bench.waiting import until
from linesim.model.calls import Call

TURN = re.compile(r"turn since_last_access_ms=([0-9.]+)")
SETTINGS = ((100, 1), (0, 1), (0, 10), (0, 50))
LATENCIES_MS = (0, 50)
# The threads that handlers have beside the calls.
OTHER_THREADS = 20
# The pushes are delayed by this time, until all of them are recorded.
HELD_SECONDS = 30
LONGEST_SECONDS = 300.0


def pushing_bot() -> object:
    """The bot that the dispatcher runs: it pushes as often as the message says, and by timers."""
    from linebot.v3.webhooks import MessageEvent, TextMessageContent

    from linedesk import Bot, Talk, TimerEvent

    bot = Bot()

    @bot.add(MessageEvent, message=TextMessageContent)
    def push(event: MessageEvent, talk: Talk) -> None:
        for number in range(int(event.message.text)):
            talk.push(str(number))

    @bot.timer("tea")
    def tea(event: TimerEvent, talk: Talk) -> None:
        talk.push(f"お茶です、{talk.key}")

    return bot


def gaps_ms(folder: Path, *, interval_ms: int, calls: int) -> list[float]:
    """Milliseconds between the starts of `calls` calls that wait at the same time."""
    log = folder / "dispatcher.log"
    settings = {"LINE_ACCESS_INTERVAL_MS": str(interval_ms), "BOT": "bench.gate:bot"}
    with running(folder, log=log, settings=settings) as stack:
        _saturate(stack, calls)
    # Those between the pushes that waited together.
    return [float(found) for found in TURN.findall(log.read_text("utf-8"))][-(calls - 1) :]


def _saturate(stack: Running, calls: int) -> None:
    """A push to each of `calls` users, with different texts, so that no two share a call."""
    sim = stack.sim
    users = [sim.add_user(f"客{n}") for n in range(calls)]
    stack.until_taken(users[0], "1")
    until(lambda: bool(_pushes(sim)), "the sends have ended", seconds=LONGEST_SECONDS)
    stack.set_timers((user, {}) for user in users)
    until(lambda: len(_pushes(sim)) > calls, "the sends have ended", seconds=LONGEST_SECONDS)


@dataclass(frozen=True)
class Sent:
    """The duration of pushes to a number of users."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        """How many of them a second."""
        return self.count / self.seconds


def sent_to_all(
    interval_ms: int, concurrency: int, *, latency_ms: int, users: int, recorded: bool
) -> Sent:
    """One push to each user; with `recorded` all of them were recorded before."""
    settings = {
        "LINE_ACCESS_INTERVAL_MS": str(interval_ms),
        "LINE_CONCURRENCY": str(concurrency),
        "DISPATCHER_THREADS": str(concurrency + OTHER_THREADS),
        "BOT": "bench.gate:bot",
    }
    line = {"latency_ms": latency_ms, "rate_limits": True}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), line=line, settings=settings) as stack,
    ):
        sim = stack.sim
        chosen = [sim.add_user(f"客{n}") for n in range(users)]
        stack.until_taken(chosen[0], "1")
        sim.wait_for(lambda: _pushes(sim), timeout=60)
        if recorded:
            headers = {"Retry-After": str(HELD_SECONDS)}
            sim.answer_next("push", 429, headers=headers, times=users)
        due = stack.set_timers((user, {}) for user in chosen)
        if recorded:
            until(lambda: _waiting(stack) >= users, "the sends have ended", seconds=LONGEST_SECONDS)
            sim.clear_faults()
        until(lambda: len(_pushes(sim)) > users, "the sends have ended", seconds=LONGEST_SECONDS)
        calls = _pushes(sim)[1:]
        began = min(call.started for call in calls) if recorded else due
        return Sent(users, max(call.finished or 0.0 for call in calls) - began)


def _pushes(sim: linesim.Sim) -> list[Call]:
    """The pushes that LINE accepted and answered."""
    calls = (call for call in sim.calls if call.endpoint == "push" and call.status == 200)
    return [call for call in calls if call.finished is not None]


def _waiting(stack: Running) -> int:
    """The number of recorded sends that wait, from the dispatcher's row."""
    row = stack.database.status.find_one({"role": "dispatcher"}) or {}
    return int(row.get("figures", {}).get("outboxEffects") or 0)


def turns_used(interval_ms: int, calls: int) -> Figures:
    """The share of the possible turns that were used, and their intervals."""
    with tempfile.TemporaryDirectory() as folder:
        found = gaps_ms(Path(folder), interval_ms=interval_ms, calls=calls)
    if not found:
        raise BenchFailed("the dispatcher's log has no turns")
    used = 100 * interval_ms * len(found) / sum(found)
    return {"turns used %": used, "closest ms": min(found), **percentiles(found)}


def sent_figures(interval_ms: int, concurrency: int, *, latency_ms: int, users: int) -> Figures:
    """Both ways to send to all."""
    sent, whole = (
        sent_to_all(interval_ms, concurrency, latency_ms=latency_ms, users=users, recorded=recorded)
        for recorded in (True, False)
    )
    return {"calls/s": sent.per_second, "sent s": sent.seconds, "all in all s": whole.seconds}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=1)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--users", type=int, default=1_000)
    parser.add_argument("--only-settings", action="store_true")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Both tables."""
    settings = Report(
        f"a push to each of {options.users:,} users at one moment",
        [
            row
            for latency_ms in LATENCIES_MS
            for row in by_turns(
                {
                    f"interval {interval_ms} ms, {concurrency} at a time": partial(
                        sent_figures,
                        interval_ms,
                        concurrency,
                        latency_ms=latency_ms,
                        users=options.users,
                    )
                    for interval_ms, concurrency in SETTINGS
                },
                options.rounds,
                console,
                case={"LINE ms": latency_ms},
            )
        ],
        "interval 100 ms, 1 at a time",
    )
    if options.only_settings:
        return [settings]
    turns = [
        row
        for interval_ms in (100, 20)
        for row in by_turns(
            {"one call at a time": partial(turns_used, interval_ms, options.calls)},
            options.rounds,
            console,
            case={"interval ms": interval_ms},
        )
    ]
    return [Report("gaps between the starts of two calls", turns), settings]


bot = pushing_bot()
