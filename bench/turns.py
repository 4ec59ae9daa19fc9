"""The gate under a load: calls, seconds, free and paid replies, compared with the earlier gate.

It uses the dispatcher's order and outboxes with a simulated clock: no calls are made, and minutes
take seconds. `before`: one queue for all conversations, ordered by the earliest end of a reply
token, with pushes a minute after their recording; each send is a call. With `--real` the loads go
through the real processes, in their own time. `paid` counts users like LINE, also for pushes; the
wait is that of the writing users, or of the pushes if a load consists of pushes.
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import math
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from rich.console import Console

import linesim
from bench.report import BenchFailed, Figures, Report, by_turns
from bench.stack import running
from dispatcher.conversations.conversations import Conversation
from jobworker.effects import Send, SendMethod
from jobworker.line.gate_order import Order, Ticket
from jobworker.sending.batch import company_of
from jobworker.sending.conversation_outbox import (
    Budget,
    ConversationOutbox,
    Enter,
    Go,
    MakeLetters,
    Moment,
    Move,
    PendingSend,
    SendLimits,
    standing_of,
)
from jobworker.sending.late_replies import LateReplies
from linesim.model.calls import Call

BEGIN = datetime(2026, 11, 22, tzinfo=UTC)
LIMITS = SendLimits()
# Sends that are not sent by then count as lost.
HORIZON_SECONDS = 1_200.0


@dataclass(frozen=True)
class Arrival:
    """A send that is recorded at a time: a reply, or a push to its own chat."""

    at: float
    user: str
    is_reply: bool
    accepted: float | None = None
    """When its event came, where that is another time."""
    text: str = ""
    """The text; a different one for each send if empty."""


@dataclass(frozen=True)
class Load:
    """The arrivals, the gate's interval, and the users whose waits are reported."""

    name: str
    interval_seconds: float
    arrivals: Callable[[], Iterable[Arrival]]
    told: str = "person"
    """The first letters of the users whose waits count."""
    quota: float = math.inf
    is_real: bool = True
    """Whether the real processes can be given it."""


def timers(count: int, *, text: str = "", a_second: int = 400) -> Iterator[Arrival]:
    """`count` timers of as many users at one moment, decided at `a_second` a second."""
    return (Arrival(n / a_second, f"timer {n}", False, text=text) for n in range(count))


def messages(count: int, *, over: float, user: str = "person {}") -> Iterator[Arrival]:
    """`count` messages, spread evenly; without a {} all of one user."""
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
    ),
    Load("12 people a second for 200 s", 0.1, lambda: messages(2_400, over=200)),
    Load("700 people at once", 0.1, lambda: messages(700, over=1)),
    Load(
        "the same text to 300 users at one moment",
        0.1,
        lambda: timers(300, text="お茶です"),
        told="timer",
    ),
    Load(
        "40 users write five messages each, at once",
        0.1,
        lambda: [one for n in range(5) for one in messages(40, over=0.1)],
    ),
    Load(
        "a push amid answers without end",
        0.1,
        lambda: [Arrival(5, "push", False), *messages(1_500, over=100)],
        told="push",
        is_real=False,
    ),
)


@dataclass
class Outcome:
    """The result of a load."""

    calls: int = 0
    seconds: float = 0.0
    """Until the last call."""
    free: int = 0
    paid: int = 0
    """The users that LINE counts, for pushes and late replies."""
    lost: int = 0
    """Replies and pushes that did not arrive."""
    waits: list[float] = field(default_factory=list)


def send_of(arrival: Arrival, number: int) -> Send:
    """The send that an arrival records."""
    accepted = arrival.at if arrival.accepted is None else arrival.accepted
    return Send(
        id=str(number),
        event_id=str(number),
        way=SendMethod.REPLY if arrival.is_reply else SendMethod.PUSH,
        to=user_id(arrival.user),
        messages=[{"type": "text", "text": arrival.text or str(number)}],
        retry_key="key",
        at=BEGIN + timedelta(seconds=arrival.at),
        token="token" if arrival.is_reply else None,
        token_from=BEGIN + timedelta(seconds=accepted) if arrival.is_reply else None,
    )


