"""Poison: which events are suspect, run alone and are given up; and which must not be blamed."""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dispatcher.commit.progress import Progress, Start, Trying
from dispatcher.commit.tracker import ProgressTracker
from dispatcher.conversations.mailbox import Job, JobResult, Mailbox, Wait
from dispatcher.pool.suspects import CrashSuspects, StartCounter
from dispatcher.process import ExitReason
from linedesk.store.documents import HELD, PROGRESS, Document, name_of
from linedesk.store.errors import Replaced, StoreUnavailable
from tests.dispatcher.conftest import DeskOfPool, Dispatch, Store, Told
from tests.dispatcher.fakes import WAITS, RecordingWorker, document, numbered
from tests.dispatcher.leader_terms import took_over
from tests.rows import Db
from tests.waiting import eventually

# Suspects. Pure.


def test_few_suspects_run_at_a_time_and_half_of_those_that_were_found() -> None:
    suspects = CrashSuspects(sought=True, found=["a", "b", "c", "d"], most=10)
    for key in "abcdefghijkl":
        suspects.meet(key)
    for key in "ab":
        assert suspects.may_begin(key, 19)
        suspects.begin(key, key)
    assert not suspects.may_begin("c", 19)
    assert not suspects.may_begin("e", 19), "a death would blame it, too"
    for key in "ab":
        suspects.end(key, decided=True)
    for key in "efghij":
        assert suspects.may_begin(key, 19)
        suspects.begin(key, key)
    assert not suspects.may_begin("k", 19)
    assert not suspects.may_begin("c", 19)


class Notes:
    """`progress` in memory: each start finds the notes of the last one."""

    def __init__(self) -> None:
        self.starts = 0
        self.trying: tuple[Trying, ...] = ()

    def note_starts(self, starts: int, *trying: Trying) -> None:
        self.starts, self.trying = starts, trying


class Bout:
    """One start with suspects and newcomers, one step at a time, in a random order."""

    def __init__(self, notes: Notes, deadly: Sequence[frozenset[str]], chance: Random) -> None:
        self._deadly = deadly
        self._chance = chance
        self.given_up: set[str] = set()
        start = Start(ProgressTracker(), "memory", notes.starts, trying=notes.trying)
        self._counter = StartCounter(
            notes,  # type: ignore[arg-type]
            start,
            decide=lambda job: WAITS,
            later=lambda seconds, function: None,
            step=lambda step: step(),
            replaced=lambda error: None,
        )
        self.suspects = self._counter.suspects(most=100)

    def live(self, left: list[str], newcomers: list[str]) -> bool:
        """Until it dies or all are decided; returns whether it died. `left` loses the decided."""
        for name in left:
            self.suspects.meet(name)
        self.suspects.close()
        running: dict[str, Callable[[bool], None]] = {}
        while left or newcomers:
            begins = self._first_ones([name for name in left if name not in running])
            begins += [
                name for name in newcomers if name not in running and not self.suspects.is_proving
            ]
            name = self._chance.choice([*running, *begins])
            if name not in running:
                running[name] = self._begin(name)
            elif self._is_deadly(running.keys() - self.given_up) and self._chance.random() < 0.7:
                return True
            else:
                self.suspects.end(name, decided=True)
                running.pop(name)(True)
                (left if name in left else newcomers).remove(name)
        return False

    def _is_deadly(self, running: set[str]) -> bool:
        return any(together <= running for together in self._deadly)

    def _first_ones(self, waiting: list[str]) -> list[str]:
        """The suspects that may begin; in their line the found ones come first."""
        if not self.suspects.sought:
            return waiting
        line = [name for name in waiting if name in self.suspects.found] or waiting
        return [name for name in line if self.suspects.may_begin(name, 19)]

    def _begin(self, name: str) -> Callable[[bool], None]:
        task = Task(name, suspect=self.suspects.begin(name, name), key=name)
        ended = self._counter._note(task) if task.suspect else lambda decided: None
        if task.given_up_for is not None:
            self.given_up.add(name)
        return ended


