"""What holds of sends, whatever happens: outboxes, gate and breaker on one thread, moved by hand.

Hypothesis chooses what the pool's threads do next, what LINE answers, when MongoDB fails, and what
else happens in the middle of a write or a call. Only public parts are used.
"""

from __future__ import annotations

import copy
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobworker.effects import SendMethod
from jobworker.errors import NotSent, OutcomeUnknown
from jobworker.line.answer import LineAnswer
from jobworker.line.breaker import Breaker
from jobworker.line.client import tell
from jobworker.line.gate import Gate
from jobworker.line.rate_limits import RateLimits
from jobworker.sending.outbox import Outbox
from jobworker.sending.verdict import ReplyUnknown
from linedesk.store.documents import Document
from linedesk.store.errors import StoreUnavailable
from tests.jobworker.worker_harness import CHANNEL, a_send

INTERVAL_SECONDS = 1.0
CONVERSATIONS = [f"{CHANNEL}/U{n}" for n in range(4)]
# A call's end: whether LINE takes the message, and what is heard of it.
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
}


class Letters:
    """`deadletters` has a method of another name than the conversations'."""

    def __init__(self, world: World) -> None:
        self.write = world.write_letter


class World:
    """MongoDB, LINE, the pool and the clock, as far as sends have to do with them."""

    def __init__(self) -> None:
        self.now = time.monotonic()
        self.steps: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.lease = True
        self.closed = False
        # MongoDB.
        self.pending: dict[str, list[Document]] = defaultdict(list)
        self.deadletters: dict[str, Document] = {}
        self.rows: list[str] = []
        self.fails: list[str] = []
        # LINE.
        self.ends: list[str] = []
        self.calls = 0
        self.under_way = 0
        self.last_start = float("-inf")
        self.arrived: dict[str, int] = defaultdict(int)
        self.heard: set[str] = set()
        self.keys: set[str] = set()
        self.tokens: set[str] = set()
        # What the test knows of each conversation: when its sends are due, and whether something
        # happened to its first one.
        self.due: dict[str, float] = {}
        self.touched: set[str] = set()
        self.late: set[str] = set()
        # Conversations of which a write failed: their sends wait for the clock, for how long is
        # not known here.
        self.delayed: set[str] = set()
        # Done in the middle of the next writes and calls.
        self.meanwhile: list[Callable[[], None]] = []
        self.breaker = Breaker(monotonic=lambda: self.now)
        self.rate_limits = RateLimits(monotonic=lambda: self.now)
        self.gate = Gate(
            INTERVAL_SECONDS,
            step=self.steps.append,
            later=self.later,
            lease_is_fresh=lambda: self.lease,
            held_seconds=self.breaker.held_seconds,
            lead_seconds=0.0,
            monotonic=lambda: self.now,
        )
        self.outbox = Outbox(
            conversations=self,  # type: ignore[arg-type]
            deadletters=Letters(self),  # type: ignore[arg-type]
            schedule=self,  # type: ignore[arg-type]
            gate=self.gate,
            rate_limits=self.rate_limits,
            call=self.call,
            step=self.steps.append,
            later=self.later,
            reply_unknown=ReplyUnknown.PUSH,
        )

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        self.timers.append((self.now + seconds, function))

    def pass_by(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()

    # MongoDB, each write of which may fail, before or after it was done.

    def write(self, act: Callable[[], Any], id_: str | None = None) -> Any:
        self.pass_by()
        failure = self.fails.pop() if self.fails else None
        if failure is not None:
            self.delayed.update(CONVERSATIONS if id_ is None else [id_])
        if failure == "before":
            raise StoreUnavailable("away")
        result = act()
        if failure == "after":
            raise StoreUnavailable("away, but done")
        return result

    def _find(self, id_: str, effect_id: str) -> Document | None:
        return next((one for one in self.pending[id_] if one["id"] == effect_id), None)

    def note_try(self, id_: str, effect: Document) -> bool:
        def note() -> bool:
            found = self._find(id_, effect["id"])
            if found is not None:
                found.update(triedAt=effect["triedAt"], **{"as": effect["as"]})
            return found is not None

        return bool(self.write(note, id_))

    def give_up(self, id_: str, letter: Document) -> None:
        def give_up() -> None:
            found = self._find(id_, letter["id"])
            if found is not None:
                self.pending[id_][self.pending[id_].index(found)] = dict(letter)

        self.write(give_up, id_)

    def remove(self, id_: str, *effect_ids: str) -> None:
        def remove() -> None:
            for effect_id in effect_ids:
                assert (
                    effect_id in self.heard
                    or effect_id in self.deadletters
                    or effect_id in self.rows
                    or self._find(id_, effect_id) is None
                ), "removed before it was carried out"
            kept = [one for one in self.pending[id_] if one["id"] not in effect_ids]
            self.pending[id_] = kept

        self.write(remove, id_)

    def write_letter(self, letter: Document) -> None:
        def write() -> None:
            stands = next(
                one for rows in self.pending.values() for one in rows if one["id"] == letter["id"]
            )
            assert stands["type"] == "deadletter", "a letter beside a send that is still pending"
            self.deadletters.setdefault(letter["id"], dict(letter))

        self.write(write)

    def enter(self, effect: Document) -> str | None:
        def enter() -> str | None:
            if effect["refused"]:
                return "MongoDB refuses the row"
            self.rows.append(effect["id"])
            return None

        result: str | None = self.write(enter)
        return result

    def with_outbox(self) -> list[str]:
        return [id_ for id_, rows in self.pending.items() if rows]

    def adopt_all(self, ids: Any) -> list[Document]:
        return [{"_id": id_, "pending": copy.deepcopy(self.pending[id_])} for id_ in ids]

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
        name = body["messages"][0]["text"]
        assert name not in self.deadletters, "called after its letter"
        first = next(one for one in self.pending[id_] if one["type"] == "send")
        assert first["id"] == name, "not in the order of the outbox, or given up"
        assert first["triedAt"] is not None, "not written down"
        assert first["as"] == path.rsplit("/", 1)[1]
        if "replyToken" in body:
            self._has_the_oldest_token(id_)
        self.touched.add(id_)
        self.under_way += 1
        self.pass_by()
        self.under_way -= 1
        return self._answer(first["id"], body.get("replyToken"), retry_key, context["key"])

    def _has_the_oldest_token(self, id_: str) -> None:
        """Of the answers that were not called for yet. A push has its share of the turns."""
        for other, due in self.due.items():
            if other != id_ and other not in self.touched | self.late | self.delayed:
                assert due >= self.due[id_] - 1.0, f"{other} has an older token"

    def _answer(self, id_: str, token: str | None, key: str | None, whose: str) -> LineAnswer:
        takes, heard = ENDS[self.ends.pop() if self.ends else "taken"]
        if token is not None and token in self.tokens and heard == LineAnswer(200):
            heard = LineAnswer(400, '{"message":"Invalid reply token"}')
        elif key is not None and key in self.keys and heard == LineAnswer(200):
            heard = LineAnswer(409)
        elif takes and not (token in self.tokens or key in self.keys):
            self.arrived[id_] += 1
            self.tokens |= {token} - {None}  # type: ignore[arg-type]
            self.keys |= {key} - {None}  # type: ignore[arg-type]
        if isinstance(heard, LineAnswer):
            if heard.status in (200, 409) or "token" in heard.text:
                self.heard.add(id_)
            tell(self.breaker, heard.status, whose)
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

    # What comes from outside.

    def add(self, id_: str, *effects: Document) -> None:
        self.world.pending[id_].extend(copy.deepcopy(one) for one in effects)
        self.known.update((one["id"], id_) for one in effects)
        self.world.outbox.add(id_, effects)

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
                due -= age
            text = [{"type": "text", "text": name}]
            send = a_send(
                id=name, to=id_.partition("/")[2], messages=text, retry_key=name,
                at=datetime.now(UTC), **reply,
            )  # fmt: skip
            sends.append(send.as_document())
            if not any(one["type"] == "send" for one in world.pending[id_]):
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
        self.world.late.discard(id_)

    @rule(id_=st.sampled_from(CONVERSATIONS), refused=st.booleans())
    def record_a_timer(self, id_: str, refused: bool) -> None:
        self.numbers += 1
        effect = {"id": f"T{self.numbers}", "type": "timer", "timer": "t", "refused": refused}
        self.add(id_, effect)

    @rule(id_=st.sampled_from(CONVERSATIONS))
    def record_a_letter(self, id_: str) -> None:
        self.numbers += 1
        self.add(id_, {"id": f"L{self.numbers}", "type": "deadletter", "document": {}})

    def _release(self, id_: str) -> None:
        sends = [one for one in self.world.pending[id_] if one["type"] == "send"]
        if sends and self.world.outbox.give_up(id_, sends[0]["id"], cause="released"):
            self.released.add(sends[0]["id"])
            self.world.touched.add(id_)

    @rule(id_=st.sampled_from(CONVERSATIONS))
    def release(self, id_: str) -> None:
        self._release(id_)

    @rule(end=st.sampled_from(sorted(ENDS)))
    def line_will(self, end: str) -> None:
        self.world.ends.insert(0, end)

    @rule(fails=st.lists(st.sampled_from(["before", "after"]), min_size=1, max_size=3))
    def mongodb_fails(self, fails: list[str]) -> None:
        self.world.fails = fails
        self.world.touched.update(CONVERSATIONS)

    @rule(fresh=st.booleans())
    def the_lease_is(self, fresh: bool) -> None:
        self.world.lease = fresh

    @rule(id_=st.sampled_from(CONVERSATIONS), what=st.integers(0, 3))
    def meanwhile(self, id_: str, what: int) -> None:
        """Have something happen in the middle of the next write or call."""
        acts: list[Callable[[], None]] = [
            lambda: self._release(id_),
            lambda: self._record(id_, None, 1),
            lambda: self._record(id_, 50, 1),
            lambda: self._turn_stale(),
        ]
        self.world.meanwhile.append(acts[what])

    def _turn_stale(self) -> None:
        if not self.world.under_way:
            self.world.lease = False

    # The pool and the clock.

    @precondition(lambda self: self.world.steps)
    @rule(data=st.data())
    def a_thread_works(self, data: st.DataObject) -> None:
        self.world.steps.pop(data.draw(st.integers(0, len(self.world.steps) - 1)))()
        self.world.late.clear()

    @precondition(lambda self: self.world.timers)
    @rule(data=st.data())
    def time_passes(self, data: st.DataObject) -> None:
        self._fire(data.draw(st.integers(0, len(self.world.timers) - 1)))

    def _fire(self, index: int) -> None:
        due, function = self.world.timers.pop(index)
        self.world.now = max(self.world.now, due)
        function()

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

    # What always holds.

    @invariant()
    def what_arrived_arrived_once(self) -> None:
        assert all(count == 1 for count in self.world.arrived.values())

    @invariant()
    def no_letter_stands_beside_a_message_that_surely_arrived(self) -> None:
        for name, letter in self.world.deadletters.items():
            if name in self.world.arrived:
                assert letter["effect"]["triedAt"] is not None
            assert name not in self.world.heard

    def teardown(self) -> None:
        """In the end all is well again, and nothing waits for what never comes."""
        world = self.world
        world.lease, world.fails, world.ends, world.meanwhile = True, [], [], []
        for _ in range(20_000):
            if world.steps:
                world.steps.pop(0)()
            elif world.timers:
                self._fire(min(range(len(world.timers)), key=lambda n: world.timers[n][0]))
            else:
                break
            world.late.clear()
        else:
            raise AssertionError("it never comes to rest")
        self.what_arrived_arrived_once()
        self.no_letter_stands_beside_a_message_that_surely_arrived()
        left = {one["id"] for rows in world.pending.values() for one in rows}
        if world.closed:
            left_out = {name for name in left if not name.startswith("E")}
        else:
            left_out = left
            assert len(world.outbox) == 0
        assert not left_out, "left in its outbox"
        for name in self.known.keys() - left:
            places = (name in world.arrived, name in world.deadletters, name in world.rows)
            assert any(places), f"{name} is nowhere"


TestMachine = Machine.TestCase