def user_id(name: str) -> str:
    """As LINE's begin."""
    return f"U{name}"


class Simulation(ABC):
    """One load at one gate; subclasses implement the gate."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self.outcome = Outcome()

    def run(self) -> Outcome:
        """Run until no send is left."""
        arrivals = sorted(self._load.arrivals(), key=lambda one: one.at)
        coming, now, number = iter(arrivals), 0.0, 0
        following = next(coming, None)
        while following is not None or self.waits:
            while following is not None and (following.at <= now or not self.waits):
                now = max(now, following.at)
                number += 1
                self.record(following, send_of(following, number))
                following = next(coming, None)
            if now > HORIZON_SECONDS:
                break
            if self.turn(now):
                self.outcome.calls += 1
                self.outcome.seconds = now
                now += self._load.interval_seconds
        self.outcome.lost += self.left
        return self.outcome

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether anything waits for a turn."""

    @property
    @abstractmethod
    def left(self) -> int:
        """How many sends are left."""

    @abstractmethod
    def record(self, arrival: Arrival, send: Send) -> None:
        """Record a send."""

    @abstractmethod
    def turn(self, now: float) -> bool:
        """Give one turn; whether LINE was called."""

    def sent(self, sends: Iterable[Send], now: float, *, free: bool) -> None:
        """One conversation's sends have arrived by one call."""
        sends = list(sends)
        if free:
            self.outcome.free += len(sends)
        else:
            self.outcome.paid += 1
        for send in sends:
            if str(send.to)[1:].startswith(self._load.told):
                self.outcome.waits.append(now - (send.at - BEGIN).total_seconds())


