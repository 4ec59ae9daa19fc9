"""A model of an answered message: the record that carries the note of its call, the call, its end.

One conversation, and events that each are answered by one send. Leaders freeze, die, stop cleanly
and wake. Writes arrive late, twice, or without an answer. LINE takes a call and its answer is lost,
refuses it for the moment or for good, and reply tokens expire. An operator edits the conversation
and gives sends up. `Model.search` tries every order of the steps.

A guard has the name that it has in the code (`tests.test_guards` compares them). `Model(out=NAME)`
is the design without it.

A leader that takes over does not know the conversation yet. Its first record may go with others in
one command, if it asks that the outbox is empty. Otherwise it adopts the conversation: the epoch
first, then the whole outbox. A reply token has three ages: LINE takes it; LINE refuses it while the
leader's clock, in the last second, does not say so yet; it is over by both.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

GUARDS = {
    "epoch-of-the-record": "a record asks that no successor has the conversation",
    "decided-once": "a record asks that its event is not applied",
    "number-of-the-record": "a record asks for the `n` of the copy on which it is based",
    "outbox-is-empty": "the record of a leader that has not adopted asks for an empty outbox",
    "whole-outbox-first": "a record that does not ask for it hands over the whole outbox",
    "epoch-before-outbox": "a leader adopts a conversation before it reads its outbox",
    "first-end-adopts": "an event that ends without a record adopts as well",
    "found-applied-adopts": "a record that is found done adopts the conversation",
    "lost-record-is-read": "a record of unknown outcome is settled by reading",
    "no-call-stands": "a note, and a record with a call, ask that no other call is stored",
    "epoch-of-the-note": "a note asks for the leader's own epoch",
    "ends-join-the-record": "a record with a call takes along an end that is not durable yet",
    "ends-join-the-note": "a note takes it along as well",
    "epoch-of-the-end": "an end asks for the leader's own epoch",
    "end-names-its-call": "an end removes only its own call",
    "end-again": "an end of unknown outcome is written again",
    "end-after-the-verdict": "a send leaves the outbox only after LINE's verdict",
    "noted-before-the-call": "LINE is called only once the note is durable",
    "found-call-was-tried": "a call that a leader finds counts as tried, and is repeated unchanged",
    "unknown-stands": "a call without a verdict stays, and is repeated unchanged",
    "good-at-the-answer": "whether the token was young is asked when the answer comes",
    "second-of-proof": "in the last second of a token its refusal proves nothing",
    "refusal-is-durable-first": "a refused call ends durably before another try",
    "letter-in-the-outbox-first": "a send is a letter in the outbox before it is one elsewhere",
    "stop-strikes-out": "a clean stop removes the note of a call that was not made",
    "refused-epoch-ends": "a leader that meets a higher epoch ends",
    "edit-counts": "an operator who edits the conversation increments `n`",
    "cached-again": "a copy that was not read for some time is read again",
}

# The ages of a reply token.
YOUNG, LAST_SECOND, OVER = range(3)
# The kinds of an effect in the outbox.
REPLY, PUSH, LETTER, UNSURE_LETTER = "reply", "push", "letter", "letter of unknown outcome"
LETTERS = (LETTER, UNSURE_LETTER)


class Stored(NamedTuple):
    """A call as the conversation has it."""

    event: int
    way: str
    """"reply" with its token, or "push" under its key."""
    number: int = 0
    """Each new call has one of its own, where that matters."""


class Conversation(NamedTuple):
    """The document in MongoDB."""

    epoch: int = 0
    n: int = 0
    state: int = 0
    """One for each event, ten for each edit."""
    applied: tuple[int, ...] = ()
    outbox: tuple[tuple[int, str], ...] = ()
    call: Stored | None = None
    letters: tuple[tuple[int, bool], ...] = ()
    """The rows of `deadletters`, each with whether it may have arrived."""


class Line(NamedTuple):
    """LINE, and what arrived."""

    used: tuple[int, ...]
    ages: tuple[int, ...]
    keys: tuple[tuple[int, int], ...]
    delivered: tuple[int, ...]
    disorder: bool = False


class Message(NamedTuple):
    """A write or a call that is on its way. It may arrive at any time, or never."""

    kind: str
    by: int
    event: int
    is_awaited: bool = True
    """Whether its leader hears the answer."""
    call: Stored | None = None
    """The call that it stores, ends or makes."""
    n: int = 0
    state: int = 0
    joined: tuple[Stored, ...] = ()
    """The ends that it takes along."""
    stray: Stored | None = None
    """A call that it may replace."""
    tried: bool = False
    used: bool = False
    done: bool = False
    how: str = "adopted"
    """Of a record: "adopted", "empty" if it asks for an empty outbox, or "alone"."""


class Call(NamedTuple):
    """A leader's call."""

    stored: Stored
    tried: bool = False
    good: bool = False
    """Whether its token was young; only without a guard."""


