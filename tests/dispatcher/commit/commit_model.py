"""A model of the leader's groups of writes: records, notes and ends of calls, letters and `held`.

Leaders of rising terms take over at any moment; the one before may be frozen at any moment and go
on later. A group is one transaction, which also writes the term's document. Groups are messages:
delivered late, never, or after their sender gave up waiting; applied on the primary, then on a
majority or rolled back by an election; answers are lost. Reads on a majority may lag. Events belong
to conversations and are answered by one send each: a reply, whose token gets old, or a push under
its key. LINE takes a token and a key once, its answer may be lost, and it may refuse a send for
good. An event may move to `held` before it is decided.

A guard has the name that it has in the code (`tests.test_guards` compares them). `Model(out=NAME)`
is the design without it. `Model.search` tries every order of the steps.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any, NamedTuple

GUARDS = {
    "fence-is-written": "a group writes the term's document, and does not only read it",
    "term-in-the-fence": "that write asks for the leader's own term",
    "journalled-majority": "a group counts once a majority has it",
    "commit-is-repeated": "a group of unknown outcome is repeated, and nothing in it decided anew",
    "unknown-is-not-success": "a group of unknown outcome does not count as written",
    "reads-behind-the-fence": "a new leader reads no state from before its take-over",
    "note-before-the-call": "LINE is called only once the note of the call is durable",
    "same-key-again": "a call is repeated under its token or key",
    "found-call-was-tried": "a call that a leader finds counts as tried",
    "end-after-the-verdict": "a send leaves the outbox only after LINE's verdict",
    "second-of-proof": "in the last second of a token its refusal proves nothing",
}

# The ages of a reply token: LINE takes it; LINE refuses it while the leader's clock, in the last
# second, does not say so yet; it is over by both.
YOUNG, LAST_SECOND, OVER = range(3)
# The states of an event in its conversation.
NOTHING, REPLY_NOTED, TOKEN_USED, PUSH_NOTED, SENT, LETTER = (
    *("", "reply noted", "token used", "push noted"),
    *("sent", "letter"),
)
NOTED = (REPLY_NOTED, PUSH_NOTED)
ENDED = (SENT, LETTER)
# Where a document is.
WINDOW, HELD, FINISHED = "window", "held", "finished"


class Decision(NamedTuple):
    """The record of an event. Its identity is also the retry key of its push."""

    n: int
    term: int
    group: int


class Answer(NamedTuple):
    """An event in its conversation."""

    state: str = NOTHING
    decision: Decision | None = None


class Store(NamedTuple):
    """The database at one moment, on one node."""

    term: int
    answers: tuple[Answer, ...]
    where: tuple[str, ...]
    groups: tuple[tuple[int, int], ...] = ()
    """The transactions that are part of it."""


class Line(NamedTuple):
    """LINE, and what arrived, in order."""

    ages: tuple[int, ...]
    used: tuple[int, ...] = ()
    """The events whose token is used up."""
    keys: tuple[tuple[int, Any], ...] = ()
    arrived: tuple[int, ...] = ()


class Group(NamedTuple):
    """A group on its way to MongoDB; `writes` is None for a take-over."""

    by: int
    number: int
    writes: tuple[tuple[int, str, Any], ...] | None
    has_begun: bool = False
    """Only without a guard: it has read the term already."""


class Leader(NamedTuple):
    """A process. `phase` is "new", "taking over", "leads" or "ended"."""

    phase: str = "new"
    answers: tuple[Answer, ...] = ()
    where: tuple[str, ...] = ()
    flight: Group | None = None
    status: str = ""
    """Of the group in flight: "sent", "applied" (not on a majority), "ok", "no" or "unknown"."""
    number: int = 0
    tried: tuple[int, ...] = ()
    """Events whose noted call may have reached LINE."""
    calling: int | None = None
    """The event for which it calls LINE: its lease was fresh when it was asked last."""
    verdicts: tuple[tuple[int, str], ...] = ()
    """LINE's verdicts that are not durable yet."""