@settings(max_examples=300, deadline=None)
@given(chance=st.randoms(use_true_random=True))
def test_killers_are_found_in_few_starts_and_no_innocent_is_given_up(chance: Random) -> None:
    """In any order; some kill only sometimes, some only together, some only arrive meanwhile."""
    left = [f"s{n}" for n in range(chance.randint(1, 30))]
    some = [*left, *(f"n{n}.{m}" for n in range(4) for m in range(2))]
    deadly = [
        frozenset(chance.sample(some, min(len(some), chance.randint(1, 2))))
        for _ in range(chance.randint(0, 3))
    ]
    notes, deaths, died = Notes(), 0, True
    while died:
        new = [f"n{deaths}.{n}" for n in range(2)]
        bout = Bout(notes, deadly, chance)
        died = bout.live(left, new)
        assert all(frozenset([name]) in deadly for name in bout.given_up)
        deaths += died
        left += new
    # Two that name none; then six, three, one and the proof, and one more for one that comes late.
    assert deaths <= 2 + 5 * len(deadly)


# On a pool: the order, and which jobs run side by side.


class Alone:
    """A `decide` that notes which jobs run side by side."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside: set[str] = set()
        self.beside: dict[str, set[str]] = {}
        self.gates: dict[str, threading.Event] = {}
        self.entered: list[str] = []

    def __call__(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        with self._lock:
            for other in self._inside:
                self.beside[other].add(name)
            self.beside[name] = set(self._inside)
            self._inside.add(name)
            self.entered.append(name)
        if name in self.gates:
            assert self.gates[name].wait(30)
        with self._lock:
            self._inside.discard(name)
        return JobResult.DONE


def put(desk: DeskOfPool, *documents: Document, again: bool) -> None:
    for one in documents:
        desk.pool.put(one, None, again=again)


def test_during_a_proof_all_others_wait_and_status_says_so(
    pool_of: Callable[..., DeskOfPool],
) -> None:
    decide = Alone()
    decide.gates = {"proof": threading.Event()}
    suspects = CrashSuspects(sought=True, found=["proof"], proof=True, most=100)
    desk = pool_of(decide, threads=6, suspects=suspects)
    put(desk, document("before", "U1"), document("proof", "U2"), again=True)
    eventually(lambda: decide.entered == ["proof"])
    put(desk, document("late", "U3"), again=False)
    # Both wait although five threads are idle.
    assert desk.pool.view.suspects() == "2 crash suspects, one runs alone"
    assert decide.entered == ["proof"]
    decide.gates["proof"].set()
    desk.wait_until_idle()
    assert decide.beside["proof"] == set()


class Written:
    """Poison on the real `progress`, with one task at a time."""

    def __init__(self, database: Db, decide: Callable[[Any], JobResult]) -> None:
        self.rows = database[PROGRESS]
        self._database = database
        self._decide = decide
        self.laters: list[Callable[[], None]] = []
        self.replaced: list[Replaced] = []

    def start(self, epoch: int) -> StartCounter:
        self.progress, start = took_over(self._database, epoch=epoch)
        return StartCounter(
            self.progress,
            start,
            decide=self._decide,
            later=lambda seconds, function: self.laters.append(function),
            step=lambda step: step(),
            replaced=self.replaced.append,
        )

    @property
    def row(self) -> dict[str, Any]:
        return self.rows.find_one() or {}


class Task:
    """As much of a task as is asked for."""

    def __init__(self, name: str, *, suspect: bool = True, key: str = "U1") -> None:
        self.name = name
        self.mailbox = Mailbox(("main", key))
        self.suspect = suspect
        self.given_up_for: Any = None

    def resume(self) -> None: ...


class Died(BaseException):
    """The process, at this place."""


def dies(task: Any) -> JobResult | Wait:
    raise Died


def test_a_death_beside_others_never_leads_to_a_dead_letter(database: Db) -> None:
    """Only a proof does, and only while nothing runs beside it."""
    written = Written(database, dies)
    two = [Trying(name, 1, datetime.now(UTC)) for name in ("a", "b")]
    written.start(1)
    for found, is_over, stored in ((two, False, 1), (two[:1], False, 2), (two[:1], True, 1)):
        written.progress.note_starts(6, *found)
        poison = written.start(1)
        released: list[bool] = []
        poison.limit_proof(lambda released=released: released.append(True))  # type: ignore[misc]
        assert len(written.laters) == (len(found) == 1)
        with pytest.raises(Died):
            poison.decide(Task("a"))
        if is_over:
            written.laters[0]()
        assert (written.row["trying"]["starts"], bool(released)) == (stored, is_over)
        written.laters.clear()


def test_many_starts_in_a_row_begin_later_and_later(database: Db) -> None:
    written = Written(database, lambda task: JobResult.DONE)
    waits = []
    for starts in (0, 8, 9, 10, 11, 100):
        written.start(1)._progress.note_starts(starts)
        waits.append(round(written.start(1).back_off_seconds))
    assert waits[:2] == [0, 0]
    assert 0 < waits[2] < waits[4] <= 4
    assert 12 <= waits[5] <= 15


def test_a_run_that_parks_keeps_the_count_for_the_next(database: Db) -> None:
    """A job that first waits for a profile kills the process only in its second run."""
    took_over(database)[0].note_starts(6, Trying("bad", 1, datetime.now(UTC)))
    runs: list[Any] = []

    def decide(task: Any) -> JobResult | Wait:
        runs.append(written.row["trying"]["starts"])
        return WAITS

    written = Written(database, decide)
    poison = written.start(2)
    poison.decide(Task("bad"))
    assert written.row["trying"] is None
    poison.decide(Task("bad"))
    assert runs == [2, 2]


def test_a_suspect_that_cannot_be_named_does_not_run(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    written = Written(database, lambda task: ran.append(task.name) or JobResult.DONE)

    def away(*_: Any) -> None:
        raise StoreUnavailable("away")

    poison = written.start(1)
    with monkeypatch.context() as patch:
        patch.setattr(Progress, "note_starts", away)
        wait = poison.decide(Task("e0"))
    assert isinstance(wait, Wait)
    assert (wait.why["code"], wait.seconds, ran) == ("suspect_not_stored", 1.0, [])
    assert poison.decide(Task("e0")) == JobResult.DONE
    assert written.row["starts"] == 1


def test_the_late_end_of_an_abandoned_run_clears_no_other_suspect(database: Db) -> None:
    """Its thread comes back while its job runs a second time, named by that run."""
    took_over(database)[0].note_starts(9)
    inside, back = threading.Event(), threading.Event()
    named: list[Any] = []

    def decide(task: Any) -> JobResult | Wait:
        if not inside.is_set():
            inside.set()
            assert back.wait(15)
            return WAITS
        back.set()
        first.join(15)
        named.append(written.row["trying"]["name"])
        return JobResult.DONE

    written = Written(database, decide)
    poison = written.start(2)
    first = threading.Thread(target=poison.decide, args=(Task("bad"),))
    first.start()
    assert inside.wait(15)
    poison.decide(Task("bad"))
    assert named == ["bad"]
    assert written.row["trying"] is None


# Whole dispatchers, of which a worker's mistake ends one after the other.


@pytest.fixture(autouse=True)
def _quick_looks(short_limits: dict[str, Any]) -> None:
    short_limits["supervise_seconds"] = 0.02


class Deadly(RecordingWorker):
    """Dies of some names, unless they are condemned; counts its runs."""

    def __init__(self, *names: str, slow: threading.Event | None = None) -> None:
        super().__init__(self._run)
        self._names = names
        self._slow = slow
        self.runs = Counter[str]()
        self.given_up_for: list[tuple[str, str]] = []

    def _run(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        self.runs[name] += 1
        if job.given_up_for is not None:
            self.given_up_for.append((name, job.given_up_for.cause))
            return JobResult.RECORDED
        if name in self._names:
            raise RuntimeError("as good as an abort")
        if name == "slow" and self._slow is not None:
            self._slow.wait(0.3)
        return JobResult.DONE


def test_poison_is_given_up_after_few_starts_and_its_neighbours_continue(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    given = [document("before", "U0"), document("bad", "U0"), document("behind", "U0")]
    given += [document("slow", "U1"), document("bad too", "U2"), *numbered(5, keys=5, prefix="n")]
    slow, starts = threading.Event(), 0
    decided: Counter[str] = Counter()
    given_up_for: list[tuple[str, str]] = []
    stored = False
    while len(set(decided)) < len(given) and starts < 20:
        starts += 1
        worker = Deadly("bad", "bad too", slow=slow)
        running = dispatch(database, worker)
        if not stored:
            store(database, *given)
            stored = True
        eventually(
            lambda running=running, worker=worker: (  # type: ignore[misc]
                not running.alive or len(set(decided) | set(worker.decided)) == len(given)
            )
        )
        ending = running.end(15 if running.alive else None)
        decided.update(worker.decided)
        given_up_for += worker.given_up_for
    assert sorted({(name, str(cause)) for name, cause in given_up_for}) == [
        ("bad", "poison"),
        ("bad too", "poison"),
    ]
    assert ending is ExitReason.STOPPED
    assert set(decided) == {name_of(one) for one in given}
    assert starts <= 11
    row = database[PROGRESS].find_one() or {}
    assert (row["starts"], row["trying"]) == (0, None)


def test_the_count_ends_with_the_last_suspect_not_with_the_first_save(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    """A neighbour's progress says nothing of the one that has yet to run."""
    hold = threading.Event()

    def act(job: Job) -> JobResult | Wait:
        if name_of(job.document) == "suspect":
            assert hold.wait(30)
        return JobResult.DONE

    took_over(database, epoch=0)[0].note_starts(1)
    store(database, document("suspect", "U1"), *numbered(5, keys=1, prefix="n"))
    worker = RecordingWorker(act)
    running = dispatch(database, worker)
    eventually(lambda: len((database[PROGRESS].find_one() or {})["finished"]) >= 5)
    assert (database[PROGRESS].find_one() or {})["starts"] == 2
    hold.set()
    eventually(lambda: (database[PROGRESS].find_one() or {})["starts"] == 0)
    assert running.end() is ExitReason.STOPPED