class Leader(NamedTuple):
    """A process, with its knowledge of the conversation."""

    state: str = "new"
    """"new", "live", "reading" (only without a guard), "stopping" or "dead"."""
    adopted: bool = False
    has_left: bool = False
    """Whether the outbox was not empty when it took over: then it adopts in any case."""
    ended: tuple[int, ...] = ()
    """The events that it ended without a record."""
    next: int = 0
    """The next event to decide."""
    record: str | None = None
    """"sent", "unknown", or "again" after one that did not match."""
    copy: tuple[int, int] | None = None
    """The `n` and the state of the cached conversation."""
    box: tuple[tuple[int, str], ...] = ()
    step: str = "idle"
    call: Call | None = None
    stray: Stored | None = None
    ends: tuple[Stored, ...] = ()
    """The calls whose end is not known to be durable."""
    letters: tuple[int, ...] = ()
    """The events whose letter is being written."""
    calls: int = 0
    """How many new calls it has planned, where that matters."""


DEAD = Leader("dead")


class Left(NamedTuple):
    """How much trouble may still come."""

    losses: int = 0
    kills: int = 0
    stops: int = 0
    edits: int = 0
    quiet_edits: int = 0
    refusals: int = 0
    busy: int = 0
    given_up: int = 0


NO_TROUBLE = Left()


class World(NamedTuple):
    """Everything at one moment."""

    db: Conversation
    line: Line
    leaders: tuple[Leader, ...]
    left: Left
    net: tuple[Message, ...] = ()
    begun: int = 0
    """How many leaders have taken over."""
    unproved: tuple[int, ...] = ()
    """Replies that fall under the one exception of G5."""

    def with_leader(self, by: int, leader: Leader) -> World:
        leaders = (*self.leaders[:by], leader, *self.leaders[by + 1 :])
        return self._replace(leaders=leaders)

    def spends(self, **amounts: int) -> World:
        left = {name: getattr(self.left, name) - amount for name, amount in amounts.items()}
        return self._replace(left=self.left._replace(**left))

    def sends(self, leader: Leader, message: Message) -> World:
        """The leader sends a write or a call, and waits for its answer."""
        return self.with_leader(message.by, leader).carries(message)

    def carries(self, message: Message) -> World:
        # The order has no meaning, and worlds that differ in it alone are one.
        return self._replace(net=tuple(sorted((*self.net, message), key=hash)))

    def without(self, message: Message) -> World:
        place = self.net.index(message)
        return self._replace(net=self.net[:place] + self.net[place + 1 :])

    def age_of(self, event: int) -> int:
        return self.line.ages[event]


Steps = Iterator[tuple[str, World]]