class Left(NamedTuple):
    """How much trouble may still come."""

    waits: int = 0
    """How often a leader gives up waiting for an answer of MongoDB."""
    losses: int = 0
    """How many answers of LINE are lost."""
    elections: int = 0
    refusals: int = 0
    """How many sends LINE refuses for good."""
    moves: int = 0
    """How many documents move to `held`."""


NO_TROUBLE = Left()


class World(NamedTuple):
    """Everything at one moment."""

    primary: Store
    majority: Store
    lagging: Store
    """A majority read may still return this."""
    leaders: tuple[Leader, ...]
    line: Line
    left: Left
    net: tuple[Group, ...] = ()
    decided: tuple[tuple[int, Decision], ...] = ()
    """Every decision that was ever durable."""
    unproved: tuple[int, ...] = ()
    """Replies that fall under the one exception of G5."""

    def with_leader(self, by: int, leader: Leader) -> World:
        return self._replace(leaders=(*self.leaders[:by], leader, *self.leaders[by + 1 :]))

    def spends(self, name: str) -> World:
        return self._replace(left=self.left._replace(**{name: getattr(self.left, name) - 1}))

    def carries(self, group: Group) -> World:
        # The order has no meaning, and worlds that differ in it alone are one.
        return self._replace(net=tuple(sorted((*self.net, group), key=repr)))

    def without(self, *groups: Group) -> World:
        net = list(self.net)
        for group in groups:
            net.remove(group)
        return self._replace(net=tuple(net))


Steps = Iterator[tuple[str, World]]


@dataclass(frozen=True)
class Found:
    """The result of a search: the broken promise with the steps to it, if any."""

    problem: str | None
    worlds: int
    steps: tuple[str, ...] = ()
    is_complete: bool = True


