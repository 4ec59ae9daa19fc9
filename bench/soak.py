"""`scripts/soak`: hours of steady mixed load with restarts; fails on growth or loss.

The load: messages with replies, pushes and timers, messages in groups, postbacks, users who block
the bot and come back, and webhooks with a wrong signature. The front desk and the dispatcher are
the real processes, linesim is LINE. The run has three phases. First both processes are restarted by
turns, by SIGTERM and by kill -9; measured are the seconds until the next answer. Then the
dispatcher is stopped for a while; measured is the time until it has caught up. Growth is judged in
the second half, without restarts.

Collections and the oplog are made small, so that the disk reaches its final size within the run.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import count, takewhile
from pathlib import Path
from typing import IO, Any

import requests
from linebot.v3.webhooks import FollowEvent, MessageEvent, PostbackEvent
from pymongo.database import Database
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import linesim
from bench.processes import until
from bench.report import machine, server_version
from bench.stack import DATABASE, environ_of, simulated_line
from linedesk import Bot, Talk, TimerEvent
from linedesk.setup import children
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod, free_port
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.documents import CALLS, DEADLETTERS, HISTORY, JOBS, SCHEDULE, STATUS
from linesim.judge.history import Place, asked_in, said_in
from linesim.model.deliveries import Delivery, Event
from linesim.model.world import Group, User

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")

USERS = 16
# Follow and block only: a message for them could rightly never arrive.
FICKLE_USERS = 4
GROUPS = 3
MEMBERS = 5
TIMER_SECONDS = 5.0
# How often each kind comes, of 100.
KINDS = {
    "reply": 50,
    "push": 10,
    "both": 5,
    "timer": 8,
    "group": 14,
    "tap": 6,
    "friend": 4,
    "forged": 3,
}

# Small enough to be full after a while; the retention of rows is in seconds. The dispatcher logs an
# error for each index whose retention is not linedesk's own, and leaves it as it is.
RECVQ_BYTES = 4 * MEGABYTE
RECORD_BYTES = {CALLS: 4 * MEGABYTE, JOBS: 4 * MEGABYTE, HISTORY: MEGABYTE}
OPLOG_MEGABYTES = 64
ROW_SECONDS = {SCHEDULE: ("endedAt", 300), STATUS: ("at", 300)}
INTERVAL_MS = 5

SAMPLE_SECONDS = 10.0
RETRY_SECONDS = 0.5
READY_SECONDS = 60.0
STOP_SECONDS = 40.0
SETTLE_SECONDS = 90.0
NEARLY_NOTHING = 3
"""Answers owed, which a steady load always has."""
RESTARTS = 12
RESTARTS_UNTIL = 0.3
"""Of the run."""
BACKLOG_FROM = 0.35
"""The same: from then the dispatcher stands still for BACKLOG_SECONDS, or a tenth of the run."""
BACKLOG_SECONDS = 120.0
SETTLED_FROM = 0.5
"""The same; the processes warm up before."""

bot = Bot()


@bot.add(MessageEvent)
def answer(event: MessageEvent, talk: Talk) -> None:
    """Carry out the first word of the text."""
    text = event.message.text
    talk.data["count"] = talk.data.get("count", 0) + 1
    if text.startswith("push"):
        talk.push(text)
    else:
        talk.reply(text)
    if text.startswith("both"):
        talk.push(f"{text}+")
    if text.startswith("timer"):
        talk.at(_rings_at(talk.raw), f"tea:{text}", text=text)


@bot.timer("tea")
def tea(event: TimerEvent, talk: Talk) -> None:
    """The second text of a message that set a timer."""
    talk.push(f"{event.data['text']}@timer")


@bot.add(PostbackEvent)
def tapped(event: PostbackEvent, talk: Talk) -> None:
    """Repeat the text of the button."""
    talk.reply(event.postback.data)


@bot.add(FollowEvent)
def welcome(event: FollowEvent, talk: Talk) -> None:
    """A text for each event, so that a second one would be seen."""
    talk.reply(f"welcome {talk.event_id}")


def _rings_at(event: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(event["timestamp"] / 1000, UTC) + timedelta(seconds=TIMER_SECONDS)


def expected(event: Event) -> Sequence[str]:
    """The bot's answers to an event, without its timer's."""
    match event["type"]:
        case "message":
            text = str(event["message"]["text"])
            return [text, f"{text}+"] if text.startswith("both") else [text]
        case "postback":
            return [event["postback"]["data"]]
        case "follow":
            return [f"welcome {event['webhookEventId']}"]
    return []


class Kept:
    """One of linedesk's processes, which can be restarted."""

    def __init__(self, name: str, environ: Mapping[str, str], log: IO[bytes]) -> None:
        self.name = name
        self._environ, self._log = environ, log
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The PID of the current process."""
        return self._process.pid

    def end(self, number: int) -> None:
        """End it by this signal."""
        self._process.send_signal(number)
        self._process.wait(STOP_SECONDS)

    def start(self) -> None:
        """Start it again, as systemd would."""
        self._process = self._start()

    def require_alive(self) -> None:
        """Raises RuntimeError if it has ended by itself."""
        if self._process.poll() is not None:
            raise RuntimeError(f"{self.name} ended with {self._process.returncode}; see its log")

    def stop(self) -> None:
        """End it in an orderly way."""
        children.stop(self._process, timeout_seconds=STOP_SECONDS)

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", self.name]
        return children.start(command, env=self._environ, stdout=self._log, stderr=self._log)


class Load(threading.Thread):
    """Sends the mixture at a steady rate; webhooks without a 2xx are redelivered until they have
    one.
    """

    def __init__(self, sim: linesim.Sim, *, rate: float, seed: int) -> None:
        super().__init__(name="soak-load")
        self.wrong: Counter[str] = Counter()
        """Answers to forged webhooks other than 401."""
        self.failure: BaseException | None = None
        self._sim, self._rate, self._chance = sim, rate, random.Random(seed)
        self._users = [sim.add_user(f"客{number}") for number in range(USERS)]
        self._fickle = [sim.add_user(f"友{number}", friend=False) for number in range(FICKLE_USERS)]
        members = [
            self._users[number : number + MEMBERS] for number in range(0, GROUPS * MEMBERS, MEMBERS)
        ]
        self._groups: list[Group] = [
            sim.add_group(f"組{number}", people) for number, people in enumerate(members)
        ]
        self._session = requests.Session()
        self._numbers = count(1)
        self._stopping = threading.Event()
        self._again: list[tuple[float, int, Delivery]] = []

    def run(self) -> None:
        """Until the stop, and until all is taken."""
        due = time.monotonic()
        try:
            while not self._stopping.is_set() or self._again:
                if self._again and self._again[0][0] <= time.monotonic():
                    self._keep(self._sim.redeliver(heapq.heappop(self._again)[2]))
                if self._stopping.is_set():
                    threading.Event().wait(RETRY_SECONDS / 10)
                elif not self._stopping.wait(max(0.0, min(due - time.monotonic(), RETRY_SECONDS))):
                    if time.monotonic() < due:
                        continue
                    due = max(due, time.monotonic() - 1) + self._chance.expovariate(self._rate)
                    self._send(self._chance.choices(list(KINDS), list(KINDS.values()))[0])
        except Exception as error:  # noqa: BLE001  # the main thread raises it
            self.failure = error

    def until_taken(self) -> None:
        """A first message, once the front desk takes it."""
        first = self._sim.say(self._users[0], "reply 0")
        until(
            lambda: first.delivered or self._sim.redeliver(first).delivered,
            "the front desk takes a webhook; see its log",
            seconds=READY_SECONDS,
            every=0.1,
        )

    def stop(self) -> None:
        """Nothing new; wait until the rest is taken."""
        self._stopping.set()
        self.join(SETTLE_SECONDS)
        self._session.close()

    def _send(self, kind: str) -> None:
        user, text = self._chance.choice(self._users), f"{kind} {next(self._numbers)}"
        match kind:
            case "group":
                group = self._chance.choice(self._groups)
                member = self._chance.choice(group.members)
                self._keep(self._sim.say(member, text, chat=group))
            case "tap":
                self._keep(self._sim.postback(user, text))
            case "friend":
                self._befriend(self._chance.choice(self._fickle))
            case "forged":
                self._forge(user, text)
            case _:
                self._keep(self._sim.say(user, text))

    def _befriend(self, user: User) -> None:
        self._keep(self._sim.block(user) if user.friend else self._sim.follow(user))

    def _forge(self, user: User, text: str) -> None:
        event = {"type": "message", "source": {"type": "user", "userId": user.user_id}}
        message = {"type": "text", "id": text, "text": text}
        body = json.dumps({"destination": "U", "events": [{**event, "message": message}]})
        headers = {"content-type": "application/json", "x-line-signature": "bm8="}
        url = str(self._sim.webhook_url)
        try:
            status = self._session.post(url, body, headers=headers, timeout=2).status_code
        except requests.RequestException:
            return  # it is being restarted
        if status != 401:
            self.wrong[f"a wrong signature was answered {status}"] += 1

    def _keep(self, delivery: Delivery) -> None:
        if not delivery.delivered:
            again_at = time.monotonic() + RETRY_SECONDS
            heapq.heappush(self._again, (again_at, next(self._numbers), delivery))


class Answers:
    """Finds for each event that was taken how long its answer took, a while at a time."""

    def __init__(self, sim: linesim.Sim) -> None:
        self._platform = sim.platform
        self._asked: dict[Place, float] = {}
        self._said: dict[Place, float] = {}
        self._deliveries = self._calls = 0

    def first_after(self, moment: float) -> float | None:
        """Seconds from this moment of time.monotonic() to the first answer after it."""
        return min((at - moment for at in self._said.values() if at > moment), default=None)

    def look(self) -> tuple[list[float], int]:
        """Milliseconds from the POST to each answer that came since, and how many are owed."""
        with self._platform.watch.reading():
            calls = self._platform.calls.since(self._calls)
            newest = (each for each in reversed(self._platform.deliveries))
            posts = list(takewhile(lambda each: each.number > self._deliveries, newest))[::-1]
        # Posts under way are checked again.
        ended = list(takewhile(lambda each: each.answered is not None, posts))
        before = set(self._said)
        for place, said in said_in(calls).items():
            self._said.setdefault(place, said[0].started)
        for asked in asked_in(ended, expected).values():
            for text in asked.texts if asked.accepted is not None else ():
                self._asked.setdefault((asked.chat, text), asked.posted)
        self._deliveries = ended[-1].number if ended else self._deliveries
        finished = list(takewhile(lambda call: call.finished is not None, calls))
        self._calls = finished[-1].number if finished else self._calls
        new = self._asked.keys() & self._said.keys() - before
        times = [(self._said[place] - self._asked[place]) * 1000 for place in new]
        return times, len(self._asked.keys() - self._said.keys())


@dataclass(frozen=True)
class Process:
    """The resources of one process."""

    rss_mb: float
    threads: int
    descriptors: int
    cpu_seconds: float


@dataclass(frozen=True)
class Sample:
    """One sample of all figures."""

    seconds: float
    """Since the start."""
    processes: Mapping[str, Process]
    mongod_mb: float
    """On the disk, without its log."""
    spool_mb: float
    recvq_mb: float
    oplog_minutes: float
    """From its oldest entry to its newest."""
    answers: int
    p50_ms: float | None
    p99_ms: float | None
    owed: int
    """Answers that were not there at this moment."""

    def series(self) -> Iterator[tuple[str, float]]:
        """All figures by name."""
        for name, process in self.processes.items():
            yield f"{name} RSS MB", process.rss_mb
            yield f"{name} threads", process.threads
            yield f"{name} descriptors", process.descriptors
        yield "mongod's disk MB", self.mongod_mb
        yield "spool MB", self.spool_mb
        if self.p50_ms is not None and self.p99_ms is not None:
            yield "POST to answer p50 ms", self.p50_ms
            yield "POST to answer p99 ms", self.p99_ms
        yield "answers owed", self.owed


def process_of(pid: int) -> Process:
    """Read from /proc (proc(5)); raises OSError if it has ended."""
    proc = Path(f"/proc/{pid}")
    fields = (proc / "stat").read_text().rpartition(")")[2].split()
    return Process(
        rss_mb=int(fields[21]) * PAGE / MEGABYTE,
        threads=int(fields[17]),
        descriptors=len(list((proc / "fd").iterdir())),
        cpu_seconds=(int(fields[11]) + int(fields[12])) / TICKS,
    )


def disk_mb(folder: Path) -> float:
    """The size of the files below it, without logs; a file deleted during the count is ignored."""
    total = 0
    for path in folder.rglob("*"):
        if path.suffix != ".log":
            with suppress(FileNotFoundError):
                total += path.stat().st_blocks * 512
    return total / MEGABYTE


# Growth.


@dataclass(frozen=True)
class Allowed:
    """The rise of a figure from which it counts as growth: the larger of both."""

    share: float
    amount: float


# By how a figure's name ends. Threads and connections come and go by a few; latency is also that
# of the machine's other work.
ALLOWED = {
    "RSS MB": Allowed(0.04, 3),
    "threads": Allowed(0, 2),
    "descriptors": Allowed(0, 4),
    "disk MB": Allowed(0.05, 8),
    "spool MB": Allowed(0.05, 1),
    "p50 ms": Allowed(0.5, 20),
    "p99 ms": Allowed(1, 100),
    "owed": Allowed(0, 3),
}
# It is LINE and the load, and keeps a record of all that was sent for the verdict.
NOT_JUDGED = "linesim"


@dataclass(frozen=True)
class Trend:
    """One figure while all processes lived on: medians of the second and of the last quarter."""

    name: str
    before: float
    after: float
    per_hour: float
    grew: bool


def trend_of(name: str, points: Sequence[tuple[float, float]]) -> Trend:
    """Judge (seconds, value) points, of which there have to be at least eight.

    Medians of quarters, so that a few points far off change nothing; the first quarter is left out
    as a last part of the warm-up.
    """
    quarter = len(points) // 4
    if quarter < 2:
        raise ValueError(f"{name}: {len(points)} points are too few to judge")
    early, late = points[quarter : 2 * quarter], points[-quarter:]
    before, after = (statistics.median(value for _, value in part) for part in (early, late))
    apart = statistics.median(at for at, _ in late) - statistics.median(at for at, _ in early)
    allowed = next(bound for end, bound in ALLOWED.items() if name.endswith(end))
    grew = after - before > max(allowed.share * before, allowed.amount)
    return Trend(name, before, after, (after - before) / apart * 3600, grew)


def trends_of(samples: Sequence[Sample], *, since: float) -> list[Trend]:
    """Every figure from this second on."""
    points: dict[str, list[tuple[float, float]]] = {}
    for sample in samples:
        if sample.seconds >= since:
            for name, value in sample.series():
                points.setdefault(name, []).append((sample.seconds, value))
    return [trend_of(name, found) for name, found in points.items() if NOT_JUDGED not in name]


# The run.


class Soak:
    """Everything that runs. Belongs to the main thread."""

    def __init__(self, stack: ExitStack, results: Path, *, rate: float, seed: int) -> None:
        self.folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        self.mongod = stack.enter_context(
            EmbeddedMongod(
                self.folder / "mongod", extra=["--oplogSize", str(OPLOG_MEGABYTES), "--quiet"]
            )
        )
        client = stack.enter_context(connect(self.mongod.uri, app_name="soak"))
        self.database: Database[Any] = client[DATABASE]
        make_small(self.database)
        port = free_port()
        self.sim = stack.enter_context(simulated_line(port))
        (self.folder / "spool").mkdir()
        environ = environ_of(
            self.mongod.uri,
            line=self.sim.url,
            LINE_ACCESS_INTERVAL_MS=str(INTERVAL_MS),
            FRONTDESK_PORT=str(port),
            SPOOL_PATH=str(self.folder / "spool" / "spool.db"),
            BOT="bench.soak:bot",
        )
        self.kept = []
        for name in ("frontdesk", "dispatcher"):
            log = stack.enter_context((results / f"{name}.log").open("wb"))
            self.kept.append(Kept(name, environ, log))
            stack.callback(self.kept[-1].stop)
        self.load = Load(self.sim, rate=rate, seed=seed)
        self.load.until_taken()
        self.answers = Answers(self.sim)
        self._began = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.monotonic() - self._began

    def sample(self) -> Sample:
        """Take a sample; raises the error that ended the load or a process."""
        if self.load.failure is not None:
            raise self.load.failure
        for kept in self.kept:
            kept.require_alive()
        pids = {"mongod": self.mongod.pid or 0, NOT_JUDGED: os.getpid()}
        pids |= {kept.name: kept.pid for kept in self.kept}
        times, owed = self.answers.look()
        cuts = statistics.quantiles(times, n=100) if len(times) > 1 else None
        oplog = self.database.client.local["oplog.rs"]
        ends = [
            row["ts"].time
            for order in (1, -1)
            for row in oplog.find().sort("$natural", order).limit(1)
        ]
        return Sample(
            seconds=round(self.seconds, 1),
            processes={name: process_of(pid) for name, pid in pids.items()},
            mongod_mb=disk_mb(self.folder / "mongod"),
            spool_mb=disk_mb(self.folder / "spool"),
            recvq_mb=self.database.command("collStats", "recvq")["size"] / MEGABYTE,
            oplog_minutes=(ends[1] - ends[0]) / 60,
            answers=len(times),
            p50_ms=cuts[49] if cuts else None,
            p99_ms=cuts[98] if cuts else None,
            owed=owed,
        )

    def settle(self) -> None:
        """Wait until all is answered and every timer has fired, or until the time limit."""
        self.load.stop()
        deadline, pause = time.monotonic() + SETTLE_SECONDS, threading.Event()
        while time.monotonic() < deadline:
            _, owed = self.answers.look()
            if not owed and not self.database[SCHEDULE].find_one({"runAt": {"$ne": None}}):
                return
            pause.wait(1.0)

    def problems(self) -> list[str]:
        """Lost, doubled or wrong answers, once all has settled."""
        report = linesim.check(self.sim, expect=expected, expect_timers=self._timers())
        letters = self.database[DEADLETTERS].find()
        found = [*report.problems(), *self.load.wrong]
        if self.load.is_alive():
            found.append("webhooks that the front desk never took")
        return found + [f"dead letter {row['_id']}: {row['cause']}" for row in letters]

    def _timers(self) -> list[linesim.Timer]:
        with self.sim.platform.watch.reading():
            posts = [each for each in self.sim.platform.deliveries if each.delivered]
        events = {event["webhookEventId"]: event for each in posts for event in each.events}
        return [
            linesim.Timer(
                event["source"]["userId"],
                f"{event['message']['text']}@timer",
                _rings_at(event).timestamp(),
                SETTLE_SECONDS,
            )
            for event in events.values()
            if event["type"] == "message" and event["message"]["text"].startswith("timer")
        ]


def make_small(database: Database[Any]) -> None:
    """The collections, with ends that a short run reaches."""
    for name, size in RECORD_BYTES.items():
        database.create_collection(name, capped=True, size=size)
    create_collections(database, capped_bytes=RECVQ_BYTES)
    for name, (field, seconds) in ROW_SECONDS.items():
        index = {"keyPattern": {field: 1}, "expireAfterSeconds": seconds}
        database.command("collMod", name, index=index)


def restarts_in(seconds: float) -> Iterator[tuple[float, int, int]]:
    """When which process gets which signal: front desk and dispatcher by turns."""
    for number in range(RESTARTS):
        at = seconds * RESTARTS_UNTIL * (number + 1) / RESTARTS
        yield at, number % 2, signal.SIGKILL if number // 2 % 2 else signal.SIGTERM


def caught_up(soaked: Soak, seconds: float) -> Mapping[str, float]:
    """Stop the dispatcher for so long, and start it: the answers owed then, and the seconds until
    none is owed.

    Raises RuntimeError if it does not catch up in SETTLE_SECONDS.
    """
    dispatcher, pause = soaked.kept[1], threading.Event()
    dispatcher.end(signal.SIGTERM)
    pause.wait(seconds)
    dispatcher.start()
    began, (_, owed) = soaked.seconds, soaked.answers.look()
    while soaked.answers.look()[1] > NEARLY_NOTHING:
        if soaked.seconds > began + SETTLE_SECONDS:
            raise RuntimeError("the dispatcher did not catch up")
        pause.wait(0.2)
    return {"stopped": seconds, "owed": owed, "caught up": round(soaked.seconds - began, 1)}


Tell = Callable[[float, str], None]


def soak(soaked: Soak, seconds: float, output: IO[str], tell: Tell) -> list[Sample]:
    """Load for `seconds`; each sample and each restart is a line of `output` at once."""
    samples: list[Sample] = []
    restarts = deque(restarts_in(seconds))
    struck: list[tuple[str, float]] = []
    backlog: Mapping[str, float] = {}
    pause = threading.Event()

    def write(row: Mapping[str, object]) -> None:
        print(json.dumps({"seconds": round(soaked.seconds, 1), **row}), file=output, flush=True)

    soaked.load.start()
    while (now := soaked.seconds) < seconds:
        if restarts and restarts[0][0] <= now:
            _, place, number = restarts.popleft()
            kept = soaked.kept[place]
            words = f"{kept.name}, {signal.Signals(number).name}"
            struck.append((words, time.monotonic()))
            kept.end(number)
            kept.start()
        if now >= len(samples) * SAMPLE_SECONDS:
            samples.append(soaked.sample())
            write(asdict(samples[-1]))
        if now >= seconds * BACKLOG_FROM and not backlog:
            tell(now, "the dispatcher stands still, then catches up")
            backlog = caught_up(soaked, min(BACKLOG_SECONDS, seconds / 10))
            for words, moment in struck:
                write({"restarted": words, "next answer": soaked.answers.first_after(moment)})
            write(backlog)
        said = f"{len(restarts)} restarts left" if restarts else "watching for growth"
        tell(now, said)
        pause.wait(0.5)
    tell(seconds, "settling")
    soaked.settle()
    return samples


def table_of(trends: Sequence[Trend], title: str) -> Table:
    """The figures of the part without restarts."""
    table = Table("", title=title)
    for words in ("second quarter", "last quarter", "an hour"):
        table.add_column(words, justify="right")
    table.add_column("")
    for trend in trends:
        figures = (f"{trend.before:.1f}", f"{trend.after:.1f}", f"{trend.per_hour:+.1f}")
        table.add_row(trend.name, *figures, "[red]grew[/]" if trend.grew else "")
    return table


def main(arguments: Sequence[str]) -> int:
    """Run and judge; 1 if something grew or was lost."""
    options = argparse.ArgumentParser(prog="scripts/soak", description=__doc__)
    options.add_argument("--hours", type=float, default=2.0)
    options.add_argument("--rate", type=float, default=8.0, help="webhooks a second")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--output", type=Path, default=Path("soak-results"), help="a folder")
    chosen = options.parse_args(arguments)
    if chosen.hours * 3600 < 300:
        options.error("--hours: less than 5 minutes (0.084) show nothing")
    console = Console()
    results: Path = chosen.output
    results.mkdir(parents=True, exist_ok=True)
    seconds = chosen.hours * 3600
    columns = (BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with ExitStack() as stack:
        output = stack.enter_context((results / "soak.jsonl").open("w", encoding="utf-8"))
        soaked = Soak(stack, results, rate=chosen.rate, seed=chosen.seed)
        machinery = {"MongoDB": server_version(soaked.mongod.uri), "machine": machine()}
        chosen_words = {"hours": chosen.hours, "rate": chosen.rate, "seed": chosen.seed}
        print(json.dumps({**machinery, **chosen_words}), file=output, flush=True)
        progress = stack.enter_context(Progress(*columns, console=console))
        task = progress.add_task("", total=seconds)

        def tell(done: float, words: str) -> None:
            progress.update(task, completed=done, description=words)

        samples = soak(soaked, seconds, output, tell)
        trends = trends_of(samples, since=seconds * SETTLED_FROM)
        problems = [f"{trend.name} grew" for trend in trends if trend.grew] + soaked.problems()
        verdict = {"trends": [asdict(trend) for trend in trends], "problems": problems}
        print(json.dumps({"verdict": verdict}, ensure_ascii=False), file=output, flush=True)
    console.print(table_of(trends, f"{chosen.hours:g} hours at {chosen.rate:g} webhooks/s"))
    for problem in problems:
        console.print(f"PROBLEM {problem}", style="red", highlight=False)
    console.print("nothing grew, every answer came once" if not problems else "not as promised")
    console.print(f"written: {results}/soak.jsonl")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
