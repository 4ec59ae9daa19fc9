"""Invariants of sends: outboxes, gate and breaker on one thread, moved by hand.

Hypothesis chooses the next actions of the pool's threads, LINE's answers, MongoDB's failures, and
other events in the middle of a write or a call. Only public parts are used.
"""

import copy
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import bson
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dispatcher.commit.committer import Change
from dispatcher.conversations.conversations import Conversations
from jobworker.effects import Call, SendMethod
from jobworker.errors import NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.gate import Gate
from jobworker.line.rate_limits import RateLimits
from jobworker.line.side_call import Line
from jobworker.record.conversations import LateCall, Noted, Outbound, Placed
from jobworker.sending.conversation_outbox import LIMITS
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from linedesk.store.records.effects import place_of
from linedesk.store.records.letters import RELEASED, Cause
from tests.jobworker.worker_harness import CHANNEL, a_send, an_outbox

INTERVAL_SECONDS = 1.0
CONVERSATIONS = [f"{CHANNEL}/U{n}" for n in range(4)]
# With more writes in waiting, an end is not left to the next group.
MOST_LEFT = 3
# A call's end: whether LINE accepts the message, and the answer that arrives.
ENDS: dict[str, tuple[bool, Any]] = {
    "taken": (True, LineAnswer(200)),
    "taken, 500": (True, LineAnswer(500)),
    "500": (False, LineAnswer(500)),
    "taken, not heard": (True, OutcomeUnknown("closed")),
    "lost": (False, OutcomeUnknown("closed")),
    "never left": (False, NotSent("refused")),
    "429": (False, LineAnswer(429)),
    "429 with a pause": (False, LineAnswer(429, retry_after=5.0)),
    "401": (False, LineAnswer(401)),
    "400": (False, LineAnswer(400, "The request body has 1 error(s)")),
    "400 by name": (False, LineAnswer(400, '{"details": [{"property": "messages[1].text"}]}')),
}
INVALID = LineAnswer(400, '{"message":"Invalid reply token"}')


class Died(BaseException):
    """The process was killed during a write or a call."""


