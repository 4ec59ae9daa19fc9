"""The way of the events as a picture: its nodes, the flows between them, and their places.

It is drawn twice, for a wide screen and for a phone. A node has the state of its worst problem (see
`linedesk.console.health`), with a sign and a word beside its colour. Texts are in the language of
the context. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from linedesk.console import health, processes
from linedesk.console.health import HealthProblem
from linedesk.console.overview import Overview
from linedesk.console.processes import Process
from linedesk.console.web.format import number, rate, seconds, share
from linedesk.console.web.words import BOXES
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext

GOOD, LOOK, BAD, OFF = "good", "look", "bad", "off"
SIGNS = {GOOD: health.SIGNS[None], LOOK: health.SIGNS["warn"], BAD: health.SIGNS["bad"], OFF: "○"}
SPELLED = {
    GOOD: mark("OK"),
    LOOK: mark("Warning"),
    BAD: mark("Critical"),
    OFF: mark("idle or unknown"),
}
# The speeds of an arrow, by the most that pass along it a second.
SPEEDS = ((0.0, 0), (1.0, 1), (10.0, 2), (100.0, 3), (float("inf"), 4))
# The problems that belong to a node, by their keys.
ABOUT = {
    "frontdesk": (processes.FRONTDESK, "certificate"),
    "recvq": ("recvq", "lag", "oplog", "database"),
    "dispatcher": (processes.DISPATCHER, "queue"),
    "threads": ("threads", "workers"),
    "gate": ("gate",),
    "api": ("LINE", "quota"),
    "spool": ("spool",),
    "timers": ("timers",),
    "held": ("paused", "waiting"),
    "letters": ("dead letters",),
    "outbox": ("answers",),
}
STATES = {"bad": BAD, "warn": LOOK}
# The target of a box: a place on the overview, or a page.
LEADS_TO = {
    **dict.fromkeys(("line", "recvq"), "#curves"),
    **dict.fromkeys(("frontdesk", "dispatcher", "spool", "timers"), "#processes"),
    **dict.fromkeys(("held", "outbox"), "#waiting"),
    "threads": "#threads",
    "gate": "#line",
    "api": "/calls",
    "letters": "/letters",
}


@dataclass(frozen=True)
class MapNode:
    """A box: its title, its figure, a note, and its state."""

    id: str
    title: str
    figure: str
    note: str
    state: str = GOOD

    @property
    def sign(self) -> str:
        """The state without a colour."""
        return SIGNS[self.state]

    @property
    def spelled(self) -> str:
        """The state in words."""
        return _(SPELLED[self.state])

    @property
    def href(self) -> str:
        """The target of the box."""
        return LEADS_TO[self.id]

    @property
    def meaning(self) -> str:
        """The meaning of the box."""
        return _(BOXES[self.id])


@dataclass(frozen=True)
class Flow:
    """An arrow, with its rate a second; None where it is not known."""

    start: str
    end: str
    per_second: float | None
    what: str
    is_still: bool = False
    """Its rate is stale."""

    @property
    def speed(self) -> int:
        """0: nothing moves, to 4."""
        return (
            0
            if self.is_still
            else next(speed for most, speed in SPEEDS if (self.per_second or 0.0) <= most)
        )

    @property
    def label(self) -> str:
        """The rate for people."""
        return rate(self.per_second)


def flows(seen: Overview) -> Iterator[Flow]:
    """Yield all flows with their rates."""
    rates = seen.rates
    stored = None if rates.accepted is None else max(0.0, rates.accepted - (rates.spooled or 0.0))
    yield Flow("line", "frontdesk", rates.accepted, _("events accepted"))
    yield Flow("frontdesk", "recvq", stored, _("events stored in recvq"))
    yield Flow("frontdesk", "spool", rates.spooled, _("events stored in the spool"))
    yield Flow("spool", "recvq", None if not rates.spooled else rates.spooled, "")
    yield Flow("timers", "recvq", rates.fired, _("timers that fired"))
    yield Flow("recvq", "dispatcher", rates.read, _("documents read"))
    yield Flow("dispatcher", "threads", rates.decided, _("events decided"))
    yield Flow("threads", "gate", _turns(seen), _("turns taken at the gate"))
    yield Flow("gate", "api", rates.calls, _("calls of LINE"))
    yield Flow("dispatcher", "held", None, "")
    yield Flow("threads", "letters", _given_up(seen), _("given up"))
    yield Flow("outbox", "gate", None, "")


def _given_up(seen: Overview) -> float | None:
    return seen.figures[processes.DISPATCHER].rate("deadLetters")


def _turns(seen: Overview) -> float | None:
    turns = [one.turns_per_second for one in seen.gates if one.turns_per_second is not None]
    return sum(turns) if turns else None


def nodes(seen: Overview, problems: Sequence[HealthProblem]) -> Iterator[MapNode]:
    """Yield all nodes, each in the state of its worst problem."""
    for node in _nodes(seen):
        about = ABOUT.get(node.id, ())
        # The worst problems come first.
        worst = next((one.level for one in problems if one.about in about), None)
        yield node if worst is None else replace(node, state=STATES[worst])


def _nodes(seen: Overview) -> Iterator[MapNode]:
    state = OFF if not seen.rates.accepted else GOOD
    yield MapNode("line", "LINE", _("webhooks"), _("arrive"), state)
    yield _desk(seen)
    yield _recvq(seen)
    yield _dispatcher(seen)
    yield _pool(seen)
    yield _gate(seen)
    yield _api(seen)
    yield _spool(seen)
    yield _timers(seen)
    yield _held(seen)
    yield _letters(seen)
    yield _outbox(seen)


def _desk(seen: Overview) -> MapNode:
    fresh, title = _fresh(seen, processes.FRONTDESK), _("front desk")
    if not fresh:
        return MapNode("frontdesk", title, _("not running"), _("no recent status"), OFF)
    stored = next((one for one in seen.latencies if one.name == "store" and one.count), None)
    figure = _("running")
    if len(fresh) > 1:
        figure = _("{count} running").format(count=len(fresh))
    note = f"p99 {seconds(stored.p99)}" if stored is not None else _("no webhooks now")
    return MapNode("frontdesk", title, figure, note)


def _recvq(seen: Overview) -> MapNode:
    queue, figure = seen.queue, "–"
    if queue.lag_documents is not None:
        figure = _("{count} unread").format(count=number(queue.lag_documents))
    note = _("{share} of its size").format(share=share(queue.unread_share))
    state = OFF if queue.lag_documents is None else GOOD
    return MapNode("recvq", "recvq", figure, _("closed: full") if queue.is_closed else note, state)


def _dispatcher(seen: Overview) -> MapNode:
    fresh, title = _fresh(seen, processes.DISPATCHER), _("dispatcher")
    if not fresh or seen.obeyed is None:
        words = _("no leader") if fresh else _("not running")
        return MapNode("dispatcher", title, words, _("no recent status"), OFF)
    oldest = seen.queue.oldest_seconds or 0.0
    note = _oldest(oldest) if oldest else _("no event waits")
    figure = _("{count} in progress").format(count=number(seen.queue.in_hand))
    return MapNode("dispatcher", title, figure, note)


def _oldest(age: float | None) -> str:
    return _("oldest {time}").format(time=seconds(age))


def _pool(seen: Overview) -> MapNode:
    threads, title = seen.threads, _("threads")
    if threads.all is None:
        return MapNode("threads", title, "–", _("no dispatcher"), OFF)
    handler = next((one.p50 for one in seen.latencies if one.name == "handler"), None)
    note = _("all idle")
    if handler is not None:
        note = _("handler {time}").format(time=seconds(handler))
    if threads.abandoned:
        note = _("{count} abandoned").format(count=number(threads.abandoned))
    figure = _("{count} of {all} busy")
    figure = figure.format(count=number(threads.busy or 0), all=number(threads.all))
    return MapNode("threads", title, figure, note)


def _gate(seen: Overview) -> MapNode:
    title = _("gate")
    if not seen.gates:
        return MapNode("gate", title, "–", _("no dispatcher"), OFF)
    use = max((one.use or 0.0 for one in seen.gates), default=0.0)
    waiting = sum(one.waiting or 0 for one in seen.gates)
    note = ngettext("{count} call waits", "{count} calls wait", round(waiting))
    figure = _("{share} used").format(share=share(use))
    return MapNode("gate", title, figure, note.format(count=number(waiting)))


def _api(seen: Overview) -> MapNode:
    broken = next((one for one in seen.gates if one.breaker_open), None)
    if seen.token_refused:
        return MapNode("api", "LINE", _("token refused"), _("no calls are made"))
    if broken is not None:
        after = broken.next_try_seconds
        note = health.next_try_words(after) if after else ""
        return MapNode("api", "LINE", _("fails"), note)
    if seen.latest_calls.all_failed:
        return MapNode("api", "LINE", _("all calls failed"), _("in the last minute"), LOOK)
    call = [one for one in seen.latencies if one.name == "call" and one.p99 is not None]
    worst = max((one.p99 or 0.0 for one in call), default=None)
    quota, note = seen.quota.share if seen.quota else None, ""
    if quota is not None:
        note = _("quota {share} used").format(share=share(quota))
    if seen.quota is not None and seen.quota.closed_since is not None:
        note = _("replies only")
    state = GOOD if call else OFF
    figure = "API" if worst is None else f"p99 {seconds(worst)}"
    return MapNode("api", "LINE", figure, note, state)


def _spool(seen: Overview) -> MapNode:
    spool, title = seen.spool, _("spool")
    if spool is not None and not spool.is_available:
        return MapNode("spool", title, _("no spool"), _("see SPOOL_PATH"))
    if seen.rates.spooled and (spool is None or not spool.documents):
        return MapNode("spool", title, _("empty"), _("used just now"))
    if spool is None or not spool.documents:
        return MapNode("spool", title, _("empty"), _("not needed"), OFF)
    figure = _("{count} wait").format(count=number(spool.documents))
    return MapNode("spool", title, figure, _oldest(spool.oldest_seconds))


def _timers(seen: Overview) -> MapNode:
    due, title = seen.figures[processes.DISPATCHER].number("nextTimerSeconds"), _("timers")
    if due is None:
        return MapNode("timers", title, _("no timer"), _("none set"), OFF)
    figure = _("late {time}") if due < 0 else _("in {time}")
    return MapNode("timers", title, figure.format(time=seconds(abs(due))), _("next timer"))


def _held(seen: Overview) -> MapNode:
    held, keys, title = seen.queue.held or 0, seen.queue.held_keys or 0, _("held")
    figure = _("{count} held").format(count=number(held))
    if seen.pauses:
        return MapNode("held", title, figure, _("paused"))
    if not held:
        return MapNode("held", title, _("none"), _("set aside"), OFF)
    where = ngettext("in {count} conversation", "in {count} conversations", round(keys))
    return MapNode("held", title, figure, where.format(count=number(keys)))


def _letters(seen: Overview) -> MapNode:
    title = _("dead letters")
    if not seen.letters_open:
        return MapNode("letters", title, _("none"), _("none given up"), OFF)
    since = _("{count} in the last 24 h").format(count=number(seen.letters_lately))
    return MapNode("letters", title, number(seen.letters_open), since)


def _outbox(seen: Overview) -> MapNode:
    waiting, title = seen.queue.outbox_effects, _("outboxes")
    if not waiting:
        return MapNode("outbox", title, _("empty"), _("everything sent"), OFF)
    oldest, is_held = seen.queue.oldest_send_seconds, health.is_line_away(seen)
    note = _oldest(oldest) if oldest else _("not sent yet")
    figure = _("{count} to send").format(count=number(waiting))
    return MapNode("outbox", title, figure, note, BAD if is_held else GOOD)


def _fresh(seen: Overview, role: str) -> Sequence[Process]:
    return [one for one in seen.processes if one.role == role and one.is_fresh]


@dataclass(frozen=True)
class Rectangle:
    """The place of a node."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> tuple[float, float]:
        """Its centre."""
        return self.x + self.width / 2, self.y + self.height / 2


