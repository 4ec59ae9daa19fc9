"""The damages: each one does its harm and returns the function that ends it.

Of two that make LINE misbehave at once, the first to end ends both.
"""

import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random

from linedesk.store.control import Scope
from linesim.model.faults import Close, Late, Rule, html_error, server_error, too_many, unauthorized
from tests.chaos.cluster import City, Kept
from tests.chaos.points import KILL, POINTS, STOP
from tests.chaos.servers import Node
from tests.chaos.slipped import Freeze

Undo = Callable[[], None]
Do = Callable[[City, Random], Undo]
KILLED, STOPPED = signal.SIGKILL, signal.SIGTERM


@dataclass(frozen=True)
class Damage:
    """One way to do harm, and how long it lasts."""

    name: str
    do: Do
    shortest_seconds: float = 0.0
    longest_seconds: float = 0.0
    long_runs_only: bool = False
    of_workers: bool = False
    """Whether it needs worker processes and their broker."""


def _nothing() -> None:
    """The supervisor restarts killed processes."""


def _send(number: int, whom: Callable[[City, Random], Sequence[Kept]]) -> Do:
    def do(city: City, chance: Random) -> Undo:
        for kept in whom(city, chance):
            kept.send(number)
        return _nothing

    return do


def _line(*rules: Rule) -> Do:
    """LINE behaves so until the end."""

    def do(city: City, chance: Random) -> Undo:
        city.sim.misbehave(*rules, seed=chance.randrange(2**32))
        return city.sim.behave

    return do


def _freeze(kept: Kept) -> Undo:
    pid = kept.pid
    kept.send(signal.SIGSTOP)

    def go_on() -> None:
        if kept.pid == pid:
            kept.send(signal.SIGCONT)

    return go_on


def _freeze_active(city: City, chance: Random) -> Undo:
    began = time.monotonic()
    go_on = _freeze(city.active())

    def thaw() -> None:
        # Recorded before, since a call can slip out at once.
        city.freezes.append(Freeze(began, time.monotonic()))
        go_on()

    return thaw


def _die_at_a_point(city: City, chance: Random) -> Undo:
    for point in chance.sample(list(POINTS), 2):
        city.orders.give(point, KILL)
    return city.orders.withdraw


def _freeze_at_a_point(city: City, chance: Random) -> Undo:
    """Its successor dies, or is frozen, at one or two points in turn; then it wakes."""
    first, *others = chance.sample(list(POINTS), chance.choice([1, 2, 3]))
    city.orders.give(first, STOP)
    for point in others:
        city.orders.give(point, chance.choice([STOP, KILL, KILL]))

    def thaw() -> None:
        city.orders.withdraw()
        for pid, began in city.orders.stopped().items():
            city.freezes.append(Freeze(began, time.monotonic()))
            for kept in city.dispatchers:
                if kept.pid == pid:
                    kept.send(signal.SIGCONT)

    return thaw


def _freeze_frontdesk(city: City, chance: Random) -> Undo:
    return _freeze(city.frontdesk)


def _harm_primary(harm: Callable[[Node], None], end: Callable[[Node], None]) -> Do:
    def do(city: City, chance: Random) -> Undo:
        node = city.servers.primary()
        if node is None:
            return _nothing
        harm(node)
        return partial(end, node)

    return do


def _step_down(city: City, chance: Random) -> Undo:
    city.servers.step_down()
    return _nothing


def _force_down(city: City, chance: Random) -> Undo:
    city.servers.force_down()
    return _nothing


def _kill_all_servers(city: City, chance: Random) -> Undo:
    for node in city.servers.nodes:
        node.kill()

    def start() -> None:
        for node in city.servers.nodes:
            node.start()

    return start


def _cut_primary(city: City, chance: Random) -> Undo:
    node = city.servers.primary() or city.servers.nodes[0]
    city.servers.cut(node, chance.choice(["refuse", "hang"]))
    return lambda: city.servers.cut(node, "open")


def _cut_all_servers(city: City, chance: Random) -> Undo:
    for node in city.servers.nodes:
        city.servers.cut(node, "hang")

    def apply() -> None:
        for node in city.servers.nodes:
            city.servers.cut(node, "open")

    return apply


def _doubt_writes(city: City, chance: Random) -> Undo:
    """Writes are done and not confirmed, as in a failover."""
    city.servers.doubt_writes(probability=0.3)
    return city.servers.trust_writes


def _fill_spool_disk(city: City, chance: Random) -> Undo:
    """The servers hang and the spool's disk is full: neither store works, and all is refused."""
    if not city.spool_disk:
        return _nothing
    filler = city.spool / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 65536)
        except OSError:
            pass  # full, as wanted
    apply = _cut_all_servers(city, chance)

    def end() -> None:
        filler.unlink()
        apply()

    return end


_stumbles = _line(
    Rule(probability=0.15, outcome=server_error()),
    Rule(probability=0.15, outcome=server_error(), accept=True),
    Rule(probability=0.1, outcome=Close()),
    Rule(probability=0.1, outcome=Close(), accept=True),
    Rule(probability=0.1, outcome=html_error()),
    Rule(probability=0.1, outcome=Late(0.3), accept=True),
)
_says_429 = _line(
    Rule(probability=0.1, outcome=too_many(retry_after=1)),
    Rule(probability=0.1, outcome=too_many()),
)
# Later than the time-out of 10 s, before or after LINE has carried out the call.
_is_late = _line(
    Rule(probability=0.5, count=1, outcome=Late(11.0), accept=True),
    Rule(probability=0.5, count=1, outcome=Late(11.0)),
)
_refuses = _line(Rule(count=1, outcome=unauthorized()))


