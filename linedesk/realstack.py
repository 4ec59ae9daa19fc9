"""The real processes for tests of bots: mongod, front desk and dispatcher in a folder of their own,
and linesim in the process of the tests.

Started once for any number of tests; the dispatcher is started anew for another bot.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from os import pathsep
from pathlib import Path
from typing import Any

import linesim
from linedesk import children
from linedesk.errors import DemoFailed
from linedesk.stage import DATABASE, DISPATCHER_READY, STOP_SECONDS, Stage
from linedesk.supervisor import Signals
from linesim import Sim
from recvq.collections import DISPATCHER
from recvq.documents import Document

# So many of recvq are looked at for being finished; `progress` names a thousand.
NEWEST = 500
# A dispatcher that is replaced has nothing in hand.
DRAIN_SECONDS = 2


class RealStack(Stage):
    """Runs between `start` and its end as a context manager; one test at a time."""

    def __init__(self, folder: Path, sim: Sim) -> None:
        super().__init__(folder, bot="", signals=Signals())
        self.sim = sim
        self.linesim_url = sim.url
        sim.webhook_url = f"{self.frontdesk_url}/callback"
        self._playing: tuple[str, str, str] | None = None
        self._tests = 0

    def start(self) -> None:
        """Everything but the dispatcher, which `play` starts; raises DemoFailed."""
        self.start_mongod()
        self._start("frontdesk", ["--verbose"], self._environ())

    def play(self, bot: str, settings: Mapping[str, Any], secrets: Mapping[str, str]) -> int:
        """Have the dispatcher run this bot (`module:name`); returns the number of the test."""
        told = ", ".join(f"{name}={_told(value)}" for name, value in settings.items())
        hidden = "\n".join(f"{name}={value}" for name, value in secrets.items())
        if self._playing != (bot, told, hidden):
            self._playing = None
            if "dispatcher" in self._processes:
                process = self._processes.pop("dispatcher")
                children.stop(process, timeout_seconds=STOP_SECONDS["dispatcher"])
            environ = {**self._environ(), "BOT": bot, "BOT_SETTINGS": told}
            environ["BOT_SECRETS"] = hidden
            self._start("dispatcher", ["--verbose"], environ)
            self.wait_for(lambda: self._answers(f"{self.frontdesk_url}/readyz"), "frontdesk")
            self.wait_for(lambda: DISPATCHER_READY in self.log_of("dispatcher"), "dispatcher")
            self._playing = bot, told, hidden
        self._tests += 1
        return self._tests

    def deliver(self, event: Document) -> None:
        """LINE sends an event; returns when it and all that follows at once from it is done."""
        delivery = self.sim.deliver(event)
        if delivery.status != 200:
            said = delivery.status or delivery.error
            raise DemoFailed(self._with_log(f"a webhook was not stored: {said}", "frontdesk"))
        self.wait_until_quiet()

    def wait_until_quiet(self) -> None:
        """Wait until nothing is on its way; raises DemoFailed where that does not end."""
        self.wait_for(self.is_quiet, "dispatcher")

    def now(self) -> datetime:
        """Bot time."""
        return datetime.fromtimestamp(self.sim.platform.read(lambda p: p.clock.time()), UTC)

    def move_to(self, moment: datetime) -> None:
        """Move the clock ahead to a moment; where that is past, it stays."""
        seconds = (moment - self.now()) / timedelta(seconds=1)
        if seconds > 0:
            self.sim.advance(seconds)
        self.wait_until_quiet()

    def next_due(self) -> datetime | None:
        """When a timer rings next; None where none waits."""
        rows = self.collection("schedule").find(WAITING).sort("runAt", 1).limit(1)
        return next((row["runAt"] for row in rows), None)

    def forget_timers(self) -> None:
        """No timer of a test that is over rings in the next one."""
        self.collection("schedule").delete_many({})

    def take_letters(self) -> list[Document]:
        """What was given up since the last time."""
        letters = list(self.collection("deadletters").find())
        self.collection("deadletters").delete_many(
            {"_id": {"$in": [one["_id"] for one in letters]}}
        )
        return letters

    def collection(self, name: str) -> Any:
        """One of the database."""
        assert self._client is not None
        return self._client[DATABASE][name]

    def is_quiet(self) -> bool:
        """Whether all that was stored is finished, every outbox is empty, and no timer is due."""
        # What is in recvq goes to the outboxes, from there to `schedule`, and back to recvq: so it
        # is looked at last once more.
        stored = self._stored()
        progress = self.collection("progress").find_one({"_id": DISPATCHER}) or {}
        return (
            stored <= {*progress.get("ring", ()), *progress.get("finished", ())}
            and self.collection("conversations").find_one({"pending.0": {"$exists": True}}) is None
            and self.collection("schedule").find_one({"runAt": {"$lte": self.now()}}) is None
            and self._stored() == stored
        )

    def _stored(self) -> set[Any]:
        """The newest documents of recvq."""
        recvq = self.collection("recvq").find({"heartbeat": None}, {"_id": 1})
        return {document["_id"] for document in recvq.sort("$natural", -1).limit(NEWEST)}

    def _environ(self) -> dict[str, str]:
        return super()._environ() | {
            "LINE_CHANNEL_SECRET": self.sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": self.sim.token,
            "LINE_ACCESS_INTERVAL_MS": "0",
            "HANDLER_TRIES": "1",
            "DRAIN_SECONDS": str(DRAIN_SECONDS),
            # Bots are found as pytest finds them, behind all that is installed.
            "PYTHONPATH": pathsep.join(sorted(sys.path, key=_is_of_tests)),
        }


def _is_of_tests(folder: str) -> bool:
    """Whether pytest put it into sys.path: it is neither ours nor of this Python."""
    others = (Path(__file__).parents[1], sys.prefix, sys.base_prefix)
    return not any(Path(folder).is_relative_to(other) for other in others)


WAITING: Mapping[str, Any] = {"runAt": {"$ne": None}}


@contextmanager
def real_stack() -> Iterator[RealStack]:
    """Start it, and leave nothing behind."""
    with (
        tempfile.TemporaryDirectory(prefix="linedesk-tests-") as folder,
        linesim.running(rate_limits=False) as sim,
    ):
        stack = RealStack(Path(folder), sim)
        with stack:
            stack.start()
            yield stack


def _told(value: Any) -> str:
    """A bot's setting as an operator writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