@dataclass(frozen=True)
class Arrow:
    """A flow as a path, with the place of its label."""

    flow: Flow
    path: str
    x: float
    y: float
    anchor: str


@dataclass(frozen=True)
class Drawing:
    """One picture, ready for its template."""

    name: str
    width: float
    height: float
    nodes: list[tuple[MapNode, Rectangle]]
    arrows: list[Arrow]


def _wide() -> dict[str, Rectangle]:
    row = ("line", "frontdesk", "recvq", "dispatcher", "threads", "gate", "api")
    boxes = {name: Rectangle(4 + 170 * n, 16, 120, 66) for n, name in enumerate(row)}
    below = {"spool": 1, "timers": 2, "held": 3, "letters": 4, "outbox": 5}
    return boxes | {name: Rectangle(4 + 170 * n, 132, 120, 66) for name, n in below.items()}


def _tall() -> dict[str, Rectangle]:
    column = ("line", "frontdesk", "recvq", "dispatcher", "threads", "gate", "api")
    boxes = {name: Rectangle(4, 6 + 98 * n, 146, 62) for n, name in enumerate(column)}
    beside = {"spool": 1, "timers": 2, "held": 3, "letters": 4, "outbox": 5}
    return boxes | {name: Rectangle(216, 6 + 98 * n, 126, 62) for name, n in beside.items()}


