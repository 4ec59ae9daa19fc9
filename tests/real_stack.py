"""A stage for tests of bots with every real part: mongod, front desk and dispatcher, and linesim in
the tests' process.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import linesim
from linedesk.launch.stage import Stage
from linedesk.setup.private_mongod import MongodNotFound
from linedesk.store.collections import DISPATCHER
from linedesk.store.records.effects import WITH_OUTBOX
from linedesk.store.records.timers import RUN_AT
from tests.conftest import missing

# The number of newest documents that are checked for completion; `progress` lists a thousand.
NEWEST = 500
WAITING: Mapping[str, Any] = {RUN_AT: {"$ne": None}}
SETTINGS = {
    "LINE_ACCESS_INTERVAL_MS": "0",
    "HANDLER_TRIES": "1",
    # A replaced dispatcher has no documents under way.
    "DRAIN_SECONDS": "2",
}


class RealStack(Stage):
    """A stage for one test at a time."""

    def clear(self) -> None:
        """Delete what the test before left."""
        for name in ("schedule", "deadletters", "conversations"):
            self.database[name].delete_many({})

    def wait_until_quiet(self) -> None:
        """Wait until no work is under way; raises DemoFailed after a time-out."""
        self.wait_for(self._is_quiet, "dispatcher")

    def move_to(self, moment: datetime) -> None:
        """Move the clock ahead, with a stop at each timer on the way."""
        while (now := self.now()) < moment:
            due = self.database["schedule"].find_one(WAITING, sort=[(RUN_AT, 1)])
            stop = min(due[RUN_AT], moment) if due else moment
            self.sim.advance(max(0.0, (stop - now) / timedelta(seconds=1)))
            self.wait_until_quiet()

    def _is_quiet(self) -> bool:
        """Whether all that was stored is finished, every outbox is empty, and no timer is due."""
        # Work moves from recvq to the outboxes, from there to `schedule`, and back to recvq, so
        # recvq is checked once more at the end.
        stored = self._stored()
        progress = self.database["progress"].find_one({"_id": DISPATCHER}) or {}
        return (
            stored <= {*progress.get("ring", ()), *progress.get("finished", ())}
            and self.database["conversations"].find_one(WITH_OUTBOX) is None
            and self.database["schedule"].find_one({RUN_AT: {"$lte": self.now()}}) is None
            and self._stored() == stored
        )

    def _stored(self) -> set[Any]:
        """The newest documents of recvq."""
        recvq = self.database["recvq"].find({"heartbeat": None}, {"_id": 1})
        return {document["_id"] for document in recvq.sort("$natural", -1).limit(NEWEST)}


@contextmanager
def real_stack() -> Iterator[RealStack]:
    """Run the stack, and remove all traces afterwards. Without mongod the test is skipped."""
    with (
        tempfile.TemporaryDirectory(prefix="linedesk-tests-") as folder,
        linesim.running(rate_limits=False) as sim,
        RealStack(Path(folder), sim, settings=SETTINGS) as stack,
    ):
        try:
            stack.start_mongod()
        except MongodNotFound as error:
            missing(str(error))
        yield stack
