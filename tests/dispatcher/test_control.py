"""A whole dispatcher obeys the orders in `control`, across restarts and outages of it."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dispatcher.control import ControlReader
from dispatcher.conversations.mailbox import Job, JobResult, Wait
from linedesk.operate.acts import OperatorControl
from linedesk.store.control import NOTHING_STUCK, Scope
from linedesk.store.documents import CONTROL, DEADLETTERS, HELD, Document, name_of
from linedesk.store.records.letters import Cause
from tests.dispatcher.conftest import DeskOfPool, Dispatch, Store, Told
from tests.dispatcher.fakes import RecordingWorker, document, numbered
from tests.dispatcher.faults import failing
from tests.listener import Listener
from tests.rows import Db
from tests.waiting import eventually

SavedUpTo = Callable[..., None]

DROPPED = Cause("dropped", {"by": "hanako"})


def a_letter(id_: str) -> Document:
    return {"code": "event_is_letter", "id": id_}


@pytest.fixture(autouse=True)
def _quickly(short_limits: dict[str, Any]) -> None:
    short_limits.update(control_seconds=0.02, paused_after_seconds=0.0)


class Burying:
    """A `decide` whose handler hangs at the given name; a condemned event becomes a letter."""

    def __init__(self, database: Db, hanging: str) -> None:
        self._letters = database[DEADLETTERS]
        self._hanging = hanging
        self._gate = threading.Event()
        self.entered = threading.Event()

    def __call__(self, job: Job) -> JobResult | Wait:
        name = name_of(job.document)
        if job.given_up_for is not None:
            self._letters.insert_one({"_id": name, "cause": job.given_up_for.cause.code})
            return JobResult.RECORDED
        handling = job.begin_handler()
        if name == self._hanging:
            self.entered.set()
            self._gate.wait(30)
        handling.end()
        return JobResult.DONE

    def let_go(self) -> None:
        self._gate.set()


def test_a_pause_holds_across_restarts_and_stops_no_other_key(
    database: Db, dispatch: Dispatch, store: Store, saved_up_to: SavedUpTo, told: Told
) -> None:
    control, worker = OperatorControl(database), RecordingWorker()
    service = Listener()
    running = dispatch(database, worker, service=service)
    assert control.pause(Scope("main", "U0"), by="taro", why="spam")
    eventually(lambda: told("paused scope=main/U0 by=taro"))
    assert not told("spam")
    given = numbered(6, keys=2)
    store(database, *given)
    saved_up_to(database, given[-1]["_id"])
    assert worker.decided == ["e1", "e3", "e5"]
    assert database[HELD].count_documents({"key": "U0", "why.code": "paused"}) == 3
    assert running.dispatcher.watchdog.stalled() is None
    eventually(lambda: service.says("alive", " · paused: main/U0"))
    running.end()
    # Nothing was decided by a successor before it had read the pauses, at once or later.
    store(database, document("new", "U0"), document("other", "U1"))
    worker = RecordingWorker()
    running = dispatch(database, worker)
    eventually(lambda: worker.decided == ["other"])
    eventually(lambda: database[HELD].count_documents({}) == 4)
    assert control.resume(Scope("main", "U0"))
    eventually(lambda: worker.by_key["U0"] == ["e0", "e2", "e4", "new"])
    assert told("resumed scope=main/U0")
    eventually(lambda: database[HELD].find_one() is None)
    running.end()


def test_while_control_cannot_be_read_the_last_orders_apply(
    database: Db, dispatch: Dispatch, store: Store, told: Told
) -> None:
    control, worker = OperatorControl(database), RecordingWorker()
    control.pause(Scope("main", "U0"), by="taro")
    running = dispatch(database, worker)
    eventually(lambda: told("ready "))
    where = f"{database.name}.control"
    with failing(database.client, ["find"], namespace=where, errorCode=50):
        eventually(lambda: told("orders not read or not settled, trying again"))
        store(database, *numbered(2, keys=2))
        eventually(lambda: worker.decided == ["e1"])
        eventually(lambda: database[HELD].count_documents({}) == 1)
    control.resume(Scope("main", "U0"))
    eventually(lambda: worker.decided == ["e1", "e0"])
    assert len(told("MongoDB cannot be used")) == 1
    running.end()


def test_a_released_event_is_given_up_and_the_next_continues(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    control, bury = OperatorControl(database), Burying(database, "e0")
    worker = RecordingWorker(bury)
    running = dispatch(database, worker)
    store(database, *numbered(3))
    assert bury.entered.wait(15)
    release = control.release("main", "U0", {"eventId": "e0"}, by="taro")
    assert eventually(lambda: control.outcome_of(release)) == a_letter("e0")
    eventually(lambda: worker.decided == ["e0", "e1", "e2"])
    release = control.release("main", "U0", {"eventId": "e0"}, by="taro")
    assert eventually(lambda: control.outcome_of(release)) == a_letter("e0")
    release = control.release("main", "U0", {"eventId": "e2"}, by="taro")
    assert eventually(lambda: control.outcome_of(release)) == {"code": NOTHING_STUCK}
    bury.let_go()
    running.end()


def test_a_release_left_by_one_process_is_carried_out_by_the_next(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    control = OperatorControl(database)
    control.pause(Scope(), by="taro")
    running = dispatch(database, RecordingWorker())
    store(database, *numbered(2))
    eventually(lambda: database[HELD].count_documents({}) == 2)
    running.end()
    release = control.release("main", "U0", {"eventId": "e0"}, by="taro")
    store(database, document("new", "U1"))
    of_new = control.release("main", "U1", {"eventId": "new"}, by="taro")
    worker = RecordingWorker(Burying(database, ""))
    running = dispatch(database, worker)
    assert eventually(lambda: control.outcome_of(release)) == a_letter("e0")
    # No process had it yet as this one began, and it is read only then.
    assert eventually(lambda: control.outcome_of(of_new)) == a_letter("new")
    assert sorted(worker.decided) == ["e0", "new"]
    assert control.read().covers("main", "U0")
    running.end()


class Giving:
    """A `decide` that notes which events run, and which are given up and why."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.dropped: list[tuple[str, str]] = []

    def __call__(self, job: Job) -> JobResult | Wait:
        if job.given_up_for is None:
            self.ran.append(name_of(job.document))
            return JobResult.DONE
        self.dropped.append((name_of(job.document), job.given_up_for.cause))
        return JobResult.RECORDED