LAYOUTS = {"wide": (1148.0, 208.0, _wide()), "tall": (346.0, 660.0, _tall())}


def draw(
    seen: Overview, problems: Sequence[HealthProblem], *, is_stale: bool = False
) -> list[Drawing]:
    """Return the picture in both layouts; a stale picture has no states and no movement."""
    here, between = list(nodes(seen, problems)), list(flows(seen))
    if is_stale:
        here = [replace(node, state=OFF) for node in here]
        between = [replace(flow, is_still=True) for flow in between]
    return [
        Drawing(
            name,
            width,
            height,
            [(node, boxes[node.id]) for node in here],
            [_arrow(flow, boxes[flow.start], boxes[flow.end]) for flow in between],
        )
        for name, (width, height, boxes) in LAYOUTS.items()
    ]


def _arrow(flow: Flow, start: Rectangle, end: Rectangle) -> Arrow:
    (x1, y1), (x2, y2) = start.middle, end.middle
    if abs(y1 - y2) < 1:
        there = x2 > x1
        a, b = (start.x + start.width, end.x) if there else (start.x, end.x + end.width)
        return Arrow(
            flow, f"M{a:g} {y1:g}H{b - 6 if there else b + 6:g}", (a + b) / 2, y1 - 9, "mid"
        )
    if abs(x1 - x2) < 1:
        down = y2 > y1
        a, b = (start.y + start.height, end.y) if down else (start.y, end.y + end.height)
        path = f"M{x1:g} {a:g}V{b - 6 if down else b + 6:g}"
        return Arrow(flow, path, x1 + 9, (a + b) / 2 + 4, "start")
    # From a node below or beside the row to the next node of the row.
    return _elbow(flow, start, end)


def _elbow(flow: Flow, start: Rectangle, end: Rectangle) -> Arrow:
    """Return an arrow through the gap between two columns, into the side of the next node."""
    rightwards = end.x > start.x
    x, y = (start.x + start.width if rightwards else start.x), start.y + start.height - 14
    to_x = end.x - 6 if rightwards else end.x + end.width + 6
    to_y = end.y + end.height - 11 if end.y < start.y else end.y + 12
    gap = x + (16 if rightwards else -16)
    return Arrow(flow, f"M{x:g} {y:g}H{gap:g}V{to_y:g}H{to_x:g}", gap, (y + to_y) / 2, "start")
