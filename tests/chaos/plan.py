"""The schedule of the damages: drawn from the seed alone, so that a run is repeatable."""

from dataclasses import dataclass
from random import Random

from tests.chaos.damages import DAMAGES, FORCED, Damage

# A run of at least this many seconds takes the slow damages in, too.
LONG_SECONDS = 300.0
FIRST_SECONDS = 2.0
SHORTEST_REST_SECONDS = 0.5
# Long enough in a long run to come back to replies in time, and to be hit from there.
LONGEST_REST_SECONDS = 2.5
LONGEST_REST_OF_LONG_RUNS_SECONDS = 12.0


@dataclass(frozen=True)
class Blow:
    """One or several damages that begin together, at a time of the run."""

    at: float
    damages: tuple[Damage, ...]
    lasts: tuple[float, ...]

    @property
    def until(self) -> float:
        return self.at + max(self.lasts)


def plan(seed: int, seconds: float, *, workers: bool = False) -> list[Blow]:
    """One thing at a time in the first half, each of them once before any comes again; then two or
    three together. With workers their damages come first, and are in each blow.
    """
    chance = Random(seed)
    is_long = seconds >= LONG_SECONDS
    known = [
        one
        for one in DAMAGES
        if (is_long or not one.long_runs_only) and (workers or not one.of_workers)
    ]
    of_workers = [one for one in known if one.of_workers]
    longest_rest = LONGEST_REST_OF_LONG_RUNS_SECONDS if is_long else LONGEST_REST_SECONDS
    blows: list[Blow] = []
    deck: list[Damage] = []
    at = FIRST_SECONDS
    while True:
        if at < seconds / 2:
            deck = deck or chance.sample(known, len(known))
            # Stable, so that without workers nothing moves.
            deck.sort(key=lambda one: one.of_workers)
            chosen: tuple[Damage, ...] = (deck.pop(),)
        else:
            chosen = tuple(chance.sample(known, chance.choice([2, 2, 3])))
            if of_workers and not any(one.of_workers for one in chosen):
                chosen = (*chosen[1:], chance.choice(of_workers))
        lasts = [chance.uniform(one.shortest_seconds, one.longest_seconds) for one in chosen]
        blow = Blow(at, chosen, tuple(lasts))
        if blow.until > seconds:
            return blows
        blows.append(blow)
        at = blow.until + chance.uniform(SHORTEST_REST_SECONDS, longest_rest)


def step_downs(count: int, seconds: float) -> list[Blow]:
    """That many forced step-downs, evenly, and nothing else."""
    return [Blow((n + 0.5) * seconds / count, (FORCED,), (0.0,)) for n in range(count)]
