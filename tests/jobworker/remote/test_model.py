"""A model of one key's events between two leaders, workers and a broker, in every interleaving.

Workers may run a job at any time after it was sent, or never. Each run may decide to write or to
write nothing. The broker may lose and double jobs and decisions: a sent message stays in the model,
and each step may deliver it or not. A leader may give an attempt up at any moment and hand the
event out again. A second leader takes over at any moment, and the first one may continue without
noticing it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

EVENTS = 2
MOST_ATTEMPTS = 3
WRITE, EMPTY = "write", "empty"


@dataclass(frozen=True)
class Rules:
    """The parts that a variant leaves out."""

    current_only: bool = True
    """A leader takes a decision of its current attempt only."""
    is_fenced: bool = True
    """A new leader sets the epoch that every record has in its condition, before all else."""
    saves_along: bool = True
    """A record saves that the events before it are finished."""


@dataclass(frozen=True)
class Leader:
    """`at` is the event that it is to decide; `empty` those that it finished without a record."""

    epoch: int
    at: int
    attempt: int | None = None
    has_looked: bool = False
    empty: frozenset[int] = frozenset()
    is_replaced: bool = False


@dataclass(frozen=True)
class World:
    """`sent` has each attempt's (leader, event), `decided` the results of its runs."""

    epoch: int = 1
    saved: int = 0
    """The event that a new leader begins with, at the earliest."""
    applied: tuple[int, ...] = ()
    leaders: tuple[Leader, ...] = (Leader(1, 0),)
    sent: tuple[tuple[int, int], ...] = ()
    decided: frozenset[tuple[int, str]] = frozenset()


def steps(world: World, rules: Rules) -> Iterator[World]:
    """All that may happen next."""
    yield from runs(world)
    for number, leader in enumerate(world.leaders):
        if leader.is_replaced or leader.at == EVENTS:
            continue
        if leader.attempt is None:
            yield from hands_out(world, number)
        else:
            # Given up: the worker is silent, or does not name it.
            yield with_leader(world, number, replace(leader, attempt=None))
        for attempt, said in world.decided:
            yield from hears(world, number, attempt, said, rules)
    if len(world.leaders) == 1:
        # The first one may have saved more since its last record.
        for at in range(world.saved, world.leaders[0].at + 1):
            epoch = 2 if rules.is_fenced else world.epoch
            yield replace(world, epoch=epoch, leaders=(*world.leaders, Leader(2, at)))


def runs(world: World) -> Iterator[World]:
    for attempt in range(len(world.sent)):
        for said in (WRITE, EMPTY):
            if (attempt, said) not in world.decided:
                yield replace(world, decided=world.decided | {(attempt, said)})


def hands_out(world: World, number: int) -> Iterator[World]:
    """A later leader looks first whether a predecessor has decided it."""
    leader = world.leaders[number]
    if leader.epoch > 1 and not leader.has_looked:
        yield with_leader(world, number, past_what_is_applied(world, leader))
        return
    if len(world.sent) < MOST_ATTEMPTS:
        out = replace(leader, attempt=len(world.sent))
        sent = (*world.sent, (number, leader.at))
        yield with_leader(replace(world, sent=sent), number, out)


def past_what_is_applied(world: World, leader: Leader) -> Leader:
    at = leader.at
    while at in world.applied:
        at += 1
    return replace(leader, at=at, has_looked=True)


def hears(world: World, number: int, attempt: int, said: str, rules: Rules) -> Iterator[World]:
    leader = world.leaders[number]
    sender, event = world.sent[attempt]
    if sender != number:
        return
    if rules.current_only and attempt != leader.attempt:
        return
    gone_on = replace(leader, at=event + 1, attempt=None)
    if said == EMPTY:
        yield with_leader(world, number, replace(gone_on, empty=leader.empty | {event}))
    elif leader.epoch < world.epoch:
        yield with_leader(world, number, replace(leader, is_replaced=True))
    else:
        saved = event if rules.saves_along else world.saved
        written = replace(world, applied=(*world.applied, event), saved=saved)
        yield with_leader(written, number, gone_on)


def with_leader(world: World, number: int, leader: Leader) -> World:
    leaders = list(world.leaders)
    leaders[number] = leader
    return replace(world, leaders=tuple(leaders))


def violation(world: World) -> str | None:
    if len(set(world.applied)) < len(world.applied):
        return "recorded twice"
    if list(world.applied) != sorted(world.applied):
        return "recorded after a later one"
    last = world.leaders[-1]
    if last.empty & set(world.applied):
        return "recorded although the leader had decided to write nothing"
    return None


def explored(rules: Rules, *, until_wrong: bool = False) -> tuple[set[World], set[str]]:
    """Every reachable world, and the faults in some of them."""
    seen, found = {World()}, set[str]()
    waiting = [World()]
    while waiting:
        for after in steps(waiting.pop(), rules):
            if after in seen:
                continue
            seen.add(after)
            if wrong := violation(after):
                found.add(wrong)
                if until_wrong:
                    return seen, found
            else:
                waiting.append(after)
    return seen, found


def test_no_interleaving_records_twice_late_or_out_of_order() -> None:
    seen, found = explored(Rules())
    assert found == set()
    assert len(seen) > 10_000
    # And it ends: some worlds have every event decided by the last leader.
    assert any(world.leaders[-1].at == EVENTS for world in seen)


@pytest.mark.parametrize(
    "rules", [Rules(current_only=False), Rules(is_fenced=False), Rules(saves_along=False)], ids=str
)
def test_without_one_of_its_rules_a_promise_is_broken(rules: Rules) -> None:
    assert explored(rules, until_wrong=True)[1]
