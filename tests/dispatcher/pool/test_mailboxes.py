"""All mailboxes against a naive account of the same documents, through crashes and lost saves."""

from collections import defaultdict, deque
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson.dbref import DBRef
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from dispatcher.commit.progress import HeldKey
from dispatcher.commit.tracker import ProgressSnapshot, ProgressTracker
from dispatcher.conversations.mailbox import KeyState, Load, ReadyLine, Run
from dispatcher.pool.mailboxes import Mailboxes
from dispatcher.pool.saver import MOST_MOVED_BYTES, Moves
from linedesk.store.control import Pause, Pauses, Scope
from linedesk.store.documents import Document
from linedesk.store.limits import MOST_WRAPPED_BYTES
from tests.dispatcher.fakes import WAITS

CHANNEL = "main"
KEYS = ("A", "B", "C")
# Also the names that a conversation remembers.
MANY = 2
MOST_MOVED = 3
# A scan may set `after` back by as much as it begins behind it, and the next one begins there.
RING = 16
SCANNED_BEHIND = 4
STEPS = (
    *("decide", "record", "defer", "abandon", "release", "pause", "resume"),
    *("resume early", "resume stale", "decide late", "defer late", "slow", "along", "along"),
)
NOTHING = {"token": None, "after": None, "finished": [], "passed": 0, "held": 0}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def stored(document: dict[str, Any], snapshot: ProgressSnapshot) -> dict[str, Any]:
    """The contents of `progress` after a save: of ring and finished the changed places."""
    ring, told = list(document["ring"]), snapshot.finished
    for place, id_ in snapshot.ring.items():
        ring[place] = id_
    if isinstance(told, list):
        finished = list(told)
    else:
        # Like `$set`: beyond the end of an array the places in between become null.
        before = document["finished"]
        finished = before + [None] * (max(told, default=-1) + 1 - len(before))
        for place, id_ in told.items():
            finished[place] = id_
    at = {"token": snapshot.token, "after": snapshot.after, "passed": snapshot.passed}
    return {**at, "finished": finished, "ring": ring}


