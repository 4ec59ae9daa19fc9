"""A stage for tests of bots with every real part: mongod, front desk and dispatcher, and linesim in
the tests' process.
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import linesim
from linedesk.launch.sim_clock import is_done
from linedesk.launch.stage import Stage
from linedesk.setup.private_mongod import MongodNotFound
from tests.conftest import missing

SETTINGS = {
    "LINE_ACCESS_INTERVAL_MS": "0",
    "HANDLER_TRIES": "1",
    # A replaced dispatcher has no documents under way.
    "DRAIN_SECONDS": "2",
}


class RealStack(Stage):
    """A stage for one test at a time."""

    def play(self, bot: str, **settings: str) -> None:
        super().play(bot, **settings)
        self.wait_for(lambda: self.sim.stops.is_followed, "dispatcher")

    def clear(self) -> None:
        """Delete what the test before left."""
        for name in ("schedule", "deadletters", "conversations"):
            self.database[name].delete_many({})

    def wait_until_quiet(self) -> None:
        """Wait until no work is under way; raises DemoFailed after a time-out."""
        self.wait_for(lambda: is_done(self.database, self.now()), "dispatcher")

    def move_to(self, moment: datetime) -> None:
        """Move the clock ahead, with a stop at each timer on the way."""
        self.sim.stops.advance((moment - self.now()) / timedelta(seconds=1))
        self.wait_until_quiet()


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
