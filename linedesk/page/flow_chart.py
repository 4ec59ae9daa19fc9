"""The way of the events: the texts and states of its boxes, and the rates of its arrows.

`templates/picture.html` draws them. A box has the state of its worst problem (see
`linedesk.operate.health`), with a sign and a word beside its colour. Texts are in the language of
the context. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from linedesk.operate import health, processes
from linedesk.operate.health import HealthProblem
from linedesk.operate.overview import Overview
from linedesk.page.format import number, seconds, share
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark


class State(NamedTuple):
    """The state of a box: its colour, its sign, and a word for it."""

    name: str
    sign: str
    word: str


GOOD = State("good", health.SIGNS[None], mark("OK"))
LOOK = State("look", health.SIGNS["warn"], mark("Warning"))
STATES = {"bad": State("bad", health.SIGNS["bad"], mark("Critical")), "warn": LOOK}
OFF = State("off", "○", mark("idle or unknown"))
# The speeds of an arrow, by the most that pass along it a second.
SPEEDS = (0.0, 1.0, 10.0, 100.0)


class Place(NamedTuple):
    """A box of the picture: its title, its page, and its problems by their keys."""

    title: str
    href: str
    about: tuple[str, ...]


PLACES = {
    "line": Place("LINE", "#curves", ()),
    "frontdesk": Place(mark("front desk"), "#processes", (processes.FRONTDESK, "certificate")),
    "recvq": Place("recvq", "#curves", ("recvq", "lag", "oplog", "database")),
    "dispatcher": Place(mark("dispatcher"), "#processes", (processes.DISPATCHER, "queue")),
    "threads": Place(mark("threads"), "#threads", ("threads", "workers")),
    "gate": Place(mark("gate"), "#line", ("gate",)),
    "api": Place("LINE", "/calls", ("LINE", "quota")),
    "spool": Place(mark("spool"), "#processes", ("spool",)),
    "timers": Place(mark("timers"), "#processes", ("timers",)),
    "held": Place(mark("held"), "#waiting", ("paused", "waiting")),
    "letters": Place(mark("dead letters"), "/letters", ("dead letters",)),
    "outbox": Place(mark("outboxes"), "#waiting", ("answers", "LINE")),
}


class MapNode(NamedTuple):
    """A box with its figure and its state."""

    place: Place
    figure: str
    state: State


class Flow(NamedTuple):
    """The rate of an arrow, and how fast it moves: from 0, nothing, to 4."""

    per_second: float | None
    speed: int


def flows(seen: Overview, *, is_stale: bool = False) -> dict[str, Flow]:
    """Return the arrows that have a rate, by name; nothing moves along one that is stale."""
    rates = seen.rates
    stored = None if rates.accepted is None else max(0.0, rates.accepted - (rates.spooled or 0.0))
    turns = [one.turns_per_second for one in seen.gates if one.turns_per_second is not None]
    found = {
        "accepted": rates.accepted,
        "stored": stored,
        "spooled": rates.spooled,
        "fired": rates.fired,
        "read": rates.read,
        "decided": rates.decided,
        "turns": sum(turns) if turns else None,
        "calls": rates.calls,
        "given_up": seen.figures[processes.DISPATCHER].rate("deadLetters"),
    }
    return {
        name: Flow(rate, 0 if is_stale else bisect_left(SPEEDS, rate or 0.0))
        for name, rate in found.items()
    }


def nodes(
    seen: Overview, problems: Sequence[HealthProblem], *, is_stale: bool = False
) -> dict[str, MapNode]:
    """Return the boxes by id, each in the state of its worst problem; a stale one has no state."""
    figures, found = figures_of(seen), {}
    for id_, place in PLACES.items():
        figure = figures[id_]
        state = OFF if figure is None or is_stale else GOOD
        # The worst problems come first.
        worst = next((one.level for one in problems if one.about in place.about), None)
        if worst is not None and not is_stale:
            state = STATES[worst]
        found[id_] = MapNode(place, figure or "–", state)
    return found


def figures_of(seen: Overview) -> dict[str, str | None]:
    """Return the figure of each box; None for one that is idle or not known."""
    queue, threads, spool = seen.queue, seen.threads, seen.spool
    running = Counter(one.role for one in seen.processes if one.is_fresh)
    leads = running[processes.DISPATCHER] and seen.obeyed is not None
    due = seen.figures[processes.DISPATCHER].number("nextTimerSeconds")
    counted = {
        "frontdesk": (_("{count} running"), running[processes.FRONTDESK] or None),
        "recvq": (_("{count} unread"), queue.lag_documents),
        "dispatcher": (_("{count} in progress"), (queue.in_hand or 0) if leads else None),
        "spool": (_("{count} wait"), spool.documents or None if spool else None),
        "held": (_("{count} held"), queue.held or None),
        "letters": ("{count}", seen.letters_open or None),
        "outbox": (_("{count} to send"), queue.outbox_effects or None),
    }
    figures = {
        id_: None if count is None else figure.format(count=number(count))
        for id_, (figure, count) in counted.items()
    }
    figures |= {"line": _("webhooks") if seen.rates.accepted else None, "api": _api(seen)}
    figures |= dict.fromkeys(("threads", "gate", "timers"))
    if threads.all is not None:
        figure = _("{count} of {all} busy")
        all_ = number(threads.all)
        figures["threads"] = figure.format(count=number(threads.busy or 0), all=all_)
    if seen.gates:
        used = max(one.use or 0.0 for one in seen.gates)
        figures["gate"] = _("{share} used").format(share=share(used))
    if due is not None:
        figure = _("late {time}") if due < 0 else _("in {time}")
        figures["timers"] = figure.format(time=seconds(abs(due)))
    return figures


def _api(seen: Overview) -> str | None:
    if seen.token_refused:
        return _("token refused")
    if any(one.breaker_open for one in seen.gates):
        return _("fails")
    if seen.quota is not None and seen.quota.closed_since is not None:
        return _("replies only")
    call = [one.p99 for one in seen.latencies if one.name == "call" and one.p99 is not None]
    return f"p99 {seconds(max(call))}" if call else None