class World(RuleBasedStateMachine):
    """The durable state, and one process after another that reads it.

    Documents are numbered 1, 2, 3, … in the feed's order; the token after n is n. For each key it
    knows the documents that are still to be decided, and nothing of how they are stored.
    """

    def __init__(self) -> None:
        super().__init__()
        # Durable.
        self.recvq: list[Document] = []
        self.overwritten: set[int] = set()
        self.progress: dict[str, Any] = {**NOTHING, "ring": [None] * RING}
        self.held: dict[int, Document] = {}
        self.applied: dict[str, deque[int]] = defaultdict(lambda: deque(maxlen=MANY))
        self.recorded: dict[str, list[int]] = defaultdict(list)
        self.decided_ever: set[int] = set()
        self.lost: set[int] = set()
        self.paused: set[str] = set()
        self.begin()

    # One process.

    def begin(self) -> None:
        self.tracker = ProgressTracker(**self.progress, ring_slots=RING)
        self.told = self.told_finished()
        self.fed = self.progress["token"] or 0
        self.pending: dict[str, list[int]] = {key: [] for key in KEYS}
        self.running: dict[str, Any] = {}
        self.resumed: set[str] = set()
        self.deferred: dict[str, Any] = {}
        self.bypass: set[str] = set()
        # Per key: decided and not saved.
        self.unsaved: dict[str, list[int]] = {key: [] for key in KEYS}
        self.careful: dict[str, int] = dict.fromkeys(KEYS, 0)
        # Per key: how many documents behind its first one are decided with it.
        self.along: dict[str, int] = dict.fromkeys(KEYS, 0)
        self.moving: set[str] = set()
        self.plan: Any = None
        self.covered: dict[str, list[int]] = {}
        self.abandoned: list[Any] = []
        self.jobs: list[Any] = []
        self.mailboxes = Mailboxes(self.tracker)
        self.mailboxes.lines.most_slow = 1
        self.mailboxes.obey(self.pauses())
        self.moves = Moves(self.mailboxes)
        for key in KEYS:
            rows = self.rows_of(key)
            if rows:
                self.mailboxes.put_held(HeldKey(CHANNEL, key, len(rows), rows[-1]["n"]))
                self.pending[key] = [row["_id"] for row in rows]

    def rows_of(self, key: str) -> list[Document]:
        return sorted((r for r in self.held.values() if r["key"] == key), key=lambda row: row["n"])

    def told_finished(self) -> set[int]:
        """The documents that progress names as finished. A scan that meets a document once more may
        set `after` back a little; the ring still has the documents finished behind it.
        """
        after, ring = self.progress["after"] or 0, self.progress["ring"]
        return {*range(1, after + 1), *self.progress["finished"], *ring} - {None}

    def pauses(self) -> Pauses:
        return Pauses(tuple(Pause(Scope(CHANNEL, key)) for key in sorted(self.paused)))

    @staticmethod
    def key_of(document: Document) -> tuple[str, str]:
        return CHANNEL, document["key"]

    # Documents come.

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 4))
    def store_and_feed(self, key: str, count: int) -> None:
        for _ in range(count):
            number = len(self.recvq) + 1
            one = {"_id": number, "channel": CHANNEL, "key": key}
            self.recvq.append(one)
        for _ in range(count):
            self.feed()

    def feed(self) -> None:
        self.fed += 1
        self.put(self.fed, self.fed)

    def put(self, number: int, token: int | None) -> None:
        if number in self.overwritten:
            if number not in self.told:
                self.lost.add(number)
                self.told.add(number)
            return
        one = self.recvq[number - 1]
        again = number in self.decided_ever or number % 2 == 0
        job = self.mailboxes.put(
            one, token, key=self.key_of(one), size=number, again=again, now=1.0
        )
        assert (job is None) == (number in self.told), f"{number} was lost or comes twice"
        if job is not None:
            self.told.add(number)
            self.pending[one["key"]].append(number)
            self.jobs.append(job)

    @rule(count=st.integers(1, 8))
    def read_on(self, count: int) -> None:
        """The documents that a predecessor has left to be read."""
        for _ in range(min(count, len(self.recvq) - self.fed)):
            self.feed()

    @rule(data=st.data())
    @precondition(lambda self: self.recvq)
    def overwrite(self, data: st.DataObject) -> None:
        """recvq is capped: a document that waits for long may be gone."""
        if len(self.overwritten) < len(self.recvq) // 6:
            self.overwritten.add(data.draw(st.integers(1, len(self.recvq))))

    @rule()
    @precondition(lambda self: self.plan is None)
    def lose_history(self) -> None:
        """The token is forgotten durably, then recvq is scanned from some way behind `after`."""
        self.tracker.forget_token()
        if self.begin_save():
            self.saved()
        after = self.tracker.begin_scan() or 0
        held = set(self.held)
        for number in sorted({*held, *range(max(1, after - SCANNED_BEHIND), len(self.recvq) + 1)}):
            key = self.recvq[number - 1]["key"]
            if number in held and number in self.pending[key]:
                mailbox = self.mailboxes.get((CHANNEL, key))
                assert mailbox is not None
                assert mailbox.held > 0, f"{number} would come twice"
            elif number >= after - SCANNED_BEHIND:
                self.put(number, None)
        self.tracker.end_scan()
        self.fed = len(self.recvq)

    # Threads.

    @rule()
    def take(self) -> None:
        self.begin_next()

    def begin_next(self) -> bool:
        work = self.mailboxes.next(2.0)
        if work is None:
            ready = [key for key in KEYS if self.state_of(key) is KeyState.READY]
            heads = [self.mailboxes.get((CHANNEL, key)).head for key in ready]  # type: ignore[union-attr]
            waits = all(head is not None and head.is_slow for head in heads)
            assert not ready or (waits and self.slow_runs()), "a key stands still"
            return False
        key = self.key_at_work(work)
        assert key not in self.running, "two threads are at one key"
        assert key not in self.deferred, "it was not resumed"
        assert key not in self.paused or key in self.bypass, "it is paused"
        assert key not in self.moving, "it is on its way into held"
        assert not (self.careful[key] and self.unsaved[key]), "each decision waits for a save"
        self.running[key] = work
        self.bypass.discard(key)
        self.resumed.discard(key)
        if self.is_run(work):
            self.check_run(key, work)
        assert len(self.slow_runs()) <= 1, "more slow runs than there may be"
        return True

    def slow_runs(self) -> list[str]:
        return [key for key in self.runs() if self.running[key].job.is_slow]

    def ask_for_slow(self, key: str) -> None:
        """One that gets no place is deferred, and ready again at once."""
        job, others = self.running[key].job, [one for one in self.slow_runs() if one != key]
        was_slow = job.is_slow
        if job.take_slow_place():
            assert not others, "more slow runs than there may be"
            return
        assert not was_slow, "it has its place"
        self.resumed.add(key)
        self.defer_run(key)

    def check_run(self, key: str, run: Any) -> None:
        number = run.job.document["_id"]
        assert number == self.pending[key][0], "out of order"
        later = [one for one in self.recorded[key] if one >= number]
        if later:
            assert run.job.again
            assert number in self.applied[key], f"{number} is decided again after {later}"
        older = {one["_id"] for one in self.recvq if one["key"] == key and one["_id"] < number}
        assert older <= self.decided_ever | self.lost, "an older one was passed over"
        if run.job not in self.jobs:
            self.jobs.append(run.job)

    def key_at_work(self, work: Any) -> str:
        return str(work.mailbox.key[1])

    @staticmethod
    def is_run(work: Any) -> bool:
        return hasattr(work, "job")

    def runs(self) -> list[str]:
        return [key for key in sorted(self.running) if self.is_run(self.running[key])]

    def end_run(self, key: str, *, records: bool) -> None:
        run = self.running[key]
        numbers = self.decided_by(key, run)
        if records:
            self.record(key, numbers, again=run.job.again)
        del self.running[key]
        assert self.mailboxes.decided(run)
        assert not self.mailboxes.decided(run), "its end came before"
        del self.pending[key][: len(numbers)]
        self.along[key] = 0
        self.decided_ever.update(numbers)
        self.unsaved[key] += numbers
        self.careful[key] = max(0, self.careful[key] - len(numbers))
        self.bypass.discard(key)

    def decided_by(self, key: str, run: Any) -> list[int]:
        """The documents that the run decides: its own, and those that it took along."""
        numbers = self.pending[key][: 1 + self.along[key]]
        assert run.job.document["_id"] == numbers[0]
        applied = [run.job.again and one in self.applied[key] for one in numbers]
        if applied[0] and not all(applied):
            # An earlier process took fewer along: each of the others is decided again.
            assert run.job.take_along(0) == 0
            return numbers[:1]
        return numbers

    def record(self, key: str, numbers: list[int], *, again: bool) -> None:
        """A record is in one group with the progress of all that was decided before it."""
        if again and set(numbers) <= set(self.applied[key]):
            return
        if self.plan is not None:
            self.saved()
        if self.begin_save():
            self.saved()
        assert not set(numbers) & set(self.recorded[key]), "recorded twice"
        assert not self.recorded[key] or numbers[0] > self.recorded[key][-1], "out of order"
        self.applied[key].extend(numbers)
        self.recorded[key] += numbers
        self.decided_ever.update(numbers)

    def take_with(self, key: str, count: int) -> None:
        job = self.running[key].job
        following = job.following()
        numbers = [one["_id"] for one in following.documents]
        assert numbers == self.pending[key][1 : 1 + len(numbers)], "out of order, or not the next"
        assert following.is_cut == (len(numbers) + 1 < len(self.pending[key]))
        assert following.room == (0 if self.careful[key] else MANY - 1)
        self.along[key] = job.take_along(count)
        assert self.along[key] == min(count, following.room, len(numbers))
        job.listens = False

    @rule(records=st.lists(st.booleans(), min_size=1, max_size=6))
    def go_on(self, records: list[bool]) -> None:
        """Some documents are read and decided one after the other."""
        for one in records:
            self.begin_next()
            if runs := self.runs():
                self.end_run(runs[0], records=one)
            elif reading := self.reading():
                self.end_reading(reading[0], self.running.pop(reading[0]))

    def defer_run(self, key: str) -> None:
        run = self.running.pop(key)
        assert self.mailboxes.deferred(run, WAITS)
        if key not in self.resumed:
            self.deferred[key] = run.job

    def resume_run(self, key: str) -> None:
        self.mailboxes.resume(self.running[key].job)
        self.resumed.add(key)

    def abandon_run(self, key: str) -> None:
        run = self.running.pop(key)
        self.mailboxes.abandoned(run)
        self.deferred[key] = run.job
        self.abandoned.append(run)

    def end_abandoned(self, run: Any, *, decides: bool) -> None:
        end = self.mailboxes.decided(run) if decides else self.mailboxes.deferred(run, WAITS)
        assert not end, "an abandoned run decides nothing"

    def resume_job(self, job: Any) -> None:
        self.mailboxes.resume(job)
        for key in KEYS:
            if self.deferred.get(key) is job:
                del self.deferred[key]
            run = self.running.get(key)
            if run is not None and self.is_run(run) and run.job is job:
                self.resumed.add(key)

    @rule(data=st.data())
    @precondition(lambda self: self.runs())
    def save_each(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(self.runs()))
        mailbox = self.mailboxes.get((CHANNEL, key))
        assert mailbox is not None
        mailbox.save_each = MANY
        self.careful[key] = MANY

    @rule(
        data=st.data(),
        key=st.sampled_from(KEYS),
        count=st.integers(1, 2 * MOST_MOVED),
        ends=st.sampled_from(["saved", "lost", "reached"]),
    )
    @precondition(lambda self: self.plan is None)
    def what_a_move_meets(self, data: st.DataObject, key: str, count: int, ends: str) -> None:
        self.want_moved(key, count)
        self.choose()
        self.check()
        self.steps_of_runs(data, most=6)
        if self.plan is None and self.begin_save():
            self.steps_of_runs(data, most=4)
            if self.plan is not None and ends == "saved":
                self.saved()
            elif self.plan is not None:
                self.not_saved(ends == "reached")

    @rule(data=st.data(), most=st.just(8))
    def steps_of_runs(self, data: st.DataObject, most: int) -> None:
        """What may happen to runs, close together."""
        for step in data.draw(st.lists(st.sampled_from(STEPS), max_size=most)):
            if step == "resume" and self.deferred:
                key = data.draw(st.sampled_from(sorted(self.deferred)))
                self.mailboxes.resume(self.deferred.pop(key))
            elif self.runs():
                self.step_of(step, data.draw(st.sampled_from(self.runs())), data)
            elif step == "pause":
                self.pause_or_resume(KEYS[0])
            else:
                self.begin_next()
            self.check()

    def step_of(self, step: str, key: str, data: st.DataObject) -> None:
        if step == "resume stale" and self.jobs:
            # Of a job of any time: decided, waiting, at work, or not the first.
            self.resume_job(data.draw(st.sampled_from(self.jobs)))
        elif step == "resume early":
            self.resume_run(key)
        elif step in ("decide late", "defer late") and self.abandoned:
            late = data.draw(st.sampled_from(self.abandoned))
            self.end_abandoned(late, decides=step == "decide late")
        elif step == "abandon":
            self.abandon_run(key)
        elif step == "defer":
            self.defer_run(key)
        elif step == "release":
            self.release_head(key)
        elif step == "along":
            self.take_with(key, data.draw(st.integers(0, 4)))
        elif step == "slow":
            self.ask_for_slow(key)
        elif step == "pause":
            self.pause_or_resume(key)
        elif step in ("decide", "record"):
            self.end_run(key, records=step == "record")

    def check(self) -> None:
        self.each_key_is_in_the_state_that_its_facts_say()
        self.the_figures_are_right()

    # Threads that read.

    def reading(self) -> list[str]:
        return [key for key in sorted(self.running) if not self.is_run(self.running[key])]

    @rule(data=st.data(), works=st.integers(0, 3))
    @precondition(lambda self: self.reading())
    def read(self, data: st.DataObject, works: int) -> None:
        key = data.draw(st.sampled_from(self.reading()))
        work = self.running.pop(key)
        if works == 0:
            self.mailboxes.not_read(work, WAITS)
            self.deferred[key] = work
        else:
            self.end_reading(key, work)

    def end_reading(self, key: str, work: Any) -> None:
        rows = [r for r in self.rows_of(key) if work.above < r["n"] <= work.upto]
        assert self.mailboxes.loaded(work, rows[: work.most]) == 0

    # Operators.

    @rule(key=st.sampled_from(KEYS))
    def pause_or_resume(self, key: str) -> None:
        self.paused ^= {key}
        self.mailboxes.obey(self.pauses())

    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        keys = [key for key in KEYS if self.pending[key]]
        if not keys:
            return
        self.release_head(data.draw(st.sampled_from(keys)))

    def release_head(self, key: str) -> None:
        self.mailboxes.let_pass(self.mailboxes.get((CHANNEL, key)))
        if key in self.reading():
            # The first document is not known.
            return
        self.bypass.add(key)
        self.deferred.pop(key, None)
        if key in self.running:
            self.resumed.add(key)

    # Documents move to `held`.

    @rule(key=st.sampled_from(KEYS), count=st.integers(1, 2 * MOST_MOVED))
    def want_moved(self, key: str, count: int) -> None:
        mailbox = self.mailboxes.get((CHANNEL, key))
        if mailbox is not None and key not in self.moving:
            self.moves.want([(mailbox, count)])

    @rule()
    @precondition(lambda self: self.plan is None)
    def choose(self) -> None:
        self.moves.choose(NOW)
        mailboxes = [self.mailboxes.get((CHANNEL, key)) for key in KEYS]
        self.moving = {
            mailbox.key[1] for mailbox in mailboxes if mailbox is not None and mailbox.moving
        }

    # Saves.

    @rule()
    @precondition(lambda self: self.plan is None)
    def begin_to_save(self) -> None:
        self.begin_save()

    def begin_save(self) -> bool:
        self.plan = self.moves.begin_save()
        if self.plan is not None:
            assert len(self.plan.rows) <= MOST_MOVED
            self.covered = {key: list(self.unsaved[key]) for key in KEYS}
        return self.plan is not None

    @rule(key=st.sampled_from(KEYS), count=st.integers(0, 2 * MOST_MOVED))
    @precondition(lambda self: self.plan is None)
    def save_it_all(self, key: str, count: int) -> None:
        """A whole save, with the documents that move to `held`."""
        if count:
            self.want_moved(key, count)
        self.choose()
        if self.begin_save():
            self.saved()

    @rule()
    @precondition(lambda self: self.plan is not None)
    def saved(self) -> None:
        self.make_durable()
        plan, self.plan = self.plan, None
        self.moves.saved(plan)
        self.moving = set()
        for key, covered in self.covered.items():
            self.unsaved[key] = [one for one in self.unsaved[key] if one not in covered]
        self.covered = {}

    @rule(reached=st.booleans())
    @precondition(lambda self: self.plan is not None)
    def not_saved(self, reached: bool) -> None:
        """The outcome is unknown: the write may have reached the server all the same."""
        if reached:
            self.make_durable()
        self.plan = None
        self.mailboxes.tracker.not_saved()

    def make_durable(self) -> None:
        snapshot = self.plan
        self.progress = {**stored(self.progress, snapshot), "held": snapshot.held}
        for row in snapshot.rows:
            self.held.setdefault(row["_id"], row)
        for id_ in snapshot.gone:
            self.held.pop(id_, None)

    @rule(reached=st.booleans(), records=st.booleans())
    def crash(self, reached: bool, records: bool) -> None:
        """Its last group may have been committed, which it heard no more."""
        if reached and records and (runs := self.runs()):
            run = self.running[runs[0]]
            self.record(runs[0], self.decided_by(runs[0], run), again=run.job.again)
        elif self.plan is not None and reached:
            self.make_durable()
        known = self.told_finished()
        self.lost |= {number for number in self.overwritten if number not in known}
        self.begin()
        if self.progress["token"] is None:
            self.lose_history()

    # Invariants.

    @invariant()
    def what_is_named_finished_was_decided_or_is_held(self) -> None:
        told = self.told_finished()
        assert told <= self.decided_ever | self.lost | set(self.held), "lost"
        assert set(self.held) <= told, "it would come twice"

    @invariant()
    def each_key_is_in_the_state_that_its_facts_say(self) -> None:
        for key in KEYS:
            mailbox = self.mailboxes.get((CHANNEL, key))
            known = self.pending[key] or self.unsaved[key] or key in self.moving
            if not known:
                # The next one of its documents is met as the first of its key.
                self.careful[key] = 0
            assert (mailbox is None) == (not known), f"{key} is forgotten too early or too late"
            if mailbox is not None:
                assert mailbox.state is self.state_of(key), key
                assert mailbox in self.mailboxes.states[mailbox.state]
        states = [len(mailboxes) for mailboxes in self.mailboxes.states.values()]
        assert sum(states) == sum(self.mailboxes.get((CHANNEL, key)) is not None for key in KEYS)

    def state_of(self, key: str) -> KeyState:
        if key in self.running:
            return KeyState.RUNNING
        if key in self.deferred:
            return KeyState.DEFERRED
        if not self.pending[key]:
            return KeyState.IDLE
        if key in self.paused and key not in self.bypass:
            return KeyState.PAUSED
        if key in self.moving or (self.careful[key] and self.unsaved[key]):
            return KeyState.UNSAVED
        return KeyState.READY

    @invariant()
    def the_figures_are_right(self) -> None:
        pending = {number for numbers in self.pending.values() for number in numbers}
        assert self.tracker.unfinished <= len(pending)
        assert self.mailboxes.held_documents == len(pending) - self.tracker.unfinished
        unfinished = [job.slot.size for job in self.jobs if not job.slot.finished]
        assert (self.tracker.unfinished, self.tracker.size) == (len(unfinished), sum(unfinished))

    @rule(seldom=st.integers(0, 7))
    def drain(self, seldom: int) -> None:
        """Without failures for a while, everything is decided, saved and forgotten."""
        if seldom != 1:
            return
        if self.plan is not None:
            self.saved()
        self.paused = set()
        self.mailboxes.obey(self.pauses())
        while self.fed < len(self.recvq):
            self.feed()
        for _ in range(40 + 4 * len(self.recvq)):
            self.choose()
            if self.begin_save():
                self.saved()
            for what in self.deferred.values():
                self.mailboxes.resume(what)
            self.deferred = {}
            while self.begin_next():
                pass
            for key in list(self.running):
                if self.is_run(self.running[key]):
                    self.end_run(key, records=True)
                else:
                    self.end_reading(key, self.running.pop(key))
            if not any(self.pending.values()) and not self.running and not self.begin_save():
                break
            if self.plan is not None:
                self.saved()
        assert self.pending == {key: [] for key in KEYS}
        assert self.held == {}
        assert len(self.tracker) == 0
        assert self.mailboxes.held_documents == 0
        assert not self.mailboxes.all(), "keys at rest are forgotten once saved"