class World:
    """MongoDB, LINE, the pool and the clock, as far as sends have to do with them."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.steps: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lease = True
        # MongoDB: the waiting effects by place, and the call of each conversation.
        self.waiting: dict[str, dict[str, Document]] = defaultdict(dict)
        self.noted: dict[str, Call] = {}
        self.paid_late: Counter[str] = Counter()
        self.deadletters: dict[str, Document] = {}
        self.rows: list[str] = []
        self.fails: list[str] = []
        # The writes that wait for the next group, which makes them in their order.
        self.waiting_writes: list[Callable[[], object]] = []
        # LINE, with the messages accepted under each token and key.
        self.ends: list[str] = []
        self.calls = 0
        self.under_way = 0
        self.last_start = float("-inf")
        self.arrived: dict[str, int] = defaultdict(int)
        self.heard: set[str] = set()
        self.taken: dict[str, list[str]] = {}
        # The test's knowledge of each conversation: when its sends are due, and whether its first
        # one was affected.
        self.due: dict[str, float] = {}
        # The end of the line when it was last called: its later sends are behind that.
        self.line_ends: dict[str, float] = {}
        self.touched: set[str] = set()
        self.late: set[str] = set()
        # Conversations of which a write failed: their sends wait for the clock, for how long is
        # not known here.
        self.delayed: set[str] = set()
        # Done in the middle of the next writes and calls.
        self.meanwhile: list[Callable[[], None]] = []
        self.begin()

    def begin(self) -> None:
        """A process begins, and takes over the state in MongoDB."""
        self.known = Conversations()
        self.steps.clear()
        self.timers.clear()
        self.closed = False
        self.rate_limits = RateLimits(monotonic=lambda: self.now)
        self.gate = Gate(
            INTERVAL_SECONDS,
            step=self.steps.append,
            later=self.later,
            lease_is_fresh=lambda: self.lease,
            monotonic=lambda: self.now,
        )
        self.gate._lead_seconds, self.gate._sent_at = 0.0, lambda: 0.0
        self.breaker = self.gate.breaker
        client: Any = SimpleNamespace(post=self.call)
        line = Line(self.gate, client, self.rate_limits, self.steps.append, self.later)
        # No two sends have the same text here, so none travels with another conversation's.
        self.outbox = an_outbox(line, self, schedule=self)
        for id_, effects in self.waiting.items():
            left = Outbound(copy.deepcopy(sorted(effects.items())), self.noted.get(id_))
            self.outbox.add(id_, left)

    def die(self, lands: int = 0) -> None:
        """The process is killed, and another one begins when its lease has run out; so many of the
        waiting writes are made all the same.
        """
        self._make_waiting(lands)
        self.waiting_writes.clear()
        self.now += INTERVAL_SECONDS
        self.under_way = 0
        self.meanwhile.clear()
        self.touched.update(CONVERSATIONS)
        self.line_ends.clear()
        # It dies with the process, unless the send has left its outbox.
        self.heard.clear()
        self.begin()

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, function))

    def pass_by(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()

    # MongoDB, each write of which may fail: before it was made, after that, or while it waits.

    def write(self, act: Callable[[], Any], id_: str | None = None) -> Any:
        self.pass_by()
        failure = self.fails.pop() if self.fails else None
        if failure is not None:
            self.delayed.update(CONVERSATIONS if id_ is None else [id_])
        if failure == "before":
            raise StoreUnavailable("away")
        if failure == "waiting":
            self.waiting_writes.append(act)
            raise StoreUnavailable("away, and made later")
        self.commit_waiting()
        result = act()
        if failure == "after":
            raise StoreUnavailable("away, but done")
        return result

    def commit_waiting(self) -> None:
        self._make_waiting(len(self.waiting_writes))

    def _make_waiting(self, count: int) -> None:
        made, self.waiting_writes = self.waiting_writes[:count], self.waiting_writes[count:]
        for act in made:
            act()

    def sends(self, id_: str) -> list[tuple[str, Document]]:
        """The sends of a conversation, in order."""
        effects = sorted(self.waiting[id_].items())
        return [(place, one) for place, one in effects if one["type"] == "send"]

    def record(self, id_: str, effects: Sequence[Placed], call: Call | None) -> None:
        self.commit_waiting()
        if call is not None:
            assert id_ not in self.noted, "another call stands"
            self.noted[id_] = call
        for place, effect in effects:
            self.waiting[id_][place] = copy.deepcopy(effect)

    def note_call(self, id_: str, call: Call, late: LateCall | None, *, seconds: float) -> Noted:
        def note() -> Noted:
            if call.members[0] not in self.waiting[id_]:
                return Noted.GONE
            if late is not None and self.paid_late[id_] >= late.most:
                return Noted.TOO_MANY_LATE
            self.paid_late[id_] += late is not None
            other = self.noted.get(id_)
            assert other is None or (other.token or other.key) not in self.taken, "LINE has it"
            self.noted[id_] = call
            return Noted.NOTED

        noted: Noted = self.write(note, id_)
        return noted

    def _leave(self, id_: str, places: Iterable[str]) -> None:
        for place in places:
            effect = self.waiting[id_].pop(place, None)
            assert effect is None or effect["id"] in self.heard, "removed before it was carried out"

    def end_call(self, id_: str, *, done: Sequence[str] = (), used_up: Sequence[str] = ()) -> None:
        def end() -> None:
            self.noted.pop(id_, None)
            self._leave(id_, done)
            for place in used_up:
                self.waiting[id_][place]["token"] = None

        self.write(end, id_)

    def end_later(self, id_: str, call: Call) -> bool:
        def end() -> None:
            assert self.noted.get(id_) == call, "its call was replaced before its end"
            del self.noted[id_]
            self._leave(id_, call.members)

        if len(self.waiting_writes) >= MOST_LEFT:
            return False
        self.waiting_writes.append(end)
        return True

    def give_up(
        self, id_: str, places: Iterable[str], letters: Sequence[Change], *, ends_call: bool
    ) -> None:
        def give_up() -> None:
            if ends_call:
                self.noted.pop(id_, None)
            gone = [self.waiting[id_].pop(place, None) for place in places]
            for one in letters:
                told = bson.decode(one.raw.raw)
                letter = {"_id": told["q"]["_id"], **told["u"]["$setOnInsert"]}
                self.deadletters.setdefault(letter["_id"], letter)
            assert all(one["id"] in self.deadletters for one in gone if one is not None)

        self.write(give_up, id_)

    def remove(self, id_: str, *places: str) -> None:
        def remove() -> None:
            for place in places:
                effect = self.waiting[id_].pop(place, None)
                if effect is not None:
                    assert effect["id"] in self.rows, "removed before it was carried out"

        self.write(remove, id_)

    def enter(self, effect: Document) -> str | None:
        def enter() -> str | None:
            if effect["refused"]:
                return Cause("write_refused")
            self.rows.append(effect["id"])
            return None

        result: str | None = self.write(enter)
        return result

    # LINE.

    def call(
        self, path: str, body: Document, *, retry_key: str | None, **context: Any
    ) -> LineAnswer:
        assert not self.under_way, "two calls at once"
        assert not self.closed, "called after the gate was closed"
        assert self.lease, "called without a fresh lease"
        assert not self.breaker.held_seconds(), "called while LINE is away"
        assert self.now >= self.last_start + INTERVAL_SECONDS, "called too close"
        self.last_start = self.now
        self.calls += 1
        id_ = f"{CHANNEL}/{context['key']}"
        names = [message["text"] for message in body["messages"]]
        assert not self.deadletters.keys() & set(names), "called after its letter"
        sends = self.sends(id_)
        firsts = sends[: len(names)]
        assert [one["id"] for _, one in firsts] == names, "not in the order of the outbox"
        call = self.noted.get(id_)
        assert call is not None, "not written down"
        # Of one that was written down and never made some may have been given up.
        still = [place for place, _ in sends if place in call.members]
        assert [place for place, _ in firsts] == still
        token = body.get("replyToken")
        assert (path, token, retry_key) == (call.way.path, call.token, call.key)
        if token is not None and all(one["way"] == "reply" for _, one in sends):
            self._has_the_oldest_token(id_)
        self.touched.add(id_)
        self.line_ends[id_] = time.monotonic() + 60
        self.under_way += 1
        self.pass_by()
        self.under_way -= 1
        return self._answer(names, token, retry_key, context["key"])

    def _has_the_oldest_token(self, id_: str) -> None:
        """Of the answers that were not called for yet. A push has its share of the turns, in which
        answers travel along.
        """
        for other, due in self.due.items():
            # A token that is too old by the gate's clock has no place of its own.
            is_live = due - LIMITS.token_reserve_seconds > self.now
            if is_live and other not in {id_} | self.touched | self.late | self.delayed:
                assert due >= self.due[id_] - 1.0, f"{other} has an older token"

    def _answer(
        self, names: list[str], token: str | None, key: str | None, whose: str
    ) -> LineAnswer:
        takes, heard = ENDS[self.ends.pop() if self.ends else "taken"]
        once = token or key
        assert once is not None
        is_known = once in self.taken
        assert self.taken.get(once, names) == names, "another body under the same token or key"
        if is_known and heard == LineAnswer(200):
            heard = LineAnswer(409) if token is None else INVALID
        elif takes and not is_known:
            self.taken[once] = names
            for name in names:
                self.arrived[name] += 1
        if isinstance(heard, LineAnswer):
            if heard.status in (200, 409) or heard == INVALID:
                self.heard.update(names)
            if heard.status == 429:
                # A send that gets a turn while an endpoint is held back waits for the clock as
                # well.
                self.delayed.update(CONVERSATIONS)
            self.breaker.ended(heard.status, whose)
            return heard
        self.breaker.failed(whose)
        raise heard


class Machine(RuleBasedStateMachine):
    """See the module's words."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.numbers = 0
        self.known: dict[str, str] = {}
        self.released: set[str] = set()

    # External events.

    def add(self, id_: str, *effects: Document) -> None:
        recorded = []
        for effect in effects:
            place = place_of(1, len(self.known))
            recorded.append((place, effect))
            self.known[effect["id"]] = id_
        outbox = self.world.outbox
        with outbox.sender.at_once(id_, recorded) as call:
            self.world.record(id_, recorded, call)
            outbox.add(id_, Outbound(recorded, call, is_tried=False))

    def _record(self, id_: str, age: int | None, count: int) -> None:
        world = self.world
        sends = []
        for _ in range(count):
            self.numbers += 1
            name = f"E{self.numbers}/0"
            reply: dict[str, Any] = {}
            due = time.monotonic() + 60
            if age is not None:
                token_from = datetime.now(UTC) - timedelta(seconds=age)
                reply = {"way": SendMethod.REPLY, "token": name, "token_from": token_from}
                due = max(due - age, world.line_ends.get(id_, due - age))
            text = [{"type": "text", "text": name}]
            send = a_send(
                id=name, to=id_.partition("/")[2], messages=text, retry_key=name,
                at=datetime.now(UTC), **reply,
            )  # fmt: skip
            sends.append(send.as_document())
            if not world.sends(id_):
                world.touched.discard(id_)
                world.due.pop(id_, None)
            world.due[id_] = min(due, world.due.get(id_, due))
        if world.under_way or world.meanwhile is not None:
            world.late.add(id_)
        self.add(id_, *sends)

    @rule(
        id_=st.sampled_from(CONVERSATIONS),
        age=st.sampled_from([None, None, 0, 20, 40]),
        count=st.integers(1, 3),
    )
    def record(self, id_: str, age: int | None, count: int) -> None:
        self._record(id_, age, count)
        # Otherwise another one may have its turn already.
        if not self.world.steps:
            self.world.late.discard(id_)

    @rule(id_=st.sampled_from(CONVERSATIONS), refused=st.booleans())
    def record_a_timer(self, id_: str, refused: bool) -> None:
        self.numbers += 1
        effect = {"id": f"T{self.numbers}", "type": "timer", "timer": "t", "refused": refused}
        self.add(id_, effect)

    @rule(id_=st.sampled_from(CONVERSATIONS))
    def record_a_letter(self, id_: str) -> None:
        """In the outbox, as a release before this one does."""
        self.numbers += 1
        self.add(id_, {"id": f"L{self.numbers}", "type": "deadletter", "document": {}})

    def _release(self, id_: str) -> None:
        sends = self.world.sends(id_)
        if sends and self.world.outbox.sender.outcomes.give_up(
            id_, sends[0][1]["id"], cause=RELEASED
        ):
            self.released.add(sends[0][1]["id"])
            self.world.touched.add(id_)

    @rule(id_=st.sampled_from(CONVERSATIONS))
    def release(self, id_: str) -> None:
        self._release(id_)

    @rule(end=st.sampled_from(sorted(ENDS)))
    def line_will(self, end: str) -> None:
        self.world.ends.insert(0, end)

    @rule(fails=st.lists(st.sampled_from(["before", "after", "waiting"]), min_size=1, max_size=3))
    def mongodb_fails(self, fails: list[str]) -> None:
        self.world.fails = fails
        self.world.touched.update(CONVERSATIONS)

    @rule(fresh=st.booleans())
    def the_lease_is(self, fresh: bool) -> None:
        self.world.lease = fresh

    @rule(id_=st.sampled_from(CONVERSATIONS), what=st.integers(0, 4))
    def meanwhile(self, id_: str, what: int) -> None:
        """Have something happen in the middle of the next write or call."""
        acts: list[Callable[[], None]] = [
            lambda: self._release(id_),
            lambda: self._record(id_, None, 1),
            lambda: self._record(id_, 50, 1),
            lambda: self._turn_stale(),
            self._is_killed,
        ]
        self.world.meanwhile.append(acts[what])

    def _is_killed(self) -> None:
        raise Died

    def _turn_stale(self) -> None:
        if not self.world.under_way:
            self.world.lease = False

    # The pool and the clock.

    @precondition(lambda self: self.world.steps)
    @rule(data=st.data())
    def a_thread_works(self, data: st.DataObject) -> None:
        self._run(self.world.steps.pop(data.draw(st.integers(0, len(self.world.steps) - 1))))

    @precondition(lambda self: self.world.timers)
    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        self._fire(data.draw(st.integers(0, len(self.world.timers) - 1)))

    def _fire(self, index: int) -> None:
        due, function = self.world.timers.pop(index)
        self.world.now = max(self.world.now, due)
        self._run(function)

    def _run(self, function: Callable[[], None]) -> None:
        calls = self.world.calls
        try:
            function()
        except Died:
            self.world.die()
        if self.world.calls > calls:
            # Until then another one may have had its turn before.
            self.world.late.clear()

    @rule()
    def a_group_is_committed(self) -> None:
        self.world.commit_waiting()

    @rule(lands=st.integers(0, 3))
    def is_killed_between_two_steps(self, lands: int) -> None:
        self.world.die(lands)

    @precondition(lambda self: self.numbers > 12)
    @rule(during=st.booleans())
    def close(self, during: bool) -> None:
        if during:
            self.world.meanwhile.append(self._close)
        else:
            self._close()

    def _close(self) -> None:
        self.world.gate.close()
        # A call that is under way ends by itself.
        self.world.closed = True

    # Invariants.

    @invariant()
    def what_arrived_arrived_once(self) -> None:
        assert all(count == 1 for count in self.world.arrived.values())

    @invariant()
    def no_letter_stands_beside_a_message_that_surely_arrived(self) -> None:
        for name, letter in self.world.deadletters.items():
            if name in self.world.arrived:
                assert letter["effect"].get("triedAt") is not None
            assert name not in self.world.heard

    def teardown(self) -> None:
        """In the end everything is delivered, and nothing waits permanently."""
        world = self.world
        world.lease, world.fails, world.ends, world.meanwhile = True, [], [], []
        for _ in range(20_000):
            if world.steps:
                self._run(world.steps.pop(0))
            elif world.timers:
                self._fire(min(range(len(world.timers)), key=lambda n: world.timers[n][0]))
            else:
                break
        else:
            raise AssertionError("it never comes to rest")
        world.commit_waiting()
        self.what_arrived_arrived_once()
        self.no_letter_stands_beside_a_message_that_surely_arrived()
        left = {one["id"] for effects in world.waiting.values() for one in effects.values()}
        if world.closed:
            left_out = {name for name in left if not name.startswith("E")}
        else:
            left_out = left
            assert len(world.outbox.boxes) == 0
        assert not left_out, "left in its outbox"
        for name in self.known.keys() - left:
            places = (name in world.arrived, name in world.deadletters, name in world.rows)
            assert any(places), f"{name} is nowhere"


TestMachine = Machine.TestCase
