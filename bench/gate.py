"""What the gate makes of its settings, where sends wait all the time.

The dispatcher runs as the real process on a real mongod, and linesim answers, with LINE's rate
limits. Run it as `python bench/gate.py`. Two tables:

How many of the possible turns one call at a time uses. The gaps are those of the dispatcher's own
clock, between the starts of two calls in a row; a gate that wasted nothing would show the interval
each time.

How long 1,000 users wait for a text of their own, pushed by timers that are due at one moment, by
interval, LINE_CONCURRENCY and the time that LINE takes. `sent` counts from the first call to the
end of the last one once all sends are recorded, `all in all` from the due time in a run in which
nothing was recorded before. With `--only-settings` it prints the second table alone.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from stack import Running, running

import linesim
from linedesk.store.timers import timer_id

USERS = 20
TURN = re.compile(r"turn since_last_access_ms=([0-9.]+)")
SETTINGS = ((100, 1), (0, 1), (0, 10), (0, 50))
LATENCIES_MS = (0, 50)
# The threads that handlers have beside the calls.
OTHER_THREADS = 20
# The pushes are held back for so long, until all of them are recorded.
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
    """Milliseconds between the starts of so many calls that wait together."""
    log = folder / "dispatcher.log"
    settings = {"LINE_ACCESS_INTERVAL_MS": str(interval_ms), "BOT": "gate:bot"}
    with log.open("wb") as output, running(folder, output=output, **settings) as stack:
        _saturate(stack, calls)
    # The first one tells of no call before it, and the last ones may have been waited for.
    return [float(found) for found in TURN.findall(log.read_text("utf-8"))][1:calls]


def _saturate(stack: Running, calls: int) -> None:
    sim = stack.sim
    users = [sim.add_user(f"客{n}") for n in range(USERS)]
    stack.until_taken(users[0], str(calls // USERS))
    for user in users[1:]:
        sim.say(user, str(calls // USERS))
    for number in track(range(calls // USERS * USERS), "calls"):
        sim.wait_for(lambda least=number: len(sim.calls) > least, timeout=60)  # type: ignore[misc]


@dataclass(frozen=True)
class Sent:
    """How long pushes to so many users took."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        """How many of them a second."""
        return self.count / self.seconds


def sent_to_all(
    interval_ms: int, concurrency: int, *, latency_ms: int, users: int, recorded: bool
) -> Sent:
    """One push to each of so many users; with `recorded` all of them were recorded before."""
    settings = {
        "LINE_ACCESS_INTERVAL_MS": str(interval_ms),
        "LINE_CONCURRENCY": str(concurrency),
        "DISPATCHER_THREADS": str(concurrency + OTHER_THREADS),
        "BOT": "gate:bot",
    }
    line = {"latency_ms": latency_ms, "rate_limits": True}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), line=line, **settings) as stack,
    ):
        sim = stack.sim
        chosen = [sim.add_user(f"客{n}") for n in range(users)]
        stack.until_taken(chosen[0], "1")
        sim.wait_for(lambda: _pushes(sim), timeout=60)
        if recorded:
            headers = {"Retry-After": str(HELD_SECONDS)}
            sim.answer_next("push", 429, headers=headers, times=users)
        due = _set_timers(stack, chosen)
        if recorded:
            _until(lambda: _waiting(stack) >= users)
            sim.clear_faults()
        _until(lambda: len(_pushes(sim)) > users)
        calls = _pushes(sim)[1:]
        began = min(call.started for call in calls) if recorded else due
        return Sent(users, max(call.finished or 0.0 for call in calls) - began)


def _pushes(sim: linesim.Sim) -> list[linesim.model.calls.Call]:
    """Those that LINE took and answered."""
    calls = (call for call in sim.calls if call.endpoint == "push" and call.status == 200)
    return [call for call in calls if call.finished is not None]


def _waiting(stack: Running) -> int:
    """How many sends are recorded and wait, by the dispatcher's row."""
    row = stack.database.status.find_one({"role": "dispatcher"}) or {}
    return int(row.get("figures", {}).get("outboxEffects") or 0)


def _until(happened: Callable[[], bool]) -> None:
    """Look ten times a second."""
    until, pause = time.monotonic() + LONGEST_SECONDS, threading.Event()
    while not happened():
        if time.monotonic() > until:
            raise TimeoutError("the measurement does not come to its end")
        pause.wait(0.1)


def _set_timers(stack: Running, users: list[linesim.User]) -> float:
    """A timer of each, all due in a second, as the dispatcher makes them; when, monotonic."""
    due = datetime.now(UTC) + timedelta(seconds=1)
    moment = time.monotonic() + 1
    stack.database.schedule.insert_many(
        {
            "_id": timer_id("main", user.user_id, "tea"),
            "channel": "main",
            "key": user.user_id,
            "name": "tea",
            "n": 1,
            "runAt": due,
            "every": None,
            "data": {},
            "source": {"type": "user", "userId": user.user_id},
            "setBy": "",
        }
        for user in users
    )
    return moment


def turns_used(calls: int) -> Table:
    """The first table."""
    table = Table("interval ms", "closest ms", "median ms", "p99 ms", "turns used")
    for interval in (100, 20):
        with tempfile.TemporaryDirectory() as folder:
            found = gaps_ms(Path(folder), interval_ms=interval, calls=calls)
        used = interval * len(found) / sum(found)
        cuts = statistics.quantiles(found, n=100)
        figures = (f"{min(found):.1f}", f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", f"{used:.1%}")
        table.add_row(str(interval), *figures)
    return table


def settings_compared(users: int) -> Table:
    """The second table."""
    table = Table("interval ms", "concurrency", "LINE ms", "calls/s", "sent s", "all in all s")
    cases = [(latency, one) for latency in LATENCIES_MS for one in SETTINGS]
    for latency_ms, (interval_ms, concurrency) in track(cases, "settings"):
        sent, whole = (
            sent_to_all(
                interval_ms, concurrency, latency_ms=latency_ms, users=users, recorded=recorded
            )
            for recorded in (True, False)
        )
        figures = (f"{sent.per_second:.0f}", f"{sent.seconds:.1f}", f"{whole.seconds:.1f}")
        table.add_row(str(interval_ms), str(concurrency), str(latency_ms), *figures)
    return table


def main() -> None:
    """Measure and print the tables."""
    options = argparse.ArgumentParser(description="What the gate makes of its settings.")
    options.add_argument("--calls", type=int, default=200)
    options.add_argument("--users", type=int, default=1_000)
    options.add_argument("--only-settings", action="store_true")
    chosen = options.parse_args()
    if not chosen.only_settings:
        Console().print(turns_used(chosen.calls))
    Console().print(settings_compared(chosen.users))


if __name__ == "__main__":
    main()
else:
    bot = pushing_bot()