def set_many(patch: pytest.MonkeyPatch, many: int) -> None:
    for module in ("conversations.mailbox", "pool.mailboxes"):
        patch.setattr(f"dispatcher.{module}.MANY", many)


def test_whatever_happens_each_key_is_decided_in_order_and_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_many(monkeypatch, MANY)
    monkeypatch.setattr("dispatcher.pool.saver.MOST_MOVED", MOST_MOVED)
    # Without explanations, for which hypothesis would trace each line: three times as slow.
    phases = (Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink)
    limits = settings(max_examples=80, stateful_step_count=60, deadline=None, phases=phases)
    run_state_machine_as_test(World, settings=limits)


# Facts that the model does not see.


def mailboxes_of(*documents: Document, most_slow: int = 1_000) -> Mailboxes:
    mailboxes = Mailboxes(ProgressTracker())
    mailboxes.lines.most_slow = most_slow
    put(mailboxes, *documents)
    return mailboxes


def numbered(count: int, key: str = "A") -> list[Document]:
    return [{"_id": n, "channel": CHANNEL, "key": key} for n in range(1, count + 1)]


def test_keys_take_turns() -> None:
    """A key that has decided goes behind those that were ready before."""
    mailboxes = mailboxes_of(
        *numbered(2, "A"), *({**one, "_id": -one["_id"]} for one in numbered(2, "B"))
    )
    order = []
    while (run := mailboxes.next(1.0)) is not None:
        assert isinstance(run, Run)
        order.append(run.job.document["_id"])
        mailboxes.decided(run)
    assert order == [1, -1, 2, -2]


