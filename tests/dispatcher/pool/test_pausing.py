"""A paused key rests and stops no other; a released event is given up. All orders are forced."""

import pytest

from dispatcher.commit.committer import Change
from dispatcher.commit.tracker import ProgressSnapshot
from dispatcher.conversations.mailbox import MANY, Job, JobResult, Wait
from dispatcher.pool.suspects import CrashSuspects
from linedesk.store.control import NO_PAUSES, Pause, Pauses, Scope
from linedesk.store.documents import HELD, Document, name_of
from linedesk.store.records.letters import RELEASED
from tests.dispatcher.conftest import Begin, DeskOfPool, MakePool
from tests.dispatcher.fakes import WAITS, Holder, RecordingWorker, document, numbered
from tests.dispatcher.leader_terms import Gates
from tests.rows import Db
from tests.waiting import eventually


def paused(*scopes: str) -> Pauses:
    return Pauses(tuple(Pause(Scope.parse(one)) for one in scopes))


def held(database: Db) -> list[Document]:
    return list(database[HELD].find().sort("n", 1))


def saved(desk: DeskOfPool) -> bool:
    desk.save()
    return True


def until_idle(desk: DeskOfPool) -> None:
    """As `wait_until_idle`, with a saver at work."""
    eventually(lambda: saved(desk) and len(desk.tracker) == 0)


