"""The way of the events: the texts and states of its boxes, and the rates of its arrows.

`templates/picture.html` draws them. A box has the state of its worst problem (see
`linedesk.operate.health`), with a sign and a word beside its colour. Texts are in the language of
the context. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from linedesk.operate import health, processes
from linedesk.operate.health import HealthProblem
from linedesk.operate.overview import Overview
from linedesk.operate.processes import Process
from linedesk.page.format import number, seconds, share
from linedesk.page.words import BOXES
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
    """The rate of an arrow; without a text it has none."""

    per_second: float | None = None
    what: str = ""
    is_still: bool = False
    """The rate is stale."""

    @property
    def speed(self) -> int:
        """0: nothing moves, to 4."""
        per_second = 0.0 if self.is_still else self.per_second or 0.0
        return next(speed for most, speed in SPEEDS if per_second <= most)


def flows(seen: Overview, *, is_stale: bool = False) -> dict[str, Flow]:
    """Return the arrows that have a rate, by name."""
    rates = seen.rates
    stored = None if rates.accepted is None else max(0.0, rates.accepted - (rates.spooled or 0.0))
    found = {
        "accepted": (rates.accepted, _("events accepted")),
        "stored": (stored, _("events stored in recvq")),
        "spooled": (rates.spooled, _("events stored in the spool")),
        "drained": (rates.spooled or None, ""),
        "fired": (rates.fired, _("timers that fired")),
        "read": (rates.read, _("documents read")),
        "decided": (rates.decided, _("events decided")),
        "turns": (_turns(seen), _("turns taken at the gate")),
        "calls": (rates.calls, _("calls of LINE")),
        "given_up": (_given_up(seen), _("given up")),
    }
    return {name: Flow(*one, is_still=is_stale) for name, one in found.items()}


def _given_up(seen: Overview) -> float | None:
    return seen.figures[processes.DISPATCHER].rate("deadLetters")


def _turns(seen: Overview) -> float | None:
    turns = [one.turns_per_second for one in seen.gates if one.turns_per_second is not None]
    return sum(turns) if turns else None


def nodes(
    seen: Overview, problems: Sequence[HealthProblem], *, is_stale: bool = False
) -> dict[str, MapNode]:
    """Return the boxes by id, each in the state of its worst problem; a stale one has no state."""
    found = {}
    for node in _nodes(seen):
        about = ABOUT.get(node.id, ())
        # The worst problems come first.
        worst = next((one.level for one in problems if one.about in about), None)
        state = OFF if is_stale else node.state if worst is None else STATES[worst]
        found[node.id] = replace(node, state=state)
    return found


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