@dataclass(frozen=True)
class Found:
    """The result of a search: the violated promise with the steps to it, if any."""

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
        leaders: int,
        trouble: Left = NO_TROUBLE,
        expiry: bool = False,
        drop: bool = False,
        reads: bool = True,
        own_keys: bool = False,
        freezes: bool = True,
        out: str = "",
    ) -> None:
        """`drop`: REPLY_UNKNOWN=drop. `reads`: decisions depend on the conversation. `own_keys`:
        pushes only, and each note has a key of its own, as for sends that travel together.
        `freezes`: a leader may be replaced while it lives.
        """
        self.events = events
        self.expiry, self.drop, self.reads = expiry, drop, reads
        self.own_keys, self.freezes, self.out = own_keys, freezes, out
        self.numbers_calls = own_keys or trouble.busy > 0
        nothing = (0,) * events
        line = Line((), nothing, (), nothing)
        self.first = World(Conversation(), line, (Leader(),) * leaders, trouble)

    def has(self, guard: str) -> bool:
        return guard != self.out

    # Time, operators, and the end of processes.

    def _surroundings(self, world: World) -> Steps:
        yield from self._takes_over(world)
        for by, me in enumerate(world.leaders):
            if me.state in ("live", "stopping") and world.left.kills:
                yield f"{by} is killed", world.with_leader(by, DEAD).spends(kills=1)
            if me.state == "live" and me.step in ("idle", "noted") and world.left.stops:
                stopping = me._replace(state="stopping")
                yield f"{by} stops", world.with_leader(by, stopping).spends(stops=1)
        for event, _ in world.db.outbox if self.expiry else ():
            if (age := world.age_of(event)) < OVER:
                ages = list(world.line.ages)
                ages[event] = age + 1
                line = world.line._replace(ages=tuple(ages))
                yield f"token {event} gets older", world._replace(line=line)
        yield from self._edits(world)

    def _takes_over(self, world: World) -> Steps:
        by = world.begun
        if by == len(world.leaders):
            return
        before = world.leaders[by - 1] if by else DEAD
        if before.state == "dead" or (self.freezes and before.state == "live"):
            db = world.db
            me = Leader("live", next=self._after(db, 0), copy=(db.n, db.state))
            me = me._replace(has_left=bool(db.outbox))
            yield f"{by} takes over", world.with_leader(by, me)._replace(begun=by + 1)

    def _edits(self, world: World) -> Steps:
        db, left = world.db, world.left
        edited = db._replace(state=db.state + 10)
        if left.edits:
            counted = edited._replace(n=db.n + self.has("edit-counts"))
            yield "an operator edits", world._replace(db=counted).spends(edits=1)
        if left.quiet_edits and all(me.record is None for me in world.leaders):
            # Some time passes before the next event.
            leaders = world.leaders
            if self.has("cached-again"):
                leaders = tuple(me._replace(copy=None) for me in leaders)
            later = world._replace(db=edited, leaders=leaders).spends(quiet_edits=1)
            yield "an operator edits without counting, and time passes", later

    def _after(self, db: Conversation, event: int) -> int:
        """The first event from that one on which is not applied."""
        while event in db.applied:
            event += 1
        return event

    # MongoDB.

    def _at_mongodb(self, world: World, message: Message) -> Steps:
        matched: Conversation | None = getattr(self, f"_{message.kind}")(world.db, message)
        is_done = matched is not None
        told = f"{message.by}'s {message.kind} of {message.event}{'' if is_done else ', refused'}"
        world = world.without(message)
        arrived = world if matched is None else world._replace(db=matched)
        if not message.is_awaited:
            yield f"{told}, late", arrived
            return
        heard = self._heard(arrived, message, is_done=is_done)
        yield told, heard
        if world.left.losses:
            yield f"{told}, answer lost", self._lost(arrived, message).spends(losses=1)
            late = message._replace(is_awaited=False)
            yield f"{told}, and comes twice", heard.carries(late).spends(losses=1)

    def _is_mine(self, db: Conversation, message: Message, guard: str) -> bool:
        return db.epoch == message.by + 1 or not self.has(guard)

    def _record(self, db: Conversation, message: Message) -> Conversation | None:
        is_mine = self._is_mine(db, message, "epoch-of-the-record")
        if message.how != "adopted":
            is_mine = is_mine or db.epoch <= message.by + 1
        is_undecided = message.event not in db.applied or not self.has("decided-once")
        is_as_read = message.n == db.n or not self.reads or not self.has("number-of-the-record")
        is_empty = message.how != "empty" or not db.outbox or not self.has("outbox-is-empty")
        is_free = message.call is None or self._is_free(db, message)
        if not (is_mine and is_undecided and is_as_read and is_empty and is_free):
            return None
        return self._with_ends(db, message, "ends-join-the-record")._replace(
            epoch=message.by + 1,
            n=db.n + 1,
            state=(message.state if self.reads else db.state) + 1,
            applied=(*db.applied, message.event),
        )

    def _with_ends(self, db: Conversation, message: Message, guard: str) -> Conversation:
        """Its call is stored, its send is there, and those whose end it takes along have left."""
        gone = {call.event for call in message.joined} if self.has(guard) else set()
        outbox = tuple(one for one in db.outbox if one[0] not in gone)
        if message.kind == "record":
            outbox = (*outbox, (message.event, PUSH if self.own_keys else REPLY))
        return db._replace(outbox=outbox, call=message.call or db.call)

    def _is_free(self, db: Conversation, message: Message) -> bool:
        free = (None, message.stray, *message.joined)
        return db.call in free or not self.has("no-call-stands")

    def _note(self, db: Conversation, message: Message) -> Conversation | None:
        is_there = any(event == message.event for event, _ in db.outbox)
        if not (
            self._is_mine(db, message, "epoch-of-the-note")
            and is_there
            and self._is_free(db, message)
        ):
            return None
        return self._with_ends(db, message, "ends-join-the-note")

    def _end(self, db: Conversation, message: Message) -> Conversation | None:
        """The end of a call that LINE has accepted."""
        is_its_own = db.call == message.call
        if not self._is_mine(db, message, "epoch-of-the-end"):
            return None
        if not is_its_own and self.has("end-names-its-call"):
            return None
        return self._remove(db._replace(call=None), message)

    def _remove(self, db: Conversation, message: Message) -> Conversation | None:
        """A send leaves, whatever call is stored."""
        if not self._is_mine(db, message, "epoch-of-the-end"):
            return None
        return db._replace(outbox=tuple(one for one in db.outbox if one[0] != message.event))

    def _verdict(self, db: Conversation, message: Message) -> Conversation | None:
        """A call ends that was refused or not made, or whose send is dropped."""
        is_there = any(event == message.event for event, _ in db.outbox)
        is_mine = self._is_mine(db, message, "epoch-of-the-end")
        if not (is_mine and is_there and db.call == message.call):
            return None
        db = db._replace(call=None)
        if message.done:
            return db._replace(outbox=tuple(one for one in db.outbox if one[0] != message.event))
        return db._replace(outbox=_used_up(db.outbox, message)) if message.used else db

    def _letter(self, db: Conversation, message: Message) -> Conversation | None:
        """A letter takes the place of a send, and its call ends."""
        is_there = any(event == message.event for event, _ in db.outbox)
        is_its_own = message.call is None or db.call == message.call
        if not (self._is_mine(db, message, "epoch-of-the-end") and is_there and is_its_own):
            return None
        kind = UNSURE_LETTER if message.tried else LETTER
        outbox = tuple(
            (event, kind if event == message.event else known) for event, known in db.outbox
        )
        return db._replace(outbox=outbox, call=db.call if message.call is None else None)

    def _row(self, db: Conversation, message: Message) -> Conversation | None:
        """The row in `deadletters`; the first one stays."""
        if any(event == message.event for event, _ in db.letters):
            return None
        return db._replace(letters=(*db.letters, (message.event, message.tried)))

    # How a leader takes the answer to a write.

    def _heard(self, world: World, message: Message, *, is_done: bool) -> World:
        by, db, me = message.by, world.db, world.leaders[message.by]
        if not is_done and db.epoch > by + 1 and self.has("refused-epoch-ends"):
            return world.with_leader(by, DEAD)
        if message.kind == "record" and not is_done:
            return self._settled(world, by)
        if message.kind == "record":
            return self._recorded(world, message, me)
        if message.kind == "note":
            return world.with_leader(by, self._noted(db, message, me, is_done=is_done))
        if message.kind == "verdict":
            box = tuple(one for one in me.box if not (message.done and one[0] == message.event))
            box = _used_up(box, message) if message.used else box
            me = me._replace(step="idle", call=None, stray=None, box=box)
            return world.with_leader(by, me)
        if message.kind == "end" and not is_done:
            # Another call stands in its place.
            return world.carries(message._replace(kind="remove"))
        if message.kind in ("letter", "row"):
            then = "row" if message.kind == "letter" else "remove"
            return world.carries(message._replace(kind=then, call=None))
        return world.with_leader(by, self._left(me, message))

    def _left(self, me: Leader, message: Message) -> Leader:
        """The send is out of the outbox, which is durable."""
        if message.event not in me.letters:
            ends = tuple(one for one in me.ends if one.event != message.event)
            return me._replace(ends=ends)
        letters = tuple(one for one in me.letters if one != message.event)
        me = me._replace(letters=letters)
        if all(event != message.event for event, _ in me.box):
            # Found as a letter.
            return me
        box = tuple(one for one in me.box if one[0] != message.event)
        return me._replace(step="idle", call=None, box=box)

    def _recorded(self, world: World, message: Message, me: Leader) -> World:
        copy = (message.n + 1, message.state + 1) if me.copy is not None else None
        me = me._replace(record=None, next=me.next + 1, copy=copy)
        if message.how == "alone" and not me.adopted and self.has("whole-outbox-first"):
            return self._with_all(world, message.by, me)
        box = (*me.box, (message.event, PUSH if self.own_keys else REPLY))
        ends = tuple(one for one in me.ends if one not in message.joined)
        me = me._replace(adopted=True, box=box, ends=ends)
        if message.call is not None:
            me = me._replace(step="noted", call=Call(message.call))
        return world.with_leader(message.by, me)

    def _settled(self, world: World, by: int) -> World:
        """A record that did not match, or of unknown outcome, is settled by reading."""
        db, me = world.db, world.leaders[by]
        if db.epoch > by + 1 and self.has("refused-epoch-ends"):
            return world.with_leader(by, DEAD)
        me = me._replace(copy=(db.n, db.state))
        if me.next not in db.applied or not self.has("lost-record-is-read"):
            return world.with_leader(by, me._replace(record="again"))
        me = me._replace(record=None, next=me.next + 1)
        if self.has("found-applied-adopts"):
            return self._with_all(world._replace(db=db._replace(epoch=by + 1)), by, me)
        return world.with_leader(by, me)

    def _with_all(self, world: World, by: int, me: Leader) -> World:
        """The leader adds the whole outbox to what it knows."""
        db = world.db
        known = {event for event, *_ in (*me.box, *me.ends)}.union(me.letters)
        new = [one for one in db.outbox if one[0] not in known]
        sends = tuple(one for one in new if one[1] not in LETTERS)
        letters = tuple(event for event, kind in new if kind in LETTERS)
        for event, kind in new:
            if kind in LETTERS:
                row = Message("row", by, event, tried=kind == UNSURE_LETTER)
                world = world.carries(row)
        me = me._replace(
            adopted=True, has_left=False, box=(*me.box, *sends), letters=(*me.letters, *letters)
        )
        call = db.call
        if (
            call is not None
            and me.step == "idle"
            and any(event == call.event for event, _ in sends)
        ):
            tried = self.has("found-call-was-tried")
            me = me._replace(step="noted", call=Call(call, tried))
        return world.with_leader(by, me)

    def _noted(self, db: Conversation, message: Message, me: Leader, *, is_done: bool) -> Leader:
        if is_done:
            assert message.call is not None
            ends = tuple(one for one in me.ends if one not in message.joined)
            call = Call(message.call)
            return me._replace(step="noted", call=call, stray=None, ends=ends)
        if any(event == message.event for event, _ in db.outbox):
            # One of its own came late; the next one replaces it.
            return me._replace(step="idle", stray=db.call)
        box = tuple(one for one in me.box if one[0] != message.event)
        return me._replace(step="idle", stray=None, box=box)

    def _lost(self, world: World, message: Message) -> World:
        """No answer came."""
        me = world.leaders[message.by]
        if message.kind == "call":
            return self._hears_nothing(world, message.by)
        if message.kind == "record":
            return world.with_leader(message.by, me._replace(record="unknown"))
        if message.kind == "note":
            return world.with_leader(message.by, me._replace(step="idle"))
        if message.kind in ("end", "remove") and not self.has("end-again"):
            return world.with_leader(message.by, self._left(me, message))
        return world.carries(message)

    # LINE.

    def _at_line(self, world: World, message: Message) -> Steps:
        line, call = world.line, message.call
        assert call is not None
        event = call.event
        if call.way == REPLY:
            is_taken = event not in line.used and line.ages[event] == YOUNG
            after = line._replace(used=tuple(sorted({*line.used, event})))
        else:
            key = self._key_of(call)
            is_taken = key not in line.keys
            after = line._replace(keys=tuple(sorted({*line.keys, key})))
        if is_taken:
            after = self._delivered(world, after, event)
        told = f"LINE: {call.way} of {event}"
        world = world.without(message)
        arrived = world._replace(line=after if is_taken else line)
        if not message.is_awaited:
            yield f"{told}, for the dead", arrived
            return
        by = message.by
        if is_taken or call.way == PUSH:
            yield f"{told}, sent", self._hears_sent(arrived, by)
        else:
            invalid = world.leaders[by]._replace(step="invalid")
            yield f"{told}, invalid token", arrived.with_leader(by, invalid)
        if world.left.losses:
            yield f"{told}, answer lost", self._hears_nothing(arrived, by).spends(losses=1)
        if world.left.busy:
            yield f"{told}, busy", self._hears_busy(world, by).spends(busy=1)
        if world.left.refusals and is_taken:
            yield f"{told}, refused", self._hears_refusal(world, by).spends(refusals=1)

    def _key_of(self, call: Stored) -> tuple[int, int]:
        return call.event, call.number if self.own_keys else 0

    def _delivered(self, world: World, line: Line, event: int) -> Line:
        delivered = list(line.delivered)
        delivered[event] += 1
        given_up = {one for one, kind in world.db.outbox if kind in LETTERS}
        given_up.update(one for one, _ in world.db.letters)
        is_late = any(
            one in world.db.applied
            and not line.delivered[one]
            and one not in world.unproved
            and one not in given_up
            for one in range(event)
        )
        return line._replace(delivered=tuple(delivered), disorder=line.disorder or is_late)

    # A process.

    def _process(self, world: World, by: int, me: Leader) -> Steps:
        if me.record == "unknown":
            yield f"{by} reads what became of its record", self._settled(world, by)
        if me.step == "invalid":
            yield f"{by} hears of an invalid token", self._hears_invalid(world, by)
        elif me.step == "calling" and me.call is not None:
            if not self.has("end-after-the-verdict") and me.call.stored not in me.ends:
                stored = me.call.stored
                early = me._replace(ends=(*me.ends, stored))
                end = Message("end", by, stored.event, call=stored)
                yield f"{by} ends its call early", world.sends(early, end)
        elif me.step == "go" and me.call is not None:
            yield f"{by} calls LINE", self._calls(world, by, me.call)
        elif me.state == "stopping":
            yield from self._stops(world, by, me)
        else:
            yield from self._decides(world, by, me)
            yield from self._turn(world, by, me)

    def _impatient(self, world: World, message: Message) -> Steps:
        """Its leader waits no longer; it may still be carried out, at any time."""
        late = message._replace(is_awaited=False)
        waited = self._lost(world.without(message).carries(late), message).spends(losses=1)
        yield f"{message.by} waits no longer for its {message.kind} of {message.event}", waited

    def _decides(self, world: World, by: int, me: Leader) -> Steps:
        if me.record in ("sent", "unknown"):
            return
        if not me.adopted and (me.has_left or me.next < self.events):
            yield from self._adopts(world, by, me)
        if me.next == self.events:
            return
        if me.copy is None:
            db = world.db
            yield f"{by} reads", world.with_leader(by, me._replace(copy=(db.n, db.state)))
            return
        is_first = me.record is None
        may_end = me.adopted or not self.has("first-end-adopts")
        if by and is_first and may_end and world.left.losses:
            # A handler need not decide the same twice.
            ended = me._replace(next=me.next + 1)
            if me.next not in world.db.applied:
                ended = ended._replace(ended=(*me.ended, me.next))
            nothing = world.with_leader(by, ended).spends(losses=1)
            yield f"{by} ends {me.next} without a record", nothing
        how = "adopted" if me.adopted else "empty" if is_first else "alone"
        n, state = me.copy
        record = Message("record", by, me.next, n=n, state=state, how=how)
        recording = me._replace(record="sent")
        yield f"{by} records {me.next}", world.sends(recording, record)
        if is_first and not me.box and me.step == "idle":
            call, recording = self._new_call(world, recording, by, (me.next, REPLY))
            record = record._replace(call=call, joined=me.ends)
            yield f"{by} records {me.next} with its call", world.sends(recording, record)

    def _adopts(self, world: World, by: int, me: Leader) -> Steps:
        db = world.db
        if db.epoch > by + 1:
            yield f"{by} is refused", world.with_leader(by, DEAD)
            return
        me = me._replace(copy=(db.n, db.state), next=self._after(db, me.next))
        if self.has("epoch-before-outbox"):
            adopted = world._replace(db=db._replace(epoch=by + 1))
            yield f"{by} adopts", self._with_all(adopted, by, me)
        else:
            reading = me._replace(state="reading")
            yield f"{by} reads the outbox", self._with_all(world, by, reading)

    def _adopts_late(self, world: World, by: int, me: Leader) -> Steps:
        if world.db.epoch > by + 1:
            yield f"{by} is refused", world.with_leader(by, DEAD)
        else:
            db = world.db._replace(epoch=by + 1)
            adopted = world._replace(db=db).with_leader(by, me._replace(state="live"))
            yield f"{by} adopts late", adopted

    def _new_call(
        self, world: World, me: Leader, by: int, send: tuple[int, str]
    ) -> tuple[Stored, Leader]:
        """A new call for a send, with what the leader knows then."""
        event, kind = send
        may_reply = kind == REPLY and world.age_of(event) < OVER and not self.own_keys
        way = REPLY if may_reply else PUSH
        if not self.numbers_calls:
            return Stored(event, way), me
        number = by + me.calls * len(world.leaders)
        return Stored(event, way, number), me._replace(calls=me.calls + 1)

    def _turn(self, world: World, by: int, me: Leader) -> Steps:
        if me.step == "idle" and me.box:
            event = me.box[0][0]
            yield from self._gives_up(world, by, me, event)
            call, noting = self._new_call(world, me, by, me.box[0])
            if not self.has("noted-before-the-call"):
                noted = noting._replace(step="noted", call=Call(call))
                yield f"{by} has a {call.way} without a note", world.with_leader(by, noted)
                return
            note = Message("note", by, event, call=call, joined=me.ends, stray=me.stray)
            noting = noting._replace(step="noting")
            yield f"{by} notes a {call.way} of {event}", world.sends(noting, note)
        elif me.step == "noted" and me.call is not None:
            event, way, _ = me.call.stored
            yield from self._gives_up(world, by, me, event)
            if me.call.tried or way != REPLY or not self.expiry:
                yield f"{by} calls LINE", self._calls(world, by, me.call)
            elif world.age_of(event) < OVER:
                yield f"{by} has its turn", world.with_leader(by, me._replace(step="go"))
            else:
                anew = me._replace(step="idle", call=None, stray=me.call.stored)
                yield f"{by} plans {event} anew", world.with_leader(by, anew)

    def _calls(self, world: World, by: int, call: Call) -> World:
        event = call.stored.event
        is_young = world.age_of(event) == YOUNG and not self.has("good-at-the-answer")
        me = world.leaders[by]._replace(step="calling", call=call._replace(good=is_young))
        return world.sends(me, Message("call", by, event, call=call.stored))

    def _gives_up(self, world: World, by: int, me: Leader, event: int) -> Steps:
        """An operator does."""
        if world.left.given_up:
            given_up = self._made_letter(world, by, me, event, "letter")
            yield f"{by} gives {event} up", given_up.spends(given_up=1)

    def _made_letter(self, world: World, by: int, me: Leader, event: int, kind: str) -> World:
        call = me.call
        stored = call.stored if call is not None and kind == "letter" else None
        tried = call is not None and call.tried
        me = me._replace(step="giving up", letters=(*me.letters, event))
        return world.sends(me, Message(kind, by, event, call=stored, tried=tried))

    # How a leader takes LINE's answer.

    def _hears_sent(self, world: World, by: int) -> World:
        me = world.leaders[by]
        assert me.call is not None
        stored = me.call.stored
        box = tuple(one for one in me.box if one[0] != stored.event)
        me = me._replace(step="idle", call=None, box=box)
        if stored in me.ends:
            return world.with_leader(by, me)
        # It may take its time.
        me = me._replace(ends=(*me.ends, stored))
        return world.sends(me, Message("end", by, stored.event, call=stored))

    def _hears_nothing(self, world: World, by: int) -> World:
        me = world.leaders[by]
        assert me.call is not None
        if not self.has("unknown-stands"):
            return self._settles(world, by, me.call)
        call = me.call._replace(tried=True, good=False)
        return world.with_leader(by, me._replace(step="noted", call=call))

    def _hears_busy(self, world: World, by: int) -> World:
        """LINE has not taken it, and may later."""
        me = world.leaders[by]
        assert me.call is not None
        if me.call.tried:
            return world.with_leader(by, me._replace(step="noted"))
        if not self.has("refusal-is-durable-first"):
            return world.with_leader(by, me._replace(step="idle", call=None))
        return self._settles(world, by, me.call)

    def _hears_refusal(self, world: World, by: int) -> World:
        """LINE never takes it."""
        me = world.leaders[by]
        assert me.call is not None
        kind = "letter" if self.has("letter-in-the-outbox-first") else "row"
        return self._made_letter(world, by, me, me.call.stored.event, kind)

    def _hears_invalid(self, world: World, by: int) -> World:
        call = world.leaders[by].call
        assert call is not None
        if not call.tried:
            return self._settles(world, by, call, used=True)
        if self._is_proof(world, call):
            return self._hears_sent(world, by)
        unproved = tuple(sorted({*world.unproved, call.stored.event}))
        world = world._replace(unproved=unproved)
        return self._settles(world, by, call, used=not self.drop, done=self.drop)

    def _is_proof(self, world: World, call: Call) -> bool:
        """Whether the refusal of a token proves that an earlier try has used it."""
        if not self.has("good-at-the-answer"):
            return call.good
        age = world.age_of(call.stored.event)
        return age == YOUNG or (age == LAST_SECOND and not self.has("second-of-proof"))

    def _settles(
        self, world: World, by: int, call: Call, *, used: bool = False, done: bool = False
    ) -> World:
        """The verdict becomes durable before anything else is tried."""
        me = world.leaders[by]._replace(step="settling")
        stored = call.stored
        verdict = Message("verdict", by, stored.event, call=stored, used=used, done=done)
        return world.sends(me, verdict)

    def _stops(self, world: World, by: int, me: Leader) -> Steps:
        not_made = None if me.stray is None else Call(me.stray)
        if me.step == "noted" and me.call is not None and not me.call.tried:
            not_made = me.call
        if not_made is not None and me.step != "settling" and self.has("stop-strikes-out"):
            yield f"{by} strikes its note out", self._settles(world, by, not_made)
        elif me.record != "unknown" and not any(one.by == by for one in world.net):
            yield f"{by} has stopped", world.with_leader(by, DEAD)

    # The promises.

    def problem(self, world: World) -> str | None:
        """The promise that is broken, if any."""
        db, line, first = world.db, world.line, self.first.left
        rows = dict(db.letters)
        kinds = dict(db.outbox)
        for event in range(self.events):
            times, is_unproved = line.delivered[event], event in world.unproved
            if times > 1 and (self.drop or not is_unproved):
                return f"message {event} arrived {times} times"
            is_letter = rows.get(event) is False or kinds.get(event) == LETTER
            if times and is_letter and not is_unproved:
                return f"message {event} arrived, and is a letter as well"
            is_gone = event in db.applied and event not in kinds and event not in rows
            if is_gone and not times and not is_unproved:
                return f"message {event} left the outbox and never arrived"
        if line.disorder:
            return "answers out of order"
        newest = world.leaders[world.begun - 1]
        if len(set(db.applied)) < len(db.applied) or set(newest.ended) & set(db.applied):
            return "an event was decided twice"
        edits = first.edits - world.left.edits + first.quiet_edits - world.left.quiet_edits
        if (db.state // 10, db.state % 10) != (edits, len(db.applied)):
            return f"state lost: {db.state} after {len(db.applied)} events and {edits} edits"
        nothing_happened = (first.kills, first.losses) == (world.left.kills, world.left.losses)
        if world.unproved and nothing_happened and not self.freezes:
            return "a reply is unproved although nothing was lost"
        return None

    def problem_at_rest(self, world: World) -> str | None:
        """The violation in a world in which no leader can take a step, if any."""
        newest = world.leaders[world.begun - 1] if world.begun else DEAD
        if newest.state != "live":
            return None
        if world.db.outbox or newest.next < self.events:
            return f"stuck: {world.db}"
        return None

    # The search.

    def _steps(self, world: World) -> tuple[list[tuple[str, World]], list[tuple[str, World]]]:
        """The possible next steps: of the leaders that live, and of all else."""
        own: list[tuple[str, World]] = []
        others = list(self._surroundings(world))
        for message in dict.fromkeys(world.net):
            at = self._at_line if message.kind == "call" else self._at_mongodb
            (own if message.is_awaited else others).extend(at(world, message))
            if message.is_awaited and world.left.losses:
                own.extend(self._impatient(world, message))
        for by, me in enumerate(world.leaders):
            if me.state in ("live", "stopping"):
                own.extend(self._process(world, by, me))
            elif me.state == "reading":
                own.extend(self._adopts_late(world, by, me))
        return own, others

    def _pruned(self, world: World) -> World:
        """The dead wait for nothing, and messages go that change nothing, now and ever."""
        if not world.net:
            return world
        net = [
            one._replace(is_awaited=one.is_awaited and world.leaders[one.by].state != "dead")
            for one in world.net
        ]
        kept = [one for one in net if one.is_awaited or not self._is_in_vain(world, one)]
        return world._replace(net=tuple(sorted(kept, key=hash)))

    def _is_in_vain(self, world: World, one: Message) -> bool:
        if one.kind == "call" and one.call is not None:
            if one.call.way == REPLY:
                return one.event in world.line.used or world.age_of(one.event) > YOUNG
            return self._key_of(one.call) in world.line.keys
        if one.kind == "row":
            return any(event == one.event for event, _ in world.db.letters)
        named = {"record": "epoch-of-the-record", "note": "epoch-of-the-note"}
        guard = named.get(one.kind, "epoch-of-the-end")
        return world.db.epoch > one.by + 1 and self.has(guard)

    def search(self, *, most: int = 1_000_000, ends: bool = False) -> Found:
        """Try every order of the steps, the shortest first, until a promise is broken.

        With `ends` the rest has to be within reach from each world, too, without a kill.
        """
        numbers = {self.first: 0}
        worlds, came_from = [self.first], [(0, "")]
        before: list[list[int]] = [[]]
        at_rest: list[int] = []
        for number, world in enumerate(worlds):
            own, others = self._steps(world)
            problem = None if own else self.problem_at_rest(world)
            if problem is not None:
                return Found(problem, len(worlds), _way_to(number, came_from))
            if not own:
                at_rest.append(number)
            for told, then in (*own, *others):
                after = self._pruned(then)
                place = numbers.setdefault(after, len(worlds))
                if place == len(worlds):
                    worlds.append(after)
                    came_from.append((number, told))
                    before.append([])
                    if problem := self.problem(after):
                        return Found(problem, len(worlds), _way_to(place, came_from))
                if ends and not told.endswith("is killed"):
                    before[place].append(number)
            if len(worlds) > most:
                return Found(None, len(worlds), is_complete=False)
        if ends and (astray := _astray(at_rest, before)) is not None:
            return Found("it goes on for ever", len(worlds), _way_to(astray, came_from))
        return Found(None, len(worlds))


def _used_up(outbox: tuple[tuple[int, str], ...], message: Message) -> tuple[tuple[int, str], ...]:
    """The outbox once that token is known to be used up."""
    return tuple(
        (event, PUSH if event == message.event and kind == REPLY else kind)
        for event, kind in outbox
    )


def _astray(at_rest: list[int], before: list[list[int]]) -> int | None:
    """A world from which no rest is within reach."""
    reached = set(at_rest)
    while at_rest:
        new = set(before[at_rest.pop()]) - reached
        reached |= new
        at_rest.extend(new)
    return next((number for number in range(len(before)) if number not in reached), None)


def _way_to(number: int, came_from: list[tuple[int, str]]) -> tuple[str, ...]:
    steps: list[str] = []
    while number:
        number, told = came_from[number]
        steps.append(told)
    return tuple(steps[::-1])


SMALL_SIZES: Mapping[str, Mapping[str, Any]] = {
    "two events, nothing lost": {"events": 2, "leaders": 2},
    "two events, a kill": {"events": 2, "leaders": 2, "trouble": Left(kills=1)},
    "tokens expire": {
        "events": 1,
        "leaders": 2,
        "trouble": Left(losses=1, kills=1),
        "expiry": True,
    },
    "unproved replies are dropped": {
        "events": 1,
        "leaders": 3,
        "trouble": Left(kills=1),
        "expiry": True,
        "drop": True,
    },
    "sends travel together": {
        "events": 1,
        "leaders": 2,
        "trouble": Left(losses=2, kills=1),
        "own_keys": True,
    },
    "letters": {
        "events": 1,
        "leaders": 2,
        "trouble": Left(losses=1, kills=1, refusals=1, given_up=1),
    },
    "LINE is busy": {"events": 1, "leaders": 3, "trouble": Left(kills=1, busy=1)},
    "a clean stop": {
        "events": 2,
        "leaders": 2,
        "trouble": Left(stops=1, busy=1),
        "expiry": True,
        "freezes": False,
    },
    "edits": {
        "events": 2,
        "leaders": 1,
        "trouble": Left(losses=1, edits=1, quiet_edits=1),
    },
    "handlers read nothing": {
        "events": 2,
        "leaders": 1,
        "trouble": Left(losses=2),
        "reads": False,
    },
}
# Minutes: only `python -m` of this module goes through them, and `scripts/guards` by it.
LARGE_SIZES: Mapping[str, Mapping[str, Any]] = {
    "two events, nothing lost, tokens expire": {"events": 2, "leaders": 2, "expiry": True},
    "two events, two leaders": {
        "events": 2,
        "leaders": 2,
        "trouble": Left(losses=1, kills=1),
    },
    "one event, three leaders": {
        "events": 1,
        "leaders": 3,
        "trouble": Left(losses=1, kills=2),
    },
    "tokens expire, two losses": {
        "events": 1,
        "leaders": 2,
        "trouble": Left(losses=2, kills=1),
        "expiry": True,
    },
    "LINE is busy, tokens expire": {
        "events": 1,
        "leaders": 2,
        "trouble": Left(losses=1, kills=1, busy=1),
        "expiry": True,
    },
    "two events, letters": {
        "events": 2,
        "leaders": 2,
        "trouble": Left(kills=1, refusals=1, given_up=1),
    },
}


def main() -> int:
    """Try the large sizes; returns 1 if a promise is broken in one of them."""
    is_broken = False
    for name, size in LARGE_SIZES.items():
        began = time.monotonic()
        found = Model(**size).search(most=5_000_000)
        told = found.problem or ("every promise holds" if found.is_complete else "not complete")
        print(f"{name}: {found.worlds:,} worlds, {time.monotonic() - began:.0f} s: {told}")
        print(*found.steps, sep="\n    ", end="\n" if found.steps else "", flush=True)
        is_broken = is_broken or found.problem is not None
    return int(is_broken)


if __name__ == "__main__":
    sys.exit(main())
