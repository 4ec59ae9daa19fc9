"""Whose turn it is at the gate under load, beside a gate that goes by deadlines alone.

It drives the order and the outboxes that the dispatcher has, with a clock of its own: nothing is
called, and minutes take seconds. `by deadline`, as it was before: all conversations in one line, by
the earliest end of a reply token, pushes by a minute from their recording. Run it as
`python bench/turns.py`; with `--real` the loads go through the real processes, in their own time.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from rich.console import Console
from rich.progress import track
from rich.table import Table
from stack import Running, running

import linesim
from jobworker.effects import Send, SendMethod
from jobworker.line.gate_order import Order, Standing, Ticket
from jobworker.sending.conversation_outbox import (
    ConversationOutbox,
    LineEnds,
    Moment,
    PendingSend,
    SendLimits,
    standing_of,
)
from jobworker.sending.verdict import way_of
from linedesk.store.timers import timer_id
from linesim.model.calls import Call

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)
LIMITS = SendLimits()
# What is not sent by then is lost.
HORIZON_SECONDS = 1_200.0


@dataclass(frozen=True)
class Arrival:
    """A send that is recorded at a time: a reply, or else a push to the own chat."""

    at: float
    user: str
    is_reply: bool
    accepted: float | None = None
    """When its event came, where that is another time."""


@dataclass(frozen=True)
class Load:
    """What comes, at which interval of the gate, and whose waits are told."""

    name: str
    interval_seconds: float
    arrivals: Callable[[], Iterable[Arrival]]
    told: str = "person"
    """The first letters of the users whose waits count."""
    quota: float = math.inf
    is_real: bool = True
    """Whether the real processes can be given it."""


def timers(count: int, at: float = 0.0) -> Iterator[Arrival]:
    """So many timers of as many users at one moment, decided at 400 a second."""
    return (Arrival(at + n / 400, f"timer {n}", False) for n in range(count))


def messages(count: int, *, over: float, user: str = "person {}") -> Iterator[Arrival]:
    """So many messages, spread evenly; without a {} all of one user."""
    return (Arrival(n * over / count, user.format(n), True) for n in range(count))


def slowly_decided(count: int) -> Iterator[Arrival]:
    """The messages that one user sent at once, by a handler that takes 100 ms for each."""
    return (Arrival(n / 10, "flood", True, accepted=0.0) for n in range(count))


LOADS = (
    Load("400 timers, six people write", 0.05, lambda: [*timers(400), *messages(6, over=20)]),
    Load("1,000 timers, six people write", 0.1, lambda: [*timers(1_000), *messages(6, over=20)]),
    Load(
        "400 messages of one user, ten others",
        0.05,
        lambda: [*messages(400, over=1, user="flood"), *messages(10, over=5)],
    ),
    Load(
        "the same, decided at 10 a second",
        0.1,
        lambda: [*slowly_decided(400), *messages(10, over=30)],
        is_real=False,
    ),
    Load(
        "1,500 messages of one user, 148 others, quota 200",
        0.1,
        lambda: [*messages(1_500, over=5, user="flood"), *messages(148, over=120)],
        quota=200,
        is_real=False,
    ),
    Load("12 people a second for 200 s", 0.1, lambda: messages(2_400, over=200)),
    Load("700 people at once", 0.1, lambda: messages(700, over=1)),
    Load(
        "a push amid answers without end",
        0.1,
        lambda: [Arrival(5, "push", False), *messages(1_500, over=100)],
        told="push",
        is_real=False,
    ),
)


class Deadlines:
    """The gate's line before there were classes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticket]] = []
        self._numbers = itertools.count()

    @property
    def waiting(self) -> int:
        """How many wait; one that was moved counts twice."""
        return len(self._heap)

    def enter(self, ticket: Ticket, *, now: float, away: bool) -> bool:
        """As `Order.enter`."""
        self._push(ticket, ticket.standing)
        return True

    def move(self, ticket: Ticket, standing: Standing, *, now: float) -> None:
        """As `Order.move`."""
        self._push(ticket, standing)

    def arm(self) -> bool:
        """As `Order.arm`."""
        return bool(self._heap)

    def grant(self, *, now: float, turn_seconds: float) -> Ticket | None:
        """As `Order.grant`."""
        ticket = heapq.heappop(self._heap)[2]
        self._heap = [entry for entry in self._heap if entry[2] is not ticket]
        heapq.heapify(self._heap)
        return ticket

    def leave(self, ticket: Ticket, *, called: bool) -> bool:
        """As `Order.leave`."""
        return True

    def _push(self, ticket: Ticket, standing: Standing) -> None:
        deadline = min(standing.place, standing.live_place)
        heapq.heappush(self._heap, (deadline, next(self._numbers), ticket))