def an_event(name: str, key: str, event: Any) -> Document:
    return {"_id": name, "channel": CHANNEL, "key": key, "eventId": name, "event": event}


def answered(name: str) -> Document:
    """A user's event, which waits for an answer."""
    return an_event(name, name, {"replyToken": name})


def names_in_order(mailboxes: Mailboxes) -> list[str]:
    """The names of the events that begin, in order."""
    names = []
    while (run := mailboxes.next(1.0)) is not None:
        names.append(run.name)
    return names


def test_an_answer_is_not_delayed_by_hundreds_of_timers() -> None:
    timers = (an_event(f"t{n}", f"U{n}", {"type": "timer"}) for n in range(300))
    assert names_in_order(mailboxes_of(*timers, answered("a")))[:3] == ["a", "t0", "t1"]


def test_each_fifth_key_that_begins_is_another_one_however_many_wait_for_answers() -> None:
    timers = [an_event(f"t{n}", f"U{n}", {}) for n in range(2)]
    names = names_in_order(mailboxes_of(*(answered(f"a{n}") for n in range(10)), *timers))
    assert [names.index("t0"), names.index("t1")] == [4, 9]
    assert [name for name in names if name[0] == "a"] == [f"a{n}" for n in range(10)]


def test_slow_runs_leave_threads_to_others_and_take_turns() -> None:
    mailboxes = mailboxes_of(*(answered(f"a{n}") for n in range(5)), most_slow=2)
    runs = [begun(mailboxes) for _ in range(4)]
    assert [run.job.take_slow_place() for run in runs] == [True, True, False, False]
    for run in runs[2:]:
        assert mailboxes.deferred(run, WAITS)
        assert run.mailbox.state is KeyState.READY
    fifth = begun(mailboxes)
    assert fifth.name == "a4", "those that wait for a slow one to end hold up no other"
    assert mailboxes.next(1.0) is None
    assert not fifth.job.take_slow_place()
    assert mailboxes.deferred(fifth, WAITS)
    for before, after in ((runs[1], "a2"), (runs[0], "a3")):
        assert mailboxes.decided(before)
        assert begun(mailboxes).name == after
        assert mailboxes.next(1.0) is None


