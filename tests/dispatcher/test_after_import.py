"""How a dispatcher handles the progress and the lease that an import leaves."""

from collections.abc import Callable
from typing import Any

from linedesk.backup.restore import LeaseHold
from tests.dispatcher.conftest import Dispatch
from tests.dispatcher.fakes import RecordingWorker
from tests.rows import Db
from tests.waiting import eventually


def test_a_dispatcher_that_starts_during_an_import_waits_for_its_end(
    database: Db, dispatch: Dispatch, told: Callable[[str], list[str]]
) -> None:
    hold = LeaseHold(database, owner="elsewhere/1/1")
    hold.take(above=1_000, take_over=False)
    hold.begin()
    running: Any = dispatch(database, RecordingWorker())
    eventually(lambda: told("standby: an import that has not ended holds the lease"))
    assert not told("lease acquired")
    hold.release()
    eventually(lambda: told("ready"))
    assert told("lease acquired") == [f"lease acquired epoch={hold.epoch + 1}"]
    assert running.alive