class Model:
    """The protocol in one size; without a guard if `out` names it."""

    def __init__(
        self,
        *,
        events: int,
        conversations: int = 1,
        leaders: int = 2,
        trouble: Left,
        replies: bool = False,
        out: str = "",
    ) -> None:
        """Event 0 belongs to conversation 0, event 1 to the next one, and so on in turn. With
        `replies` events have tokens, else all sends are pushes.
        """
        self.events, self.conversations = events, conversations
        self.replies, self.out = replies, out
        self.first_state = REPLY_NOTED if replies else PUSH_NOTED
        store = Store(0, (Answer(),) * events, (WINDOW,) * events)
        line = Line((YOUNG,) * events)
        self.first = World(store, store, store, (Leader(),) * leaders, line, trouble)

    def has(self, guard: str) -> bool:
        return guard != self.out

    # The promises.

    def problem(self, world: World) -> str | None:
        """Return the promise that is broken in this world."""
        decided: dict[int, Decision] = {}
        for event, decision in world.decided:
            if decided.setdefault(event, decision) != decision:
                return f"event {event} is decided twice"
        for event, decision in decided.items():
            if world.majority.answers[event].decision != decision:
                return f"the decision of event {event} is lost"
        for event, key in world.line.keys:
            if event not in decided or key not in ("token", decided[event]):
                return f"LINE was called for event {event} without a durable decision"
        for event, answer in enumerate(world.majority.answers):
            if world.majority.where[event] == FINISHED and answer.decision is None:
                return f"event {event} is finished and was not decided"
            times = world.line.arrived.count(event)
            if times > 1 and event not in world.unproved:
                return f"the answer to event {event} arrived {times} times"
            if answer.state == SENT and not times:
                return f"the answer to event {event} left the outbox and never arrived"
            if answer.state == LETTER and times and event not in world.unproved:
                return f"the answer to event {event} arrived, and is a letter as well"
        for number in range(self.conversations):
            own = [e for e in range(self.events) if e % self.conversations == number]
            first = [event for event in dict.fromkeys(world.line.arrived) if event in own]
            if first != sorted(first):
                return "answers arrived out of order"
            records = [world.majority.answers[event].decision for event in own]
            numbers = [one.n for one in records if one is not None]
            if numbers != list(range(1, len(numbers) + 1)) or None in records[: len(numbers)]:
                return "a record is based on an older state"
        return None

    def problem_at_rest(self, world: World) -> str | None:
        """Return what was not done although nothing more can happen."""
        if any(one.phase == "leads" for one in world.leaders) and any(
            answer.state not in ENDED for answer in world.majority.answers
        ):
            return "stuck"
        return None

    # The steps.

    def steps(self, world: World) -> Steps:
        yield from self._at_mongodb(world)
        yield from self._replication(world)
        for event, age in enumerate(world.line.ages if self.replies else ()):
            if age < OVER and world.primary.answers[event].state in (REPLY_NOTED, TOKEN_USED):
                ages = (*world.line.ages[:event], age + 1, *world.line.ages[event + 1 :])
                older = world._replace(line=world.line._replace(ages=ages))
                yield f"token {event} gets older", older
        for by, me in enumerate(world.leaders):
            if me.phase == "new":
                # The one before may be frozen, or dead: the rest of its steps may never come.
                if by == 0 or world.leaders[by - 1].phase != "new":
                    begins = me._replace(phase="taking over")
                    yield f"{by} takes over", self._sends(world, by, begins, None)
            elif me.phase != "ended":
                yield from self._leads(world, by, me)

    def _sends(self, world: World, by: int, me: Leader, writes: Any) -> World:
        group = Group(by, me.number, writes)
        me = me._replace(flight=group, status="sent", number=me.number + 1)
        return world.with_leader(by, me).carries(group)

    # MongoDB.

    def _at_mongodb(self, world: World) -> Steps:
        for group in dict.fromkeys(world.net):
            arrived, store, me = world.without(group), world.primary, world.leaders[group.by]
            term, told = group.by + 1, f"group {group.number} of {group.by}"
            if group.writes is None:
                is_mine = store.term <= term
                changed = store._replace(term=term)
            else:
                is_mine = group.has_begun or store.term == term or not self.has("term-in-the-fence")
                if is_mine and not (group.has_begun or self.has("fence-is-written")):
                    yield f"{told} begins", arrived.carries(group._replace(has_begun=True))
                    continue
                changed = self._written(store, group)
            status = "no"
            if is_mine:
                arrived = arrived._replace(primary=changed)
                status = "applied" if self.has("journalled-majority") else "ok"
            if me.flight is not None and me.flight[:2] == group[:2] and me.status == "sent":
                arrived = arrived.with_leader(group.by, me._replace(status=status))
            yield f"{told} arrives: {status}", arrived

    def _written(self, store: Store, group: Group) -> Store:
        answers, where = list(store.answers), list(store.where)
        assert group.writes is not None
        for event, what, value in group.writes:
            if what == "answer":
                answers[event] = value
            else:
                where[event] = value
        groups = (*store.groups, group[:2])
        return store._replace(answers=tuple(answers), where=tuple(where), groups=groups)

    def _replication(self, world: World) -> Steps:
        primary, majority = world.primary, world.majority

        def with_status(status: str) -> tuple[Leader, ...]:
            return tuple(
                one._replace(status=status) if one.status == "applied" else one
                for one in world.leaders
            )

        if primary == majority and not any(one.status == "applied" for one in world.leaders):
            return
        records = {(e, one.decision) for e, one in enumerate(primary.answers) if one.decision}
        yield (
            "a majority has it",
            world._replace(
                majority=primary,
                lagging=majority,
                leaders=with_status("ok"),
                decided=tuple(sorted(records.union(world.decided))),
            ),
        )
        if world.left.elections and primary != majority:
            back = world._replace(primary=majority, leaders=with_status("unknown"))
            yield "an election rolls it back", back.spends("elections")

    # A leader.

    def _leads(self, world: World, by: int, me: Leader) -> Steps:
        if me.status in ("sent", "applied") and world.left.waits:
            gives_up = world.with_leader(by, me._replace(status="unknown"))
            yield f"{by} waits for too long", gives_up.spends("waits")
        if me.status == "no":
            yield f"{by} is replaced", world.with_leader(by, Leader("ended"))
        elif me.status == "unknown":
            yield from self._uncertain(world, by, me)
        elif me.status == "ok":
            yield from self._confirmed(world, by, me)
        elif me.phase == "leads" and not me.status:
            yield from self._next_group(world, by, me)
        if me.phase == "leads":
            yield from self._calls(world, by, me)

    def _uncertain(self, world: World, by: int, me: Leader) -> Steps:
        group = me.flight
        assert group is not None
        under_way = [one for one in world.net if one[:2] == group[:2]]
        if me.phase == "taking over":
            if not under_way:
                yield f"{by} takes over again", self._sends(world, by, me, None)
            return
        if not self.has("unknown-is-not-success"):
            yield f"{by} takes it for written", world.with_leader(by, me._replace(status="ok"))
        free = me._replace(flight=None, status="")
        if not self.has("commit-is-repeated"):
            yield f"{by} takes it for lost", world.with_leader(by, free)
        elif group[:2] in world.majority.groups:
            written = world.with_leader(by, me._replace(status="ok"))
            yield f"{by} repeats the commit: written", written
        elif group[:2] not in world.primary.groups:
            # NoSuchTransaction: it is aborted, or can never begin. The group is made again.
            again = self._sends(world.without(*under_way), by, free, group.writes)
            yield f"{by} repeats the commit: aborted", again

    def _confirmed(self, world: World, by: int, me: Leader) -> Steps:
        free = me._replace(flight=None, status="")
        if me.phase == "taking over":
            stores = [world.majority]
            if not self.has("reads-behind-the-fence"):
                stores.append(world.lagging)
            for store in dict.fromkeys(stores):
                found = [e for e, one in enumerate(store.answers) if one.state in NOTED]
                yield (
                    f"{by} has taken over",
                    world.with_leader(
                        by,
                        free._replace(
                            phase="leads",
                            answers=store.answers,
                            where=store.where,
                            tried=tuple(found) if self.has("found-call-was-tried") else (),
                        ),
                    ),
                )
            return
        assert me.flight is not None
        known = self._written(Store(0, me.answers, me.where), me.flight)
        verdicts = tuple(one for one in me.verdicts if known.answers[one[0]].state != one[1])
        free = free._replace(answers=known.answers, where=known.where, verdicts=verdicts)
        yield f"{by} knows that its group is there", world.with_leader(by, free)

    def _next_group(self, world: World, by: int, me: Leader) -> Steps:
        """The ends that wait, and any of the records, notes and moves that are possible."""
        ends: list[tuple[int, str, Any]] = [
            (event, "answer", me.answers[event]._replace(state=to)) for event, to in me.verdicts
        ]
        after = list(me.answers)
        for event, _, answer in ends:
            after[event] = answer
        ends += [
            (event, "where", FINISHED)
            for event, answer in enumerate(me.answers)
            if answer.decision is not None and me.where[event] != FINISHED
        ]
        possible = list(self._possible(world, by, me, after))
        for count in range(len(possible) + 1):
            for chosen in combinations(possible, count):
                writes = (*ends, *chosen)
                if not writes or len({one[:2] for one in writes}) < len(writes):
                    continue
                then = self._sends(world, by, me, writes)
                moves = sum(one[2] == HELD for one in chosen)
                if moves > world.left.moves:
                    continue
                for _ in range(moves):
                    then = then.spends("moves")
                yield f"{by} sends a group", then

    def _possible(
        self, world: World, by: int, me: Leader, answers: list[Answer]
    ) -> Iterator[tuple[int, str, Any]]:
        for number in range(self.conversations):
            own = [e for e in range(self.events) if e % self.conversations == number]
            new = next((event for event in own if answers[event].decision is None), None)
            if new is not None:
                n = 1 + sum(answers[event].decision is not None for event in own)
                decision = Decision(n, by + 1, me.number)
                # With sends before it, its call cannot follow at once; that changes nothing here.
                yield new, "answer", Answer(self.first_state, decision)
            head = next((event for event in own if answers[event].state not in ENDED), None)
            if head is not None and answers[head].state == TOKEN_USED:
                yield head, "answer", answers[head]._replace(state=PUSH_NOTED)
            for event in own if world.left.moves else ():
                if answers[event].decision is None and me.where[event] == WINDOW:
                    yield event, "where", HELD

    # LINE.

    def _calls(self, world: World, by: int, me: Leader) -> Steps:
        answers = list(me.answers)
        if me.flight is not None and not self.has("note-before-the-call"):
            answers = list(self._written(Store(0, me.answers, me.where), me.flight).answers)
        if me.calling is not None:
            answer = answers[me.calling]
            free = me._replace(calling=None)
            if answer.state == REPLY_NOTED:
                yield from self._replies(world, by, free, me.calling)
            else:
                yield from self._pushes(world, by, free, me.calling, answer.decision)
            return
        if world.leaders[by + 1 :] and world.leaders[by + 1].phase != "new":
            return
        known = dict(me.verdicts)
        for number in range(self.conversations):
            own = [e for e in range(self.events) if e % self.conversations == number]
            head = next((e for e in own if known.get(e, answers[e].state) not in ENDED), None)
            if head is not None and head not in known and answers[head].state in NOTED:
                yield f"{by} begins a call", world.with_leader(by, me._replace(calling=head))

    def _ends(self, world: World, by: int, me: Leader, event: int, verdict: str) -> World:
        verdicts = tuple(sorted((*me.verdicts, (event, verdict))))
        return world.with_leader(by, me._replace(verdicts=verdicts))

    def _unheard(self, world: World, by: int, me: Leader, event: int) -> Steps:
        """The answer to a call is lost."""
        if not world.left.losses:
            return
        heard = world.spends("losses")
        if not self.has("end-after-the-verdict"):
            yield f"{by} ends the call of {event} unheard", self._ends(heard, by, me, event, SENT)
            return
        tried = tuple(sorted({*me.tried, event}))
        yield f"{by} hears nothing of {event}", heard.with_leader(by, me._replace(tried=tried))

    def _replies(self, world: World, by: int, me: Leader, event: int) -> Steps:
        line = world.line
        if world.left.losses:
            # LINE never got it.
            yield from self._unheard(world, by, me, event)
        if event not in line.used and line.ages[event] == YOUNG:
            taken = line._replace(
                used=(*line.used, event),
                keys=(*line.keys, (event, "token")),
                arrived=(*line.arrived, event),
            )
            there = world._replace(line=taken)
            yield f"{by} replies to {event}", self._ends(there, by, me, event, SENT)
            yield from self._unheard(there, by, me, event)
            return
        # Refused: used, or too old.
        is_young = line.ages[event] == YOUNG
        if not self.has("second-of-proof"):
            is_young = line.ages[event] < OVER
        if event in me.tried and is_young:
            yield f"{by}'s reply to {event} is proved", self._ends(world, by, me, event, SENT)
            return
        refused = self._ends(world, by, me, event, TOKEN_USED)
        if event in me.tried:
            unproved = tuple(sorted({*world.unproved, event}))
            refused = refused._replace(unproved=unproved)
        yield f"{by}'s token {event} is refused", refused

    def _pushes(
        self, world: World, by: int, me: Leader, event: int, decision: Decision | None
    ) -> Steps:
        line, key = world.line, (event, decision)
        if world.left.losses:
            yield from self._unheard(world, by, me, event)
        if event not in me.tried and world.left.refusals:
            letter = self._ends(world, by, me, event, LETTER)
            yield f"LINE refuses the push of {event}", letter.spends("refusals")
        is_new = key not in line.keys
        if not self.has("same-key-again") and event in me.tried:
            is_new = line.arrived.count(event) < 2
        if is_new:
            line = line._replace(keys=(*line.keys, key), arrived=(*line.arrived, event))
        there = world._replace(line=line)
        yield f"{by} pushes {event}", self._ends(there, by, me, event, SENT)
        if is_new:
            yield from self._unheard(there, by, me, event)

    # The search.

    def search(self, *, most: int = 500_000) -> Found:
        """Try every order of the steps, the shortest first, until a promise is broken."""
        numbers = {self.first: 0}
        worlds, came_from = [self.first], [(0, "")]
        for number, world in enumerate(worlds):
            is_at_rest = True
            for told, then in self.steps(world):
                is_at_rest = False
                place = numbers.setdefault(then, len(worlds))
                if place == len(worlds):
                    worlds.append(then)
                    came_from.append((number, told))
                    if problem := self.problem(then):
                        return Found(problem, len(worlds), _way_to(place, came_from))
            if is_at_rest and (problem := self.problem_at_rest(world)):
                return Found(problem, len(worlds), _way_to(number, came_from))
            if len(worlds) > most:
                return Found(None, len(worlds), is_complete=False)
        return Found(None, len(worlds))


