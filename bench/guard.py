"""Small measurements that fail if a ratio has halved, or a cost has grown: `python -m bench guard`.

Each ratio is taken within one run on one machine, so it holds on a slow one as well. The best of
the rounds counts, so that a busy machine raises no alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rich.console import Console

from bench import accept, record
from bench.desks import CHECKING, STORED
from bench.report import BenchFailed, Report, spread

ROUNDS = 3
SECONDS = 1.5
CONNECTIONS = 32


@dataclass(frozen=True)
class Kept:
    """A ratio that was measured, below half of which the guard fails; the most for a cost."""

    name: str
    measure: Callable[[Console], Report]
    variant: str
    ratio: float
    cost: str = ""
    """The figure of a cost; otherwise the first one is taken, of which more is better."""

    def holds(self, ratios: Sequence[float]) -> bool:
        """Whether the best round does."""
        return min(ratios) <= self.ratio if self.cost else max(ratios) >= self.ratio / 2


def accepted(console: Console) -> Report:
    """The front desk beside the route that only checks."""
    return accept.measured(
        (CHECKING, STORED),
        1,
        [CONNECTIONS],
        seconds=SECONDS,
        rounds=ROUNDS,
        console=console,
    )


def recorded(console: Console) -> Report:
    """The dispatcher beside threads that write and call with no promise."""
    return record.measured(1_000, 200, rounds=ROUNDS, console=console, peers=False)


KEPT: tuple[Kept, ...] = (
    # Two cores of a virtual machine, MongoDB 6.0.5: 0.46 to 0.6 and 0.43 to 0.61 were measured.
    Kept("accept", accepted, STORED, 0.50),
    Kept("record", recorded, record.LINEDESK, 0.45),
    # An answered message: 1.4 to 2.3, at loads of 1 to 18.
    Kept("processor time", recorded, record.LINEDESK, 3.5, cost=record.PROCESSOR),
)


def check(console: Console, kept: Sequence[Kept] = KEPT) -> None:
    """Measure all. Raises BenchFailed, which names each that does not hold."""
    lost = []
    reports = {measure: measure(console) for measure in dict.fromkeys(one.measure for one in kept)}
    for one in kept:
        report = reports[one.measure]
        [row] = [row for row in report.rows if row.variant == one.variant]
        ratios = report.ratios(row, one.cost)
        bound = f"at most {one.ratio:.2f}" if one.cost else f"at least half of {one.ratio:.2f}"
        said = f"{one.name}: {one.variant} at {spread(ratios)} of {report.baseline}, {bound}"
        console.print(said)
        if not one.holds(ratios):
            lost.append(said)
    if lost:
        raise BenchFailed(f"out of bounds: {'; '.join(lost)}")