def test_starts_with_nothing_unfinished_do_not_count(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    """The cause of an idle process's death is no event: here it comes after all are decided."""
    # A start without a token scans, and treats documents stored meanwhile as older than itself.
    running = dispatch(database, RecordingWorker())
    eventually(lambda: told("recvq scanned, streaming from"))
    store(database, document("first"))
    eventually(lambda: (database[PROGRESS].find_one() or {}).get("token"))
    running.end()
    for n in range(1, 4):
        worker = RecordingWorker()
        running = dispatch(database, worker)
        eventually(lambda n=n: len(told("ready feed=")) == n + 1)  # type: ignore[misc]
        store(database, document(f"e{n}"))
        eventually(lambda n=n, worker=worker: f"e{n}" in worker.decided)  # type: ignore[misc]
        running.inbox.put(RuntimeError("killed"))
        assert running.end(None) is ExitReason.FAILED
        assert (database[PROGRESS].find_one() or {})["starts"] == 0


def test_documents_in_held_are_suspect_as_well(database: Db, dispatch: Dispatch) -> None:
    """It left the window long ago, and may have killed the process all the same."""
    named: list[Any] = []

    def act(job: Job) -> JobResult | Wait:
        named.append((database[PROGRESS].find_one() or {})["trying"]["name"])
        return JobResult.DONE

    took_over(database, epoch=0)[0].note_starts(2)
    given = document("held", "U1")
    row = {"_id": given["_id"], "n": 1, "key": "U1", "channel": "main", "document": given}
    database[HELD].insert_one({**row, "why": "set aside", "since": datetime.now(UTC)})
    running = dispatch(database, RecordingWorker(act))
    eventually(lambda: (database[PROGRESS].find_one() or {})["starts"] == 0)
    assert named == ["held"]
    assert running.end() is ExitReason.STOPPED