def put(mailboxes: Mailboxes, *documents: Document, again: bool = False) -> None:
    for one in documents:
        size = len(bson.encode(one))
        mailboxes.put(one, None, key=(CHANNEL, one["key"]), size=size, again=again, now=1.0)


def ids(documents: Any) -> list[Any]:
    return [one["_id"] for one in documents]


def test_documents_taken_along_stay_in_memory_when_they_move_to_held() -> None:
    mailboxes = mailboxes_of(*numbered(6))
    run = begun(mailboxes)
    run.job.take_along(2)
    moves = moving(mailboxes, 5)
    save(moves)
    assert ids(job.document for job in run.mailbox.jobs) == [1, 2, 3]
    assert ids(run.job.following().documents) == [2, 3]
    mailboxes.decided(run)
    assert mailboxes.held_documents == 2
    plan = moves.begin_save()
    assert plan is not None
    assert list(plan.gone) == [1, 2, 3]
    load = mailboxes.next(1.0)
    assert isinstance(load, Load)
    assert (load.above, load.upto) == (2, 4)


@pytest.fixture
def three_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    set_many(monkeypatch, 3)


def test_behind_a_suspect_nothing_is_taken_along() -> None:
    mailboxes = mailboxes_of(*numbered(9))
    run = begun(mailboxes)
    run.mailbox.save_each = 3
    assert run.job.following().room == 0
    assert run.job.take_along(3) == 0


