"""The way of the events: the texts and states of its boxes, and the rates of its arrows.

`templates/picture.html` draws them. A box has the state of its worst problem (see
`linedesk.operate.health`), with a sign and a word beside its colour. Texts are in the language of
the context. Pure.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from linedesk.operate import health, processes
from linedesk.operate.health import HealthProblem
from linedesk.operate.overview import Overview
from linedesk.page.format import number, seconds, share
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark, ngettext


class State(NamedTuple):
    """The state of a box: its colour, its sign, and a word for it."""

    name: str
    sign: str
    word: str


GOOD = State("good", health.SIGNS[None], mark("OK"))
LOOK = State("look", health.SIGNS["warn"], mark("Warning"))
BAD = State("bad", health.SIGNS["bad"], mark("Critical"))
OFF = State("off", "○", mark("idle or unknown"))
STATES = {"bad": BAD, "warn": LOOK}
# The speeds of an arrow, by the most that pass along it a second.
SPEEDS = (0.0, 1.0, 10.0, 100.0)
Told = tuple[str, str, State]
"""The figure of a box, its note, and its state where it has no problem."""


class Place(NamedTuple):
    """A box of the picture: its title, its page, its problems by their keys, and its texts."""

    title: str
    href: str
    about: tuple[str, ...]
    told: Callable[[Overview], Told]


@dataclass(frozen=True)
class MapNode:
    """A box: its figure, a note, and its state."""

    place: Place
    figure: str
    note: str
    state: State = OFF


class Flow(NamedTuple):
    """The rate of an arrow, what moves along it, and how fast: from 0, nothing, to 4."""

    per_second: float | None
    what: str
    speed: int


def flows(seen: Overview, *, is_stale: bool = False) -> dict[str, Flow]:
    """Return the arrows that have a rate, by name; nothing moves along one that is stale."""
    rates = seen.rates
    stored = None if rates.accepted is None else max(0.0, rates.accepted - (rates.spooled or 0.0))
    turns = [one.turns_per_second for one in seen.gates if one.turns_per_second is not None]
    found = {
        "accepted": (rates.accepted, _("events accepted")),
        "stored": (stored, _("events stored in recvq")),
        "spooled": (rates.spooled, _("events stored in the spool")),
        "drained": (rates.spooled or None, ""),
        "fired": (rates.fired, _("timers that fired")),
        "read": (rates.read, _("documents read")),
        "decided": (rates.decided, _("events decided")),
        "turns": (sum(turns) if turns else None, _("turns taken at the gate")),
        "calls": (rates.calls, _("calls of LINE")),
        "given_up": (seen.figures[processes.DISPATCHER].rate("deadLetters"), _("given up")),
    }
    return {
        name: Flow(rate, what, 0 if is_stale else bisect_left(SPEEDS, rate or 0.0))
        for name, (rate, what) in found.items()
    }


def nodes(
    seen: Overview, problems: Sequence[HealthProblem], *, is_stale: bool = False
) -> dict[str, MapNode]:
    """Return the boxes by id, each in the state of its worst problem; a stale one has no state."""
    found = {}
    for id_, place in PLACES.items():
        figure, note, state = place.told(seen)
        # The worst problems come first.
        worst = next((one.level for one in problems if one.about in place.about), None)
        state = OFF if is_stale else state if worst is None else STATES[worst]
        found[id_] = MapNode(place, figure, note, state)
    return found


def _line(seen: Overview) -> Told:
    return _("webhooks"), _("arrive"), GOOD if seen.rates.accepted else OFF


def _desk(seen: Overview) -> Told:
    count = _running(seen, processes.FRONTDESK)
    if not count:
        return _("not running"), _("no recent status"), OFF
    stored = next((one for one in seen.latencies if one.name == "store" and one.count), None)
    figure = _("running") if count == 1 else _("{count} running").format(count=count)
    note = f"p99 {seconds(stored.p99)}" if stored is not None else _("no webhooks now")
    return figure, note, GOOD


def _recvq(seen: Overview) -> Told:
    queue = seen.queue
    note = _("{share} of its size").format(share=share(queue.unread_share))
    note = _("closed: full") if queue.is_closed else note
    if queue.lag_documents is None:
        return "–", note, OFF
    return _("{count} unread").format(count=number(queue.lag_documents)), note, GOOD


def _dispatcher(seen: Overview) -> Told:
    count = _running(seen, processes.DISPATCHER)
    if not count or seen.obeyed is None:
        return _("no leader") if count else _("not running"), _("no recent status"), OFF
    oldest = seen.queue.oldest_seconds
    figure = _("{count} in progress").format(count=number(seen.queue.in_hand))
    return figure, _oldest(oldest) if oldest else _("no event waits"), GOOD


def _pool(seen: Overview) -> Told:
    threads = seen.threads
    if threads.all is None:
        return "–", _("no dispatcher"), OFF
    handler = next((one.p50 for one in seen.latencies if one.name == "handler"), None)
    note = _("all idle")
    if handler is not None:
        note = _("handler {time}").format(time=seconds(handler))
    if threads.abandoned:
        note = _("{count} abandoned").format(count=number(threads.abandoned))
    figure = _("{count} of {all} busy")
    return figure.format(count=number(threads.busy or 0), all=number(threads.all)), note, GOOD


def _gate(seen: Overview) -> Told:
    if not seen.gates:
        return "–", _("no dispatcher"), OFF
    use = max(one.use or 0.0 for one in seen.gates)
    waiting = sum(one.waiting or 0 for one in seen.gates)
    note = ngettext("{count} call waits", "{count} calls wait", round(waiting))
    figure = _("{share} used").format(share=share(use))
    return figure, note.format(count=number(waiting)), GOOD


def _api(seen: Overview) -> Told:
    broken = next((one for one in seen.gates if one.breaker_open), None)
    if seen.token_refused:
        return _("token refused"), _("no calls are made"), GOOD
    if broken is not None:
        after = broken.next_try_seconds
        return _("fails"), health.next_try_words(after) if after else "", GOOD
    if seen.latest_calls.all_failed:
        return _("all calls failed"), _("in the last minute"), LOOK
    call = [one.p99 for one in seen.latencies if one.name == "call" and one.p99 is not None]
    quota, note = seen.quota, ""
    if quota is not None and quota.closed_since is not None:
        note = _("replies only")
    elif quota is not None and quota.share is not None:
        note = _("quota {share} used").format(share=share(quota.share))
    return f"p99 {seconds(max(call))}" if call else "API", note, GOOD if call else OFF


def _spool(seen: Overview) -> Told:
    spool = seen.spool
    if spool is not None and not spool.is_available:
        return _("no spool"), _("see SPOOL_PATH"), GOOD
    if spool is not None and spool.documents:
        figure = _("{count} wait").format(count=number(spool.documents))
        return figure, _oldest(spool.oldest_seconds), GOOD
    if seen.rates.spooled:
        return _("empty"), _("used just now"), GOOD
    return _("empty"), _("not needed"), OFF


def _timers(seen: Overview) -> Told:
    due = seen.figures[processes.DISPATCHER].number("nextTimerSeconds")
    if due is None:
        return _("no timer"), _("none set"), OFF
    figure = _("late {time}") if due < 0 else _("in {time}")
    return figure.format(time=seconds(abs(due))), _("next timer"), GOOD


def _held(seen: Overview) -> Told:
    held, keys = seen.queue.held or 0, seen.queue.held_keys or 0
    if not held and not seen.pauses:
        return _("none"), _("set aside"), OFF
    note = ngettext("in {count} conversation", "in {count} conversations", round(keys))
    note = _("paused") if seen.pauses else note.format(count=number(keys))
    return _("{count} held").format(count=number(held)), note, GOOD


def _letters(seen: Overview) -> Told:
    if not seen.letters_open:
        return _("none"), _("none given up"), OFF
    since = _("{count} in the last 24 h").format(count=number(seen.letters_lately))
    return number(seen.letters_open), since, GOOD


def _outbox(seen: Overview) -> Told:
    waiting, oldest = seen.queue.outbox_effects, seen.queue.oldest_send_seconds
    if not waiting:
        return _("empty"), _("everything sent"), OFF
    figure = _("{count} to send").format(count=number(waiting))
    note = _oldest(oldest) if oldest else _("not sent yet")
    return figure, note, BAD if health.is_line_away(seen) else GOOD


def _oldest(age: float | None) -> str:
    return _("oldest {time}").format(time=seconds(age))


def _running(seen: Overview, role: str) -> int:
    return sum(one.role == role and one.is_fresh for one in seen.processes)


PLACES = {
    "line": Place("LINE", "#curves", (), _line),
    "frontdesk": Place(
        mark("front desk"), "#processes", (processes.FRONTDESK, "certificate"), _desk
    ),
    "recvq": Place("recvq", "#curves", ("recvq", "lag", "oplog", "database"), _recvq),
    "dispatcher": Place(
        mark("dispatcher"), "#processes", (processes.DISPATCHER, "queue"), _dispatcher
    ),
    "threads": Place(mark("threads"), "#threads", ("threads", "workers"), _pool),
    "gate": Place(mark("gate"), "#line", ("gate",), _gate),
    "api": Place("LINE", "/calls", ("LINE", "quota"), _api),
    "spool": Place(mark("spool"), "#processes", ("spool",), _spool),
    "timers": Place(mark("timers"), "#processes", ("timers",), _timers),
    "held": Place(mark("held"), "#waiting", ("paused", "waiting"), _held),
    "letters": Place(mark("dead letters"), "/letters", ("dead letters",), _letters),
    "outbox": Place(mark("outboxes"), "#waiting", ("answers",), _outbox),
}
