"""The effect of slow handlers on other keys: POST to handler start while some keys sleep a second.

20 threads. One event in a hundred belongs to a key whose handler sleeps a second; or 10 or 20 slow
keys always have an event at work, one thread each. Measured are the events of all other keys, at a
steady rate.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from linebot.v3.webhooks import MessageEvent
from rich.console import Console

from bench.load import Post, post_all, steady
from bench.report import Figures, Report, by_turns
from bench.stack import Running, running
from bench.started import Started, started_log, waits_ms
from bench.webhooks import ids_of, text_event
from linedesk import Bot, Talk

KEYS = 1_000
THREADS = 20
SLOW = "slow"
SLOW_SECONDS = 1.0
SLOW_SHARE = 100
RATES = (50, 200)

bot = Bot()
_started = started_log()


@bot.add(MessageEvent)
def handler(event: MessageEvent, talk: Talk) -> None:
    """Records its start, and sleeps if the text requests it."""
    _started(talk.event_id)
    if event.message.text == SLOW:
        time.sleep(SLOW_SECONDS)


def measure(
    stack: Running, log: Started, *, rate: int, seconds: float, taken: int | None
) -> Figures:
    """The others' waits while `taken` threads are busy; None: while one key in 100 is slow."""
    number = int(rate * seconds)
    others = [text_event(n % KEYS) for n in range(number)]
    posts = steady(others, rate=rate)
    slow = []
    if taken is None:
        slow = [
            text_event(KEYS + n % (KEYS // SLOW_SHARE), SLOW) for n in range(number // SLOW_SHARE)
        ]
        posts += [Post(n * SLOW_SHARE / rate, [event]) for n, event in enumerate(slow)]
    else:
        # As many as are worked off in that time, each key one after the other.
        for _ in range(int(seconds / SLOW_SECONDS)):
            more = [text_event(KEYS + place, SLOW) for place in range(taken)]
            posts += [Post(0.0, more)] if more else []
            slow += more
    posts.sort(key=lambda post: post.at)
    posted = post_all(str(stack.sim.webhook_url), posts)
    started = log.wait_for(ids_of([*others, *slow]), seconds=60 + seconds)
    return waits_ms(posted.sent, started, ids_of(others))


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.add_argument("--seconds", type=float, default=8.0, help="of each measurement")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """All variants by turns, at each rate."""
    with tempfile.TemporaryDirectory() as folder:
        log = Started(Path(folder) / "started.log")
        with running(
            Path(folder),
            settings={
                "BOT": "bench.slow:bot",
                "DISPATCHER_THREADS": str(THREADS),
                "LOADING_ANIMATION": "false",
                "STARTED_LOG": str(log.path),
            },
        ) as stack:
            first = text_event(0)
            stack.until_taken(stack.sim.add_user("花子"), "準備")
            post_all(str(stack.sim.webhook_url), [Post(0.0, [first])])
            log.wait_for(ids_of([first]))
            rows = []
            for rate in RATES:
                one: Callable[..., Figures] = partial(
                    measure, stack, log, rate=rate, seconds=options.seconds
                )
                variants = {
                    "no slow keys": partial(one, taken=0),
                    "one key in 100 is slow": partial(one, taken=None),
                    "slow keys take 10 of 20 threads": partial(one, taken=10),
                    "slow keys take 20 of 20 threads": partial(one, taken=20),
                }
                rows += by_turns(variants, options.rounds, console, case={"events/s": rate})
            versions = {"MongoDB": stack.version}
    title = f"POST to handler start of the other keys, while slow handlers sleep {SLOW_SECONDS:g} s"
    return [Report(title, rows, "no slow keys", versions=versions)]