def test_a_further_document_resumes_a_job_that_listens() -> None:
    mailboxes = mailboxes_of(*numbered(1))
    run = begun(mailboxes)
    run.job.following()
    mailboxes.deferred(run, WAITS)
    assert mailboxes.next(1.0) is None
    put(mailboxes, *numbered(2)[1:])
    again = begun(mailboxes)
    assert again.job is run.job
    mailboxes.deferred(again, WAITS)
    put(mailboxes, *numbered(3)[2:])
    assert mailboxes.next(1.0) is None, "it did not ask once more"


def test_a_document_that_arrives_during_the_asking_run_is_not_missed() -> None:
    mailboxes = mailboxes_of(*numbered(1))
    run = begun(mailboxes)
    run.job.following()
    put(mailboxes, *numbered(2)[1:])
    mailboxes.deferred(run, WAITS)
    assert begun(mailboxes).job is run.job


def test_a_document_during_the_handler_does_not_shorten_the_pause_before_the_next_try() -> None:
    mailboxes = mailboxes_of(*numbered(1))
    run = begun(mailboxes)
    run.job.following()
    put(mailboxes, *numbered(2)[1:])
    run.job.begin_handler()
    put(mailboxes, *numbered(3)[2:])
    mailboxes.deferred(run, WAITS)
    assert mailboxes.next(1.0) is None