def _way_to(number: int, came_from: list[tuple[int, str]]) -> tuple[str, ...]:
    steps: list[str] = []
    while number:
        number, told = came_from[number]
        steps.append(told)
    return tuple(steps[::-1])


SMALL_SIZES: Mapping[str, Mapping[str, Any]] = {
    "one event": {"events": 1, "trouble": Left(waits=1, losses=1)},
    "an election": {"events": 1, "trouble": Left(elections=1)},
    "a reply": {"events": 1, "replies": True, "trouble": Left(losses=1)},
    "a letter": {"events": 1, "trouble": Left(losses=1, refusals=1, elections=1)},
    "a document in held": {"events": 1, "trouble": Left(waits=1, moves=1)},
    "two events": {"events": 2, "trouble": NO_TROUBLE},
    "two conversations": {"events": 2, "conversations": 2, "trouble": NO_TROUBLE},
}
# Minutes: only `python -m` of this module goes through them, and `scripts/guards` by it.
LARGE_SIZES: Mapping[str, Mapping[str, Any]] = {
    "two events": {"events": 2, "trouble": Left(losses=1, elections=1)},
    "two conversations": {"events": 2, "conversations": 2, "trouble": Left(elections=1)},
    "a reply, three leaders": {
        "events": 1,
        "leaders": 3,
        "replies": True,
        "trouble": Left(losses=1),
    },
    "letters and held": {
        "events": 1,
        "trouble": Left(waits=1, losses=1, elections=1, refusals=1, moves=1),
    },
    "two events, a move": {"events": 2, "trouble": Left(losses=1, moves=1)},
}


def main() -> int:
    """Try the large sizes; returns 1 if a promise is broken in one of them, or it has more worlds
    than are tried.
    """
    is_proved = True
    for name, size in LARGE_SIZES.items():
        began = time.monotonic()
        found = Model(**size).search(most=5_000_000)
        told = found.problem or ("every promise holds" if found.is_complete else "not complete")
        print(f"{name}: {found.worlds:,} worlds, {time.monotonic() - began:.0f} s: {told}")
        print(*found.steps, sep="\n    ", end="\n" if found.steps else "", flush=True)
        is_proved = is_proved and found.problem is None and found.is_complete
    return int(not is_proved)


if __name__ == "__main__":
    sys.exit(main())