class Before(Simulation):
    """One line by deadlines, one send a call; a used-up month is met again and again."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._boxes: dict[str, deque[Send]] = {}
        self._heap: list[tuple[float, int, str]] = []
        self._numbers = itertools.count()

    @property
    def waits(self) -> bool:
        return bool(self._boxes)

    @property
    def left(self) -> int:
        return sum(map(len, self._boxes.values()))

    def record(self, arrival: Arrival, send: Send) -> None:
        box = self._boxes.setdefault(arrival.user, deque())
        box.append(send)
        self._push(arrival.user, send)

    def _push(self, user: str, send: Send) -> None:
        begun = send.token_from or send.at
        deadline = (begun - BEGIN).total_seconds() + 60.0
        heapq.heappush(self._heap, (deadline, next(self._numbers), user))

    def turn(self, now: float) -> bool:
        while (user := heapq.heappop(self._heap)[2]) not in self._boxes:
            pass
        send = self._boxes[user].popleft()
        if not self._boxes[user]:
            del self._boxes[user]
        until = send.token_until
        if until is not None and BEGIN + timedelta(seconds=now) < until:
            self.sent([send], now, free=True)
        elif self.outcome.paid < self._load.quota:
            self.sent([send], now, free=False)
        else:
            self.outcome.lost += 1
        return True


class After(Simulation):
    """The order and the outboxes of the dispatcher."""

    def __init__(self, load: Load) -> None:
        super().__init__(load)
        self._order = Order()
        self._late = LateReplies()
        self._late_calls: dict[str, int] = {}
        self._known: dict[str, Conversation] = {}
        self._boxes: dict[str, ConversationOutbox] = {}
        self._heads: dict[Ticket, ConversationOutbox] = {}

    @property
    def waits(self) -> bool:
        return bool(self._order.waiting)

    @property
    def left(self) -> int:
        return sum(len(box.sends) for box in self._boxes.values())

    def record(self, arrival: Arrival, send: Send) -> None:
        id_ = f"main/{user_id(arrival.user)}"
        standing = standing_of(send, id_, LIMITS, now=arrival.at, at=send.at)
        if id_ not in self._boxes:
            conversation = self._known.setdefault(id_, Conversation(id_))
            self._boxes[id_] = ConversationOutbox(conversation, LIMITS, lambda box, ticket: None)
        box = self._boxes[id_]
        made = Moment(send.at, arrival.at)
        moved = box.append(PendingSend(send.id.zfill(10), send, standing, made))
        self._do(box, box.begin(arrival.at) or moved, arrival.at)

    def _do(self, box: ConversationOutbox, step: object, now: float) -> None:
        match step:
            case Enter(ticket):
                self._heads[ticket] = box
                self._order.enter(ticket, now=now, away=False)
            case Move(ticket, standing):
                self._order.move(ticket, standing, now=now)

    def turn(self, now: float) -> bool:
        self._order.arm()
        ticket = self._order.grant(now=now, turn_seconds=self._load.interval_seconds)
        assert ticket is not None
        box = self._heads.pop(ticket)
        box.turn(ticket)
        left = self._load.quota - self.outcome.paid
        budget = Budget(self._late, left <= 0, None if math.isinf(left) else int(left))
        plan = box.plan(now, lambda path: 0.0, budget)
        is_called = isinstance(plan, Go)
        if isinstance(plan, Go):
            self._call(box, plan, now)
        elif isinstance(plan, MakeLetters):
            self.outcome.lost += len(plan.places)
            self._leave(box, plan.places, now)
        self._order.leave(ticket, called=is_called)
        return is_called

    def _call(self, box: ConversationOutbox, go: Go, now: float) -> None:
        if go.late_on:
            self._late.paid(go.late_on)
            count = self._late_calls[box.id] = self._late_calls.get(box.id, 0) + 1
            if count >= LIMITS.late_replies_a_day:
                box.conversation.late_on = go.late_on
        is_free = go.call.way is SendMethod.REPLY
        others = [] if is_free else company_of(box, self._boxes.values(), now)
        for one in (box, *others):
            places = [each.place for each in one.together(now)]
            if one is not box and (ticket := one.take_along()) is not None:
                self._order.cancel(ticket)
            self.sent([each.send for each in one.together(now)], now, free=is_free)
            one.called(now)
            self._leave(one, places, now)

    def _leave(self, box: ConversationOutbox, places: Iterable[str], now: float) -> None:
        box.remove(list(places))
        if box.sends:
            self._do(box, box.begin(now), now)
        else:
            del self._boxes[box.id]


def echoing_bot() -> object:
    """The bot that the dispatcher runs: it answers, and its timers push."""
    from linebot.v3.webhooks import MessageEvent

    from linedesk import Bot, Talk, TimerEvent

    bot = Bot()

    @bot.add(MessageEvent)
    def answer(event: object, talk: Talk) -> None:
        talk.reply(talk.raw["message"]["text"])

    @bot.timer("tea")
    def tea(event: TimerEvent, talk: Talk) -> None:
        talk.push(event.data["text"])

    return bot


def real(load: Load) -> Outcome:
    """Run a load through the real processes."""
    interval_ms = f"{load.interval_seconds * 1000:.0f}"
    line = {} if math.isinf(load.quota) else {"quota": int(load.quota)}
    settings = {"LINE_ACCESS_INTERVAL_MS": interval_ms, "BOT": "bench.turns:bot"}
    with (
        tempfile.TemporaryDirectory() as folder,
        running(Path(folder), line=line, settings=settings) as stack,
    ):
        arrivals = sorted(load.arrivals(), key=lambda one: one.at)
        users = {one.user: stack.sim.add_user(one.user) for one in arrivals}
        stack.until_taken(stack.sim.add_user("準備"), "準備")
        stack.sim.wait_for(lambda: len(stack.sim.calls) == 1, timeout=30)
        due = [
            (users[one.user], {"text": one.text or f"{one.user}さん、お茶です"})
            for one in arrivals
            if not one.is_reply
        ]
        if due:
            for user, _ in due:
                stack.sim.follow(user)
            stack.set_timers(due)
            stack.sim.wait_for(lambda: len(stack.sim.calls) > 1, timeout=60)
        said: dict[str, float] = {}
        pause, began = threading.Event(), time.monotonic()
        for number, one in enumerate(a for a in arrivals if a.is_reply):
            pause.wait(max(0.0, began + one.at - time.monotonic()))
            text = f"{number}番"
            said[text] = time.monotonic()
            stack.sim.say(users[one.user], text)
        stack.sim.wait_for(lambda: _sends(stack.sim) > len(arrivals), timeout=HORIZON_SECONDS)
        return _judged(stack.sim.calls, said, {one.user_id: one.name for one in users.values()})


def _sends(sim: linesim.Sim) -> int:
    """How many messages LINE got, whatever the calls; the quota is asked for as well."""
    return sum(
        len(call.body["messages"]) * max(1, len(call.body.get("to", ())) * is_many)
        for call in sim.calls
        for is_many in [call.endpoint == "multicast"]
        if call.endpoint in ("reply", "push", "multicast") and isinstance(call.body, dict)
    )


def _judged(calls: Iterable[Call], said: Mapping[str, float], names: Mapping[str, str]) -> Outcome:
    outcome, answered = Outcome(), 0
    sends = [one for one in calls if one.endpoint in ("reply", "push", "multicast")]
    # The first one is that of the user who waited for the start.
    for call in sends[1:]:
        outcome.calls += 1
        outcome.seconds = call.started - sends[1].started
        body = call.body if isinstance(call.body, dict) else {}
        texts = [one["text"] for one in body["messages"]]
        if call.endpoint == "reply":
            outcome.free += len(texts)
        else:
            outcome.paid += call.paid or 0
        for text in texts:
            answered += text in said
            if text in said and names.get(call.user_id or "", "").startswith("person"):
                outcome.waits.append(call.started - said[text])
    outcome.lost = len(said) - answered
    return outcome


def figures(outcome: Outcome) -> Figures:
    """An outcome as the table has it."""
    if not outcome.calls:
        raise BenchFailed("LINE was never called")
    counted = {
        "calls": outcome.calls,
        "seconds": outcome.seconds,
        "free": outcome.free,
        "paid": outcome.paid,
        "lost": outcome.lost,
    }
    return {**counted, "longest wait s": max(outcome.waits, default=0.0)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """This bench's own."""
    # With the simulated clock each round has the same result.
    parser.set_defaults(rounds=1)
    parser.add_argument("--real", action="store_true", help="through the real processes")
    parser.add_argument("--load", default="", help="only loads with this in their names")


def run(options: argparse.Namespace, console: Console) -> list[Report]:
    """Simulate or measure."""
    loads = [one for one in LOADS if options.load in one.name]
    if options.real:
        loads = [one for one in loads if one.is_real]
    if not loads:
        raise BenchFailed(f"no load has {options.load!r} in its name")
    rows = [
        row
        for load in loads
        for row in by_turns(
            variants_of(load, is_real=options.real),
            options.rounds,
            console,
            case={"load": load.name, "interval ms": load.interval_seconds * 1000},
        )
    ]
    if options.real:
        return [Report("loads through the real processes", rows)]
    return [Report("loads through either gate", rows, "before")]


def variants_of(load: Load, *, is_real: bool) -> dict[str, Callable[[], Figures]]:
    """By both gates, or by the real processes."""
    if is_real:
        return {"linedesk": partial(_real, load)}
    gates: dict[str, type[Simulation]] = {"before": Before, "now": After}
    return {name: partial(_simulated, gate, load) for name, gate in gates.items()}


def _real(load: Load) -> Figures:
    return figures(real(load))


def _simulated(gate: type[Simulation], load: Load) -> Figures:
    return figures(gate(load).run())


bot = echoing_bot()