class GivingUp:
    """A `decide` that gives up condemned events, and parks one until it is resumed."""

    def __init__(self, parking: str) -> None:
        self._parking = parking
        self.entered: list[str] = []
        self.jobs: dict[str, Job] = {}
        self.given_up: list[str] = []

    def __call__(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        self.jobs[name] = job
        if job.given_up_for is not None:
            assert job.given_up_for.cause == RELEASED
            self.given_up.append(name)
            return JobResult.RECORDED
        self.entered.append(name)
        return WAITS if name == self._parking else JobResult.DONE

    def wait_until_deferred(self, name: str) -> None:
        eventually(lambda: name in self.jobs and self.jobs[name].is_deferred)  # type: ignore[attr-defined]


@pytest.mark.parametrize("scope", ["main/U1", "main", "all"])
def test_a_key_paused_while_it_waits_for_a_thread_gets_none(pool_of: MakePool, scope: str) -> None:
    busy = Holder("busy")
    worker = RecordingWorker(busy)
    desk = pool_of(worker.decide, threads=2)
    elsewhere = {**document("elsewhere", "U1"), "channel": "second"}
    desk.put(document("busy", "U0"))
    busy.wait_until_held("busy")
    desk.put(document("e1", "U1"), elsewhere)
    desk.pool.obey(paused(scope))
    busy.let_go()
    expected = ["busy"] if scope == "all" else ["busy", "elsewhere"]
    eventually(lambda: worker.decided == expected)
    desk.put(document("new", "U1"))
    eventually(
        lambda: desk.pool.view.in_hand()["waiting_keys"]["paused"] == (2 if scope == "all" else 1)
    )
    desk.pool.obey(paused("third", "main/U7"))
    desk.wait_until_idle()
    assert [name for name in worker.by_key["U1"] if name != "elsewhere"] == ["e1", "new"]


def test_a_deferred_job_of_a_paused_key_is_not_tried_again_before_it_is_resumed(
    pool_of: MakePool,
) -> None:
    gates = Gates("U0")
    worker = RecordingWorker(gates)
    desk = pool_of(worker.decide)
    desk.put(*numbered(2))
    eventually(lambda: gates.deferred and gates.deferred[0].is_deferred)  # type: ignore[attr-defined]
    desk.pool.obey(paused("main"))
    gates.release()
    desk.put({**document("other", "U1"), "channel": "second"})
    eventually(lambda: worker.decided == ["other"])
    desk.pool.obey(NO_PAUSES)
    desk.wait_until_idle()
    assert worker.decided == ["other", "e0", "e1"]


def test_however_often_it_is_paused_and_resumed_each_key_is_decided_in_order_and_once(
    pool_of: MakePool,
) -> None:
    worker = RecordingWorker()
    desk = pool_of(worker.decide, threads=8)
    given = numbered(600, keys=3)
    for n in range(0, 600, 12):
        desk.pool.obey(paused("main/U0", ["all", "main/U1", "main"][n // 12 % 3]))
        desk.put(*given[n : n + 12])
        desk.pool.obey(NO_PAUSES if n % 24 else paused("main/U2"))
    desk.pool.obey(NO_PAUSES)
    until_idle(desk)
    for key in range(3):
        assert worker.by_key[f"U{key}"] == [f"e{n}" for n in range(600) if n % 3 == key]


def test_a_paused_key_is_held_and_progress_continues(database: Db, begin: Begin) -> None:
    worker = RecordingWorker()
    one = begin(database, worker.decide, after_seconds=60.0, pauses=paused("main/U0"))
    given = numbered(MANY * 3, keys=2)
    one.put(*given)
    one.hold_until(len(given) // 2)
    eventually(lambda: one.save() and len(worker.decided) == len(given) // 2)
    assert one.save()
    assert one.tracker.after == given[-1]["_id"]
    assert {(row["key"], row["why"]["code"]) for row in held(database)} == {("U0", "paused")}
    assert one.pool.view.in_hand()["waiting_keys"]["paused"] == 1
    # Later documents queue up behind it, whether it is held by then or not.
    one.put(document("late", "U0"), first=len(given))
    one.pool.obey(NO_PAUSES)
    eventually(lambda: one.save() and len(worker.by_key["U0"]) == len(given) // 2 + 1)
    in_order = [f"e{n}" for n in range(0, len(given), 2)]
    assert worker.by_key["U0"] == [*in_order, "late"]
    eventually(lambda: one.save() and not held(database))


@pytest.mark.parametrize("again", [False, True], ids=["resumed", "and paused again"])
def test_a_key_may_be_resumed_while_its_documents_are_on_their_way_into_held(
    database: Db, begin: Begin, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    worker = RecordingWorker()
    one = begin(database, worker.decide, after_seconds=60.0, pauses=paused("main/U0"))
    one.put(*numbered(5))
    make = one.progress.changes

    def resumed_meanwhile(snapshot: ProgressSnapshot | None) -> list[Change]:
        if snapshot is not None and snapshot.rows:
            one.pool.obey(NO_PAUSES)
            assert worker.decided == []
            if again:
                one.pool.obey(paused("main"))
        return make(snapshot)

    with monkeypatch.context() as patch:
        patch.setattr(one.progress, "changes", resumed_meanwhile)
        assert one.hold()
    if again:
        assert one.pool.view.in_hand()["waiting_keys"]["paused"] == 1
        assert worker.decided == []
        one.pool.obey(NO_PAUSES)
    eventually(lambda: one.save() and len(worker.decided) == 5)
    assert worker.decided == [f"e{n}" for n in range(5)]
    eventually(lambda: one.save() and not held(database))


def test_a_successor_knows_the_pauses_before_it_decides_what_is_held(
    database: Db, begin: Begin
) -> None:
    first = begin(database, RecordingWorker().decide, pauses=paused("main"))
    first.put(*numbered(6, keys=2))
    first.hold_until(6)
    first.kill()
    worker = RecordingWorker()
    second = begin(database, worker.decide, epoch=2, pauses=paused("main/U0"))
    second.put(document("late", "U0"), first=6)
    eventually(lambda: second.save() and len(worker.decided) == 3)
    assert worker.decided == ["e1", "e3", "e5"]
    second.hold_until(4)
    second.pool.obey(NO_PAUSES)
    eventually(lambda: second.save() and len(worker.decided) == 7)
    assert worker.by_key["U0"] == ["e0", "e2", "e4", "late"]


def until_given_up(desk: DeskOfPool, name: str) -> None:
    """As the thread that reads `control` does: asks until it is over."""
    eventually(lambda: not desk.pool.give_up("main", "U0", name))


def test_a_release_does_not_resume_what_is_paused(pool_of: MakePool) -> None:
    decide = GivingUp("e0")
    desk = pool_of(decide)
    desk.put(*numbered(3))
    decide.wait_until_deferred("e0")
    desk.pool.obey(paused("main/U0"))
    until_given_up(desk, "e0")
    eventually(lambda: desk.pool.view.in_hand()["waiting_keys"]["paused"] == 1)
    assert (decide.given_up, decide.entered) == (["e0"], ["e0"])
    # It also stays if the first one never ran.
    until_given_up(desk, "e1")
    eventually(lambda: desk.pool.view.in_hand()["waiting_keys"]["paused"] == 1)
    assert (decide.given_up, decide.entered) == (["e0", "e1"], ["e0"])
    desk.pool.obey(NO_PAUSES)
    desk.wait_until_idle()
    assert decide.entered == ["e0", "e2"]


def test_only_the_first_in_line_is_given_up(pool_of: MakePool) -> None:
    decide = GivingUp("e0")
    desk = pool_of(decide)
    desk.put(*numbered(3))
    decide.wait_until_deferred("e0")
    assert not desk.pool.give_up("main", "U0", "e1")
    assert not desk.pool.give_up("main", "U7", "e0")
    assert not desk.pool.give_up("second", "U0", "e0")
    until_given_up(desk, "e0")
    desk.wait_until_idle()
    assert not desk.pool.give_up("main", "U0", "e0")
    assert decide.given_up == ["e0"]


def test_a_release_waits_until_all_that_was_stored_before_the_start_is_read(
    pool_of: MakePool,
) -> None:
    decide = GivingUp("e1")
    desk = pool_of(decide, suspects=CrashSuspects(most=10))
    assert desk.pool.give_up("main", "U0", "e1")
    # A predecessor's decision comes before it; only a look-up distinguishes it.
    desk.pool.obey(paused("main/U0"))
    first, second = numbered(2)
    desk.put(first, again=True)
    assert desk.pool.give_up("main", "U0", "e1")
    desk.put(second, again=True)
    desk.pool.move(1)
    assert desk.pool.give_up("main", "U0", "e1")
    assert not desk.pool.give_up("main", "U0", "elsewhere")
    desk.pool.obey(NO_PAUSES)
    decide.wait_until_deferred("e1")
    until_given_up(desk, "e1")
    desk.wait_until_idle()
    assert (decide.given_up, decide.entered) == (["e1"], ["e0", "e1"])