def _pause(city: City, chance: Random) -> Undo:
    """Pause like an operator: everything, the channel, or a few users."""
    few = [Scope("main", user.user_id) for user in chance.sample(city.users, len(city.users) // 3)]
    scopes = chance.choice([[Scope()], [Scope("main")], few])
    for scope in scopes:
        city.order(lambda control, scope=scope: control.pause(scope, by="chaos"))  # type: ignore[misc]

    def resume() -> None:
        for scope in scopes:
            city.order(lambda control, scope=scope: control.resume(scope))  # type: ignore[misc]

    return resume


def _webhooks_are_unruly(city: City, chance: Random) -> Undo:
    seed = chance.randrange(2**32)
    city.sim.unruly(redeliver=0.2, double=0.2, shuffle=0.2, delay=(0.2, 0.5), seed=seed)
    return city.sim.behave


def _freeze_worker(city: City, chance: Random) -> Undo:
    return _freeze(chance.choice(city.workers))


def _kill_broker(city: City, chance: Random) -> Undo:
    assert city.broker is not None
    city.broker.node.kill()
    return city.broker.node.launch


def _freeze_broker(city: City, chance: Random) -> Undo:
    assert city.broker is not None
    city.broker.node.freeze()
    return city.broker.node.thaw


def _cut_from_broker(city: City, chance: Random) -> Undo:
    broker = city.broker
    assert broker is not None
    places = chance.sample(broker.places, chance.choice([1, 2, len(broker.places)]))
    for place in places:
        broker.cut(place, chance.choice(["refuse", "hang"]))

    def apply() -> None:
        for place in places:
            broker.cut(place, "open")

    return apply


def _any_dispatcher(city: City, chance: Random) -> list[Kept]:
    return [chance.choice(city.dispatchers)]


def _a_worker(city: City, chance: Random) -> list[Kept]:
    return [chance.choice(city.workers)]


OF_WORKERS = (
    Damage("kill -9 a worker", _send(KILLED, _a_worker), of_workers=True),
    Damage("kill -9 all workers", _send(KILLED, lambda city, _: city.workers), of_workers=True),
    Damage("stop a worker", _send(STOPPED, _a_worker), of_workers=True),
    Damage("freeze a worker", _freeze_worker, 1.0, 14.0, of_workers=True),
    Damage("kill -9 RabbitMQ", _kill_broker, 0.5, 4.0, of_workers=True),
    Damage("freeze RabbitMQ", _freeze_broker, 1.0, 14.0, of_workers=True),
    Damage("cut lines to RabbitMQ", _cut_from_broker, 1.0, 14.0, of_workers=True),
)
DAMAGES = (
    Damage("kill -9 the dispatcher", _send(KILLED, lambda city, _: [city.active()])),
    Damage("kill -9 either dispatcher", _send(KILLED, _any_dispatcher)),
    Damage("stop the dispatcher", _send(STOPPED, lambda city, _: [city.active()])),
    Damage("kill -9 the front desk", _send(KILLED, lambda city, _: [city.frontdesk])),
    Damage("freeze the dispatcher", _freeze_active, 1.0, 7.0),
    Damage("kill -9 the dispatcher at a point of a call", _die_at_a_point, 1.0, 3.0),
    Damage("freeze dispatchers at points of calls", _freeze_at_a_point, 3.0, 9.0),
    Damage("freeze the front desk", _freeze_frontdesk, 0.5, 3.0),
    Damage("kill -9 the primary", _harm_primary(Node.kill, Node.start), 1.0, 5.0),
    Damage("freeze the primary", _harm_primary(Node.pause, Node.go_on), 1.0, 6.0),
    Damage("step the primary down", _step_down),
    Damage("kill -9 all servers", _kill_all_servers, 1.0, 4.0),
    Damage("cut the primary off", _cut_primary, 1.0, 6.0),
    Damage("cut all servers off", _cut_all_servers, 1.0, 6.0),
    Damage("writes of unknown outcome", _doubt_writes, 4.0, 8.0),
    Damage("fill the spool's disk", _fill_spool_disk, 1.0, 5.0),
    Damage("LINE stumbles", _stumbles, 2.0, 6.0),
    Damage("LINE says 429", _says_429, 2.0, 6.0),
    Damage("LINE is down", _line(Rule(outcome=server_error())), 1.0, 5.0),
    Damage("pause", _pause, 1.0, 6.0),
    Damage("webhooks are unruly", _webhooks_are_unruly, 2.0, 8.0),
    Damage("LINE answers too late", _is_late, 15.0, 25.0, long_runs_only=True),
    Damage("LINE refuses the token", _refuses, 2.0, 4.0, long_runs_only=True),
    *OF_WORKERS,
)
FORCED = Damage("force the primary down", _force_down)
"""Not in DAMAGES: a run of its own has nothing else, and no process may die of it."""
BY_NAME = {damage.name: damage for damage in DAMAGES}
