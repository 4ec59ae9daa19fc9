"""Milliseconds from sending a webhook to the start of the bot's handler, at a steady rate.

The front desk and the dispatcher run as the real processes on a real mongod; the times are of
CLOCK_MONOTONIC, which all processes of a machine share. What MongoDB takes of it is measured first,
at the same rate: a bare insert on a journalled majority, until a bare change stream has it. Run it
as `python bench/latency.py`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import requests
from pymongo.collection import Collection
from rich.console import Console
from rich.progress import track
from rich.table import Table
from stack import running

import linesim
from linedesk.store.collections import create_collections
from linedesk.store.documents import RECVQ, make_document
from linedesk.store.insert import insert_documents
from linesim.model.deliveries import sign

LOG_NAME = "STOPWATCH_LOG"


def stopwatch_bot() -> object:
    """The bot that the dispatcher runs: it writes down when its handler starts."""
    from linedesk import Bot, Talk

    bot = Bot()
    log = Path(os.environ[LOG_NAME]).open("a", buffering=1)  # noqa: SIM115  # open as long as the bot

    @bot.default()
    def note(event: object, talk: Talk) -> None:
        log.write(f"{talk.event_id} {time.monotonic()}\n")

    return bot


Times = dict[str, list[float]]


def measure(folder: Path, *, rate: float, events: int) -> tuple[Times, str]:
    """Milliseconds of each event, bare and through linedesk, and the version of MongoDB."""
    log = folder / "started.log"
    log.touch()
    with running(folder, BOT="latency:bot", **{LOG_NAME: str(log)}) as stack:
        # In a database of its own: the dispatcher would handle these, too.
        apart = stack.database.client["bare"]
        create_collections(apart)
        bare = bare_times(apart[RECVQ], rate=rate, events=events)
        sent = send(stack.sim, log, rate=rate, events=events)
        times = {"bare insert to change stream": bare, "webhook to handler": waited(sent, log)}
        return times, stack.version


def bare_times(recvq: Collection[Any], *, rate: float, events: int) -> list[float]:
    """From the start of an insert until a change stream has it, in ms."""
    sent: dict[str, float] = {}
    seen: list[float] = []
    opened = threading.Event()

    def watch() -> None:
        with recvq.watch() as stream:
            opened.set()
            while len(seen) < events:
                event_id = stream.next()["fullDocument"]["eventId"]
                seen.append((time.monotonic() - sent[event_id]) * 1000)

    watcher = threading.Thread(target=watch)
    watcher.start()
    opened.wait(10)
    pause, began = threading.Event(), time.monotonic()
    for number in track(range(events), f"bare, {rate:.0f} events/s"):
        pause.wait(max(0.0, began + number / rate - time.monotonic()))
        event = {"webhookEventId": f"bare-{number}", "message": {"type": "text", "text": "はい"}}
        document = make_document(event, channel="bench", accept_time=datetime.now(UTC))
        sent[document["eventId"]] = time.monotonic()
        insert_documents(recvq, [document], timeout_seconds=2)
    watcher.join(10)
    return sorted(seen)


def send(sim: linesim.Sim, log: Path, *, rate: float, events: int) -> dict[str, float]:
    """Send at a steady rate, after a first event that has come through; when each was sent."""
    user = sim.add_user("花子")
    pause = threading.Event()
    while not sim.say(user, "準備").delivered or not log.read_text():
        pause.wait(0.1)
    sent: dict[str, float] = {}
    posts = [signed(sim, sim.drafts.text(sim.add_user(f"客{n}"), "はい")) for n in range(events)]
    with requests.Session() as session:
        began = time.monotonic()
        for number, (event_id, body, headers) in enumerate(track(posts, f"{rate:.0f} events/s")):
            pause.wait(max(0.0, began + number / rate - time.monotonic()))
            sent[event_id] = time.monotonic()
            session.post(sim.webhook_url, data=body, headers=headers, timeout=2).raise_for_status()
    return sent


def signed(sim: linesim.Sim, event: dict[str, Any]) -> tuple[str, bytes, dict[str, str]]:
    """One event's id, the webhook's body, and its signature."""
    body = json.dumps({"destination": "U" + "0" * 32, "events": [event]}).encode()
    headers = {"content-type": "application/json", "x-line-signature": sign(sim.secret, body)}
    return event["webhookEventId"], body, headers


def waited(sent: dict[str, float], log: Path) -> list[float]:
    """How long each event waited for its handler, in ms, once all have started."""
    deadline, pause = time.monotonic() + 30, threading.Event()
    while time.monotonic() < deadline:
        rows = (line.split() for line in log.read_text().splitlines())
        started = {row[0]: float(row[1]) for row in rows}
        if sent.keys() <= started.keys():
            return sorted((started[name] - at) * 1000 for name, at in sent.items())
        pause.wait(0.1)
    raise SystemExit("some events never reached the handler")


def main() -> None:
    """Measure and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rate", type=float, default=100.0, help="events a second")
    options.add_argument("--events", type=int, default=2_000)
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times, version = measure(Path(folder), rate=chosen.rate, events=chosen.events)
    title = f"{chosen.rate:.0f} events/s, MongoDB {version}"
    table = Table("", "p50 ms", "p90 ms", "p99 ms", "max ms", title=title)
    for name, measured in times.items():
        cuts = statistics.quantiles(measured, n=100)
        figures = (cuts[49], cuts[89], cuts[98], measured[-1])
        table.add_row(name, *(f"{value:.1f}" for value in figures))
    Console().print(table)


if __name__ == "__main__":
    main()
else:
    bot = stopwatch_bot() if LOG_NAME in os.environ else None
