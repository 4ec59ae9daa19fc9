"""Milliseconds from a webhook to its handler and to the call of LINE, at steady rates.

The front desk and the dispatcher run as the real processes on a real mongod, with
LINE_ACCESS_INTERVAL_MS=0. MongoDB's part is measured at the same rate: a bare insert on a
journalled majority, until a bare change stream has it. Each event is due at a time that is fixed
beforehand, and its wait is measured from that time. A slow answer therefore delays no other event
and hides no wait. All times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import itertools
import os
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pymongo.collection import Collection as Stored
from rich.console import Console

from bench.free_line import free_line
from bench.load import SteadySender
from bench.report import BenchFailed, Figures, Report, Row, by_turns, percentiles
from bench.stack import Running, running
from bench.webhooks import SENTENCE, USERS, ids_of, request_of, text_event
from linedesk.setup.collections import create_collections
from linedesk.store.documents import RECVQ, make_document
from linedesk.store.insert import insert_documents

LOG_NAME = "STARTED_LOG"
BARE = "bare insert to change stream"
HANDLER = "linedesk: POST to handler start"
CALL = "linedesk: POST to the call's arrival at LINE"
Measure = Callable[[float, int], Sequence[float]]
"""The milliseconds of a number of events, by their rate and number."""
# The bot's actions for a message.
NOTE, ANSWER = "note", "answer"
FEWEST_EVENTS = 200
# As many bare inserts wait for their answers at a time.
INSERTING = 64
WARM_UP_EVENTS, WARM_UP_RATE = 1_000, 250.0
# After this time without another arrival the rest counts as lost.
STILL_SECONDS = 30.0


def stopwatch_bot() -> object:
    """The bot that the dispatcher runs: it writes down when its handler starts, or answers."""
    from linebot.v3.webhooks import MessageEvent

    from linedesk import Bot, Talk

    bot = Bot()
    log = Path(os.environ[LOG_NAME]).open("a", buffering=1)  # noqa: SIM115  # open as long as the bot

    @bot.add(MessageEvent)
    def note(event: MessageEvent, talk: Talk) -> None:
        if talk.raw["message"]["text"] == ANSWER:
            talk.reply(talk.event_id)
        else:
            # In one write, since handlers of several threads share the log.
            log.write(f"{talk.event_id} {time.monotonic()}\n")

    return bot


class Arrivals:
    """Reads a log of lines, each of an event id and a time; the first line of each event counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self._at: dict[str, float] = {}
        self._offset = 0

    def of(self, ids: Collection[str]) -> Mapping[str, float]:
        """Once all of these have arrived; raises BenchFailed after STILL_SECONDS without another
        one.
        """
        pause, deadline = threading.Event(), time.monotonic() + STILL_SECONDS
        while missing := len(set(ids) - self._at.keys()):
            if self._read():
                deadline = time.monotonic() + STILL_SECONDS
            elif time.monotonic() > deadline:
                raise BenchFailed(f"{missing} events did not arrive")
            else:
                pause.wait(0.1)
        return self._at

    def _read(self) -> int:
        with self.path.open() as log:
            log.seek(self._offset)
            text = log.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in whole.splitlines():
            event_id, at = line.split()
            self._at.setdefault(event_id, float(at))
        return len(whole)


@dataclass(frozen=True)
class Desk:
    """The processes, and the log of arrival times."""

    stack: Running
    handled: Arrivals
    called: Arrivals
    numbers: Iterator[int]

    def milliseconds(self, text: str, rate: float, events: int) -> list[float]:
        """From the time that each event was due to its arrival in the log."""
        made = [text_event(next(self.numbers) % USERS, text) for _ in range(events)]
        requests = [request_of(event) for event in made]
        url = self.stack.sim.webhook_url or ""
        port = int(url.rpartition(":")[2].partition("/")[0])
        log = self.called if text == ANSWER else self.handled
        due = SteadySender(port).send(requests, rate)
        ids = ids_of(made)
        arrived = log.of(ids)
        return [(arrived[id_] - at) * 1000 for id_, at in zip(ids, due, strict=True)]


