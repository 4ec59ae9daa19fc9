"""Separates the one call of a frozen process that may slip out (design: G7) from a real overlap.
Pure.

A dispatcher frozen during a call, or between its check of the lease and the call, continues it when
it thaws, at the same time as its successor. If LINE has closed its connection meanwhile, the call
has a new one of its own. No other calls may overlap.
"""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from linesim.judge.report import Pair
from linesim.model.calls import Call

# linesim sees calls sent before a freeze, or right after it, within this time. No successor calls
# that soon, since the lease outlasts it.
SEEN_SECONDS = 1.0


@dataclass(frozen=True)
class Freeze:
    """The start and end of a dispatcher's freeze, in seconds of time.monotonic()."""

    began: float
    ended: float


def without_slipped(
    overlaps: Sequence[Pair], calls: Iterable[Call], freezes: Iterable[Freeze]
) -> tuple[Pair, ...]:
    """The overlaps without those of one call for each freeze with calls of its successor."""
    known = {call.number: call for call in calls}
    first_used: dict[int, float] = {}
    uses = Counter(call.connection for call in known.values())
    for call in known.values():
        if call.connection is not None:
            at = first_used.get(call.connection, call.started)
            first_used[call.connection] = min(at, call.started)
    once = {connection for connection, count in uses.items() if count == 1}
    left = list(overlaps)
    for freeze in freezes:
        excused = _slipped(left, known, first_used, once, freeze)
        left = [pair for pair in left if pair not in excused]
    return tuple(left)


def _slipped(
    overlaps: Iterable[Pair],
    known: Mapping[int, Call],
    first_used: Mapping[int, float],
    once: Container[int | None],
    freeze: Freeze,
) -> list[Pair]:
    """The overlaps of the one call; of several that look like it, the one that began first."""
    found: dict[int, list[Pair]] = {}
    for pair in overlaps:
        for one, other in ((pair.first, pair.second), (pair.second, pair.first)):
            caught, beside = known[one], known[other]
            if _was_caught(caught, first_used, once, freeze) and _is_successors(
                beside, first_used, freeze
            ):
                found.setdefault(one, []).append(pair)
    return found[min(found, key=lambda number: known[number].started)] if found else []


def _was_caught(
    call: Call, first_used: Mapping[int, float], once: Container[int | None], freeze: Freeze
) -> bool:
    """Made by the frozen process: it was under way when that thawed, or began then."""
    used = None if call.connection is None else first_used[call.connection]
    return (
        used is not None
        and (
            used <= freeze.began + SEEN_SECONDS
            or (used >= freeze.ended and call.connection in once)
        )
        and call.started <= freeze.ended + SEEN_SECONDS
        and call.finished is not None
        and call.finished >= freeze.ended
    )


def _is_successors(call: Call, first_used: Mapping[int, float], freeze: Freeze) -> bool:
    """By a connection that was made while the frozen process could make none."""
    used = None if call.connection is None else first_used[call.connection]
    return used is not None and freeze.began + SEEN_SECONDS < used < freeze.ended
