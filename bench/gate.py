"""How many of the possible turns a saturated gate uses: pushes wait all the time, 20 threads.

The dispatcher runs as the real process on a real mongod, and linesim answers. The gaps are those of
the dispatcher's own clock, between the starts of two calls in a row; a gate that wasted nothing
would show the interval each time. Run it as `python bench/gate.py`.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import tempfile
import threading
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table

import linesim
from linedesk.compose import children
from linedesk.compose.private_mongod import EmbeddedMongod, free_port
from linedesk.store.client import connect
from linedesk.store.collections import create_collections

ROOT = Path(__file__).resolve().parent.parent
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
    port = free_port()
    url = f"http://127.0.0.1:{port}/callback"
    with (
        EmbeddedMongod(folder / "mongod") as mongod,
        linesim.running(rate_limits=False, webhook_url=url) as sim,
        log.open("wb") as output,
    ):
        with connect(mongod.uri, app_name="bench") as client:
            create_collections(client["line_bot"])
        environ = {
            **os.environ,
            "LINE_CHANNEL_SECRET": sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": sim.token,
            "LINE_API_BASE": sim.url,
            "LINE_ACCESS_INTERVAL_MS": str(interval_ms),
            "MONGODB_URI": mongod.uri,
            "FRONTDESK_PORT": str(port),
            "SPOOL_PATH": str(folder / "spool.db"),
            "BOT": "gate:bot",
            "PYTHONPATH": f"{ROOT / 'bench'}{os.pathsep}{ROOT}",
        }
        started = [
            children.start(
                [sys.executable, "-m", *words], env=environ, stdout=output, stderr=output
            )
            for words in (["frontdesk"], ["dispatcher", "--verbose"])
        ]
        try:
            _saturate(sim, calls)
        finally:
            for process in started:
                children.stop(process, timeout_seconds=10)
    # The first one tells of no call before it, and the last ones may have been waited for.
    return [float(found) for found in TURN.findall(log.read_text("utf-8"))][1:calls]


def _saturate(sim: linesim.Sim, calls: int) -> None:
    users = [sim.add_user(f"客{n}") for n in range(USERS)]
    pause = threading.Event()
    while not sim.say(users[0], str(calls // USERS)).delivered:
        pause.wait(0.1)
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
