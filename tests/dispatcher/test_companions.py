"""A whole dispatcher with the thread that fires timers."""

from datetime import UTC, datetime

from dispatcher.timers import Timers
from linedesk.store.timers import timer_id
from tests.dispatcher.conftest import Dispatch, Store
from tests.dispatcher.fakes import RecordingWorker, document
from tests.rows import Db
from tests.waiting import eventually


def test_a_timer_that_is_due_is_decided_in_the_order_of_its_conversation(
    database: Db, dispatch: Dispatch, store: Store
) -> None:
    row = {"channel": "main", "key": "U1", "name": "tea", "n": 1, "every": None, "data": {}}
    worker = RecordingWorker()
    timers = Timers(database, lease_is_fresh=lambda: True)
    dispatch(database, worker, components=[timers])
    store(database, document("before", user="U1"))
    eventually(lambda: worker.decided)
    now = datetime.now(UTC)
    database.schedule.insert_one(row | {"_id": timer_id("main", "U1", "tea"), "runAt": now})
    timers.set(now)
    eventually(lambda: len(worker.decided) == 2)
    store(database, document("after", user="U1"))
    eventually(lambda: len(worker.decided) == 3)
    before, ring, after = worker.by_key["U1"]
    assert (before, after) == ("before", "after")
    assert ring.startswith("timer:main/U1/tea:1:")
