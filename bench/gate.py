"""How many of the possible turns a saturated gate uses: pushes wait all the time, 20 threads.

The dispatcher runs as the real process on a real mongod, and linesim answers. The gaps are those of
the dispatcher's own clock, between the starts of two calls in a row; a gate that wasted nothing
would show the interval each time. Run it as `python bench/gate.py`.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from stack import Running, running

USERS = 20
TURN = re.compile(r"turn since_last_access_ms=([0-9.]+)")


def pushing_bot() -> object:
    """The bot that the dispatcher runs: it pushes as often as the message says."""
    from linebot.v3.webhooks import MessageEvent, TextMessageContent

    from linedesk import Bot, Talk

    bot = Bot()

    @bot.add(MessageEvent, message=TextMessageContent)
    def push(event: MessageEvent, talk: Talk) -> None:
        for number in range(int(event.message.text)):
            talk.push(str(number))

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


def main() -> None:
    """Measure and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--calls", type=int, default=200)
    chosen = options.parse_args()
    table = Table("interval ms", "closest ms", "median ms", "p99 ms", "turns used")
    for interval in (100, 20):
        with tempfile.TemporaryDirectory() as folder:
            found = gaps_ms(Path(folder), interval_ms=interval, calls=chosen.calls)
        used = interval * len(found) / sum(found)
        cuts = statistics.quantiles(found, n=100)
        figures = (f"{min(found):.1f}", f"{cuts[49]:.1f}", f"{cuts[98]:.1f}", f"{used:.1%}")
        table.add_row(str(interval), *figures)
    Console().print(table)


if __name__ == "__main__":
    main()
else:
    bot = pushing_bot()