def wait_until_after(database: Db) -> None:
    """Until what is stored comes after the drop: times are stored in whole milliseconds."""
    row = database[CONTROL].find_one({"act": "drop"})
    assert row is not None
    eventually(lambda: datetime.now(UTC) - row["drop"]["at"] >= timedelta(milliseconds=1))


@pytest.mark.parametrize("scope", ["all", "main", "main/U0"])
def test_a_resume_that_drops_gives_up_what_was_stored_before_it_and_runs_what_comes_after(
    database: Db, dispatch: Dispatch, store: Store, scope: str
) -> None:
    control, orders = OperatorControl(database), Scope.parse(scope)
    giving = Giving()
    control.pause(orders, by="taro")
    running = dispatch(database, RecordingWorker(giving))
    store(database, *numbered(120))
    eventually(lambda: database[HELD].count_documents({}) == 120, seconds=60)
    assert control.resume(orders, drop_by="hanako")
    wait_until_after(database)
    store(database, document("new", "U0"), document("other", "U1"))
    eventually(lambda: sorted(giving.ran) == ["new", "other"], seconds=60)
    assert giving.dropped == [(f"e{n}", DROPPED) for n in range(120)]
    assert not control.resume(orders, drop_by="hanako"), "the pause is over"
    running.end()


def test_a_drop_is_known_to_a_new_process_before_its_first_event(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    control = OperatorControl(database)
    control.pause(Scope(), by="taro")
    running = dispatch(database, RecordingWorker())
    store(database, *numbered(3))
    eventually(lambda: database[HELD].count_documents({}) == 3)
    running.end()
    control.resume(Scope(), drop_by="hanako")
    wait_until_after(database)
    # Not read by any process yet, but stored after the act.
    store(database, document("new", "U0"))
    giving = Giving()
    running = dispatch(database, RecordingWorker(giving))
    eventually(lambda: giving.ran == ["new"])
    assert [name for name, _ in giving.dropped] == ["e0", "e1", "e2"]
    running.end()


def test_a_new_pause_stops_a_drop_until_its_own_end(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    control, giving, scope = OperatorControl(database), Giving(), Scope("main", "U0")
    control.pause(scope, by="taro")
    running = dispatch(database, RecordingWorker())
    store(database, *numbered(2))
    eventually(lambda: database[HELD].count_documents({}) == 2)
    running.end()
    control.resume(scope, drop_by="hanako")
    control.pause(scope, by="jiro")
    running = dispatch(database, RecordingWorker(giving))
    store(database, document("new", "U0"))
    eventually(lambda: database[HELD].count_documents({}) == 3)
    assert giving.ran == giving.dropped == []
    assert control.resume(scope)
    eventually(lambda: giving.ran == ["new"])
    assert [name for name, _ in giving.dropped] == ["e0", "e1"]
    running.end()


class OfLease:
    """A lease that is fresh or not."""

    def __init__(self) -> None:
        self.fresh = True

    def is_fresh(self) -> bool:
        return self.fresh


@pytest.fixture
def by_hand(
    database: Db, pool_of: Callable[..., DeskOfPool]
) -> tuple[OperatorControl, RecordingWorker, OfLease, ControlReader]:
    worker, lease, control = RecordingWorker(), OfLease(), OperatorControl(database)
    ordered = pool_of(worker.decide).pool
    return control, worker, lease, ControlReader(control, ordered, worker, lease)  # type: ignore[arg-type]


ByHand = tuple[OperatorControl, RecordingWorker, OfLease, ControlReader]


def test_a_send_is_asked_for_until_it_is_given_up(by_hand: ByHand, database: Db) -> None:
    control, worker, _, obedience = by_hand
    release = control.release("main", "U0", {"effectId": "e0/0"}, by="taro")
    worker.gives_up_sends = True
    obedience.look()
    obedience.look()
    assert worker.sends_to_give_up == [("main", "U0", "e0/0")] * 2
    assert control.outcome_of(release) is None
    worker.gives_up_sends = False
    database[DEADLETTERS].insert_one({"_id": "e0/0"})
    obedience.look()
    assert control.outcome_of(release) == {"code": "send_is_letter", "id": "e0/0"}
    obedience.look()
    assert len(worker.sends_to_give_up) == 3


def test_without_the_lease_nothing_is_given_up_or_settled(by_hand: ByHand) -> None:
    """Its successor may already have the stuck event."""
    control, worker, lease, obedience = by_hand
    release = control.release("main", "U0", {"effectId": "e0/0"}, by="taro")
    lease.fresh = False
    obedience.look()
    assert worker.sends_to_give_up == []
    assert control.outcome_of(release) is None