def bare_milliseconds(recvq: Stored[Any], rate: float, events: int) -> list[float]:
    """From the time that each insert was due until a change stream has it."""
    due: dict[str, float] = {}
    waited: list[float] = []
    opened = threading.Event()

    def watch() -> None:
        with recvq.watch(max_await_time_ms=1_000) as stream:
            opened.set()
            until = time.monotonic() + events / rate + STILL_SECONDS
            while len(waited) < events and time.monotonic() < until:
                change = stream.try_next()
                if change is not None:
                    event_id = change["fullDocument"]["eventId"]
                    waited.append((time.monotonic() - due[event_id]) * 1000)

    documents = [
        make_document(event, channel="bench", accept_time=datetime.now(UTC))
        for event in (text_event(number % USERS, SENTENCE) for number in range(events))
    ]
    watcher = threading.Thread(target=watch)
    watcher.start()
    opened.wait(10)
    with ThreadPoolExecutor(INSERTING) as threads:
        # Their connections are made before.
        list(threads.map(lambda _: recvq.find_one({}, {"_id": 1}), range(INSERTING)))
        began = time.monotonic() + 0.05
        inserts = []
        for number, document in enumerate(documents):
            at = began + number / rate
            due[document["eventId"]] = at
            time.sleep(max(0.0, at - time.monotonic()))
            inserts.append(
                threads.submit(insert_documents, recvq, [document], timeout_seconds=STILL_SECONDS)
            )
        for insert in inserts:
            insert.result()
    watcher.join()
    if len(waited) < events:
        raise BenchFailed(f"{events - len(waited)} of {events} inserts never came")
    return waited


@contextmanager
def started(folder: Path) -> Iterator[Desk]:
    """The processes, warm: each user has written."""
    handled, called = Arrivals(folder / "handled.log"), Arrivals(folder / "called.log")
    with ExitStack() as stack:
        settings = {
            "BOT": "bench.latency:bot",
            "LINE_API_BASE": stack.enter_context(free_line(called.path)),
            "LINE_ACCESS_INTERVAL_MS": "0",
            LOG_NAME: str(handled.path),
        }
        house = stack.enter_context(running(folder, settings=settings))
        house.until_taken(house.sim.add_user("花子"), NOTE)
        desk = Desk(house, handled, called, itertools.count())
        for text in (NOTE, ANSWER):
            desk.milliseconds(text, WARM_UP_RATE, WARM_UP_EVENTS)
        yield desk


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    parser.set_defaults(rounds=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[10.0, 100.0, 500.0, 1_000.0])
    parser.add_argument(
        "--seconds",
        type=float,
        default=10.0,
        help=f"at each rate (%(default)s), with {FEWEST_EVENTS} events at least",
    )


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """All by turns at each rate."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        desk = stack.enter_context(started(folder))
        # In a database of its own: the dispatcher would handle these, too.
        apart = desk.stack.database.client["bare"]
        create_collections(apart)
        measures: dict[str, Measure] = {
            BARE: partial(bare_milliseconds, apart[RECVQ]),
            HANDLER: partial(desk.milliseconds, NOTE),
            CALL: partial(desk.milliseconds, ANSWER),
        }
        versions = {"MongoDB": desk.stack.version}
        rows = [row for rate in options.rates for row in at_rate(measures, rate, options, console)]
    return [
        Report(
            "from the time that an event is due",
            rows,
            BARE,
            versions=versions,
            settings={"LINE_ACCESS_INTERVAL_MS": 0},
        )
    ]


def at_rate(
    measures: Mapping[str, Measure], rate: float, options: argparse.Namespace, console: Console
) -> list[Row]:
    """The rows of one rate."""
    events = max(FEWEST_EVENTS, int(rate * options.seconds))

    def figures(measure: Measure) -> Figures:
        return percentiles(measure(rate, events))

    variants = {name: partial(figures, measure) for name, measure in measures.items()}
    return by_turns(variants, options.rounds, console, case={"events/s": rate})


bot = stopwatch_bot() if LOG_NAME in os.environ else None