class NoLineEnds(LineEnds):
    """After a call the rest stayed where it was."""

    def called(self, id_: str, now: float) -> None:
        """Nothing."""


@dataclass
class Outcome:
    """What became of a load."""

    free: int = 0
    paid: int = 0
    lost: int = 0
    waits: list[float] = field(default_factory=list)
    by_person: dict[str, int] = field(default_factory=dict)
    """The pushes that each user's late replies cost."""


class Simulation:
    """One load at one gate."""

    def __init__(self, load: Load, order: Order | Deadlines, ends: LineEnds) -> None:
        self._load = load
        self._order = order
        self._ends = ends
        self._boxes: dict[str, ConversationOutbox] = {}
        self._heads: dict[Ticket, ConversationOutbox] = {}
        self._tickets: dict[str, Ticket] = {}
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Until nothing is left."""
        arrivals = sorted(self._load.arrivals(), key=lambda one: one.at)
        coming, now, number = iter(arrivals), 0.0, 0
        following = next(coming, None)
        while following is not None or self._order.waiting:
            while following is not None and (following.at <= now or not self._order.waiting):
                now = max(now, following.at)
                number += 1
                self._record(following, number)
                following = next(coming, None)
            if now > HORIZON_SECONDS:
                break
            now += self._turn(now)
        left = (one for box in self._boxes.values() for one in box.sends)
        self.outcome.lost += sum(one.send.way is SendMethod.REPLY for one in left)
        return self.outcome

    def _record(self, arrival: Arrival, number: int) -> None:
        at = BEGIN + timedelta(seconds=arrival.at)
        accepted = arrival.at if arrival.accepted is None else arrival.accepted
        way = SendMethod.REPLY if arrival.is_reply else SendMethod.PUSH
        send = Send(
            id=str(number),
            event_id=str(number),
            way=way,
            to=arrival.user,
            messages=[],
            retry_key="",
            at=at,
            token="token" if arrival.is_reply else None,
            token_from=BEGIN + timedelta(seconds=accepted) if arrival.is_reply else None,
        )
        id_ = f"main/{arrival.user}"
        standing = standing_of(send, id_, LIMITS, now=arrival.at, at=at)
        box = self._boxes.setdefault(id_, ConversationOutbox(id_, LIMITS, self._ends))
        one = PendingSend(
            send, standing, conversation=id_, limits=LIMITS, made=Moment(at, arrival.at)
        )
        moved = box.append(one)
        if len(box.sends) == 1:
            self._enter(box, arrival.at)
        elif moved is not None:
            self._order.move(moved.ticket, moved.standing, now=arrival.at)

    def _enter(self, box: ConversationOutbox, now: float) -> None:
        ticket = Ticket(box.standing(now))
        box.sends[0].first(ticket)
        self._heads[ticket] = box
        self._order.enter(ticket, now=now, away=False)

    def _turn(self, now: float) -> float:
        """One turn; returns how long it took."""
        interval = self._load.interval_seconds
        self._order.arm()
        ticket = self._order.grant(now=now, turn_seconds=interval)
        assert ticket is not None
        box = self._heads.pop(ticket)
        one = box.sends[0]
        one.turn(ticket)
        self._count(one.send, box.id.partition("/")[2], now)
        box.called(now)
        box.pop()
        self._order.leave(ticket, called=True)
        if box.sends:
            self._enter(box, now)
        else:
            del self._boxes[box.id]
        return interval

    def _count(self, send: Send, user: str, now: float) -> None:
        at = BEGIN + timedelta(seconds=now)
        outcome = self.outcome
        if user.startswith(self._load.told):
            outcome.waits.append((at - send.at).total_seconds())
        if send.way is not SendMethod.REPLY:
            return
        if way_of(send, at) is SendMethod.REPLY:
            outcome.free += 1
        elif outcome.paid >= self._load.quota:
            outcome.lost += 1
        else:
            outcome.paid += 1
            outcome.by_person[user] = outcome.by_person.get(user, 0) + 1


def echoing_bot() -> object:
    """The bot that the dispatcher runs: it answers, and its timers push."""
    from linedesk import Bot, Talk, TimerEvent

    bot = Bot()

    @bot.default()
    def answer(event: object, talk: Talk) -> None:
        talk.reply(talk.raw["message"]["text"])

    @bot.timer("tea")
    def tea(event: TimerEvent, talk: Talk) -> None:
        talk.push("お茶です")

    return bot


def real(load: Load) -> Outcome:
    """What becomes of a load that the real processes get."""
    interval_ms = f"{load.interval_seconds * 1000:.0f}"
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), LINE_ACCESS_INTERVAL_MS=interval_ms, BOT="turns:bot") as stack,
    ):
        arrivals = sorted(load.arrivals(), key=lambda one: one.at)
        users = {one.user: stack.sim.add_user(one.user) for one in arrivals}
        stack.until_taken(stack.sim.add_user("準備"), "準備")
        stack.sim.wait_for(lambda: len(stack.sim.calls) == 1, timeout=30)
        due = [users[one.user] for one in arrivals if not one.is_reply]
        if due:
            _set_timers(stack, due)
            stack.sim.wait_for(lambda: len(stack.sim.calls) > 1, timeout=60)
        said: dict[str, float] = {}
        pause, began = threading.Event(), time.monotonic()
        for number, one in enumerate(track([a for a in arrivals if a.is_reply], load.name)):
            pause.wait(max(0.0, began + one.at - time.monotonic()))
            text = f"{number}番"
            said[text] = time.monotonic()
            stack.sim.say(users[one.user], text)
        stack.sim.wait_for(lambda: _sends(stack.sim) > len(arrivals), timeout=HORIZON_SECONDS)
        return _judged(stack.sim.calls, said, {one.user_id: one.name for one in users.values()})


def _sends(sim: linesim.Sim) -> int:
    """How many sends LINE got; the quota is asked for as well."""
    return sum(call.endpoint in ("reply", "push") for call in sim.calls)


def _set_timers(stack: Running, users: Iterable[linesim.User]) -> None:
    """A timer of each, all due in a second; rows as the dispatcher makes them."""
    due = datetime.now(UTC) + timedelta(seconds=1)
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


def _judged(calls: Iterable[Call], said: Mapping[str, float], names: Mapping[str, str]) -> Outcome:
    outcome = Outcome()
    for call in calls:
        text = call.body["messages"][0]["text"] if isinstance(call.body, dict) else ""
        if text not in said:
            continue
        outcome.free += call.endpoint == "reply"
        outcome.paid += call.endpoint == "push"
        if names.get(call.user_id or "", "").startswith("person"):
            outcome.waits.append(call.started - said[text])
    outcome.lost = len(said) - outcome.free - outcome.paid
    return outcome


def main() -> None:
    """Simulate or measure, and print a table."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--real", action="store_true", help="through the real processes")
    if options.parse_args().real:
        measure()
    else:
        simulate()