@pytest.mark.parametrize("event", [None, "typed in a shell", DBRef("events", 1), {}])
def test_a_document_that_is_no_event_waits_for_no_answer(event: Any) -> None:
    mailboxes = mailboxes_of(an_event("x", "U1", event))
    run = mailboxes.next(1.0)
    assert isinstance(run, Run)
    assert run.mailbox.line_of_head is ReadyLine.OTHER


@pytest.mark.usefixtures("three_are_many")
def test_documents_possibly_decided_by_an_earlier_process_are_saved_one_by_one() -> None:
    mailboxes = mailboxes_of(*numbered(10))
    run = begun(mailboxes)
    run.mailbox.save_each = 3
    for _ in range(2):
        assert mailboxes.decided(run)
        assert mailboxes.next(1.0) is None
        save(Moves(mailboxes))
        run = begun(mailboxes)
    # From now on none waits for a save.
    for _ in range(3):
        assert mailboxes.decided(run)
        run = begun(mailboxes)


def test_a_batch_takes_so_many_bytes_and_no_document_that_is_too_large() -> None:
    large = {"_id": 1, "key": "A", "padding": "x" * MOST_WRAPPED_BYTES}
    half = [{"_id": n, "key": "B", "padding": "x" * (MOST_MOVED_BYTES // 2)} for n in (2, 3, 4)]
    mailboxes = mailboxes_of(large, {"_id": 5, "key": "A"}, *half)
    moves = moving(mailboxes, 10)
    plan = moves.begin_save()
    assert plan is not None
    assert [row["_id"] for row in plan.rows] == [2]
    moves.saved(plan)
    assert moves.are_wanted, "the next save takes along the next ones"
    moves.choose(NOW)
    plan = moves.begin_save()
    assert plan is not None
    assert [row["_id"] for row in plan.rows] == [3]


def test_documents_that_vanished_from_held_are_not_waited_for() -> None:
    mailboxes = Mailboxes(ProgressTracker())
    mailboxes.put_held(HeldKey(CHANNEL, "A", 3, 7))
    load = mailboxes.next(1.0)
    assert isinstance(load, Load)
    assert (load.above, load.upto) == (-1, 7)
    rows = [{"_id": 1, "n": 5, "document": {"_id": 1}}]
    assert mailboxes.loaded(load, rows) == 2
    assert mailboxes.held_documents == 1
    assert mailboxes.decided(begun(mailboxes))
    save(Moves(mailboxes))
    assert not mailboxes.all()


def begun(mailboxes: Mailboxes) -> Run:
    run = mailboxes.next(1.0)
    assert isinstance(run, Run)
    return run


def moving(mailboxes: Mailboxes, count: int) -> Moves:
    """So many documents of each mailbox are on their way into `held`."""
    moves = Moves(mailboxes)
    moves.want((one, count) for one in mailboxes.all())
    moves.choose(NOW)
    return moves


def save(moves: Moves) -> None:
    plan = moves.begin_save()
    assert plan is not None
    moves.saved(plan)
