"""How a dispatcher handles the progress and the lease that an import leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pymongo.database import Database

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.commit.tracker import RING_SLOTS
from linedesk.backup.queue import finish_recvq
from linedesk.backup.restore import LeaseHold
from linedesk.store.documents import Document
from tests.dispatcher.conftest import Dispatch
from tests.dispatcher.fakes import RecordingWorker, document, numbered
from tests.waiting import eventually


@pytest.mark.parametrize("stored", [0, 3, RING_SLOTS + 200])
def test_a_recvq_that_was_skipped_is_passed_over_and_what_comes_then_is_handled(
    database: Database[Document], dispatch: Dispatch, store: Callable[..., None], stored: int
) -> None:
    store(database, *numbered(stored))
    Progress(Committer(database), feed="", epoch=0).take_over()
    finish_recvq(database, epoch=0)
    store(database, document("new"))
    worker = RecordingWorker()
    dispatch(database, worker)
    eventually(lambda: "new" in worker.decided)
    store(database, document("newer"))
    eventually(lambda: "newer" in worker.decided)
    assert worker.decided == ["new", "newer"]


def test_a_dispatcher_that_starts_during_an_import_waits_for_its_end(
    database: Database[Document], dispatch: Dispatch, told: Callable[[str], list[str]]
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