def measure() -> None:
    """The loads that the real processes can be given."""
    table = Table("load", "interval", "free", "paid", "lost", "longest wait")
    for load in (one for one in LOADS if one.is_real):
        outcome = real(load)
        counts = (str(count) for count in (outcome.free, outcome.paid, outcome.lost))
        interval = f"{load.interval_seconds * 1000:.0f} ms"
        table.add_row(load.name, interval, *counts, f"{max(outcome.waits):.1f} s")
    Console().print(table)


def simulate() -> None:
    """All loads, by both orders."""
    table = Table("load", "interval", "gate", "free", "paid", "lost", "longest wait")
    for load in LOADS:
        runs = {
            "by deadline": Simulation(load, Deadlines(), NoLineEnds(LIMITS)).run(),
            "by class": Simulation(load, Order(), LineEnds(LIMITS)).run(),
        }
        for name, one in runs.items():
            is_first = name == "by deadline"
            table.add_row(
                load.name if is_first else "",
                f"{load.interval_seconds * 1000:.0f} ms" if is_first else "",
                name,
                *(str(count) for count in (one.free, one.paid, one.lost)),
                f"{max(one.waits):.1f} s" if one.waits else "never",
            )
        table.add_section()
    Console().print(table)
    Console().print("Replies only; the wait is that of the people, or of the push.")


if __name__ == "__main__":
    main()
else:
    bot = echoing_bot()
