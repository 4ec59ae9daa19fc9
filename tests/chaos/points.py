"""Points on the way of a call at which a run stops or kills a dispatcher.

The suite's bot installs them in each dispatcher. An order for a point is a file in a folder that
the run and the dispatchers share: the first thread at that point removes it and stops or kills its
process. A file names a stopped process until it continues.
"""

import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from dispatcher.commit.committer import Committer
from jobworker.line.client import LineClient
from jobworker.record.batches import Batches
from jobworker.record.conversations import ConversationStore

FOLDER = "CHAOS_POINTS"
STOP, KILL = "stop", "kill"

# A group of writes, a call of one conversation, one of many, and a take-over: each once its part is
# done, or before it begins.
POINTS: Mapping[str, tuple[type, str, bool]] = {
    "a group begins": (Committer, "_transact", False),
    "a group is sent": (Committer, "_send", True),
    "a group is committed": (Committer, "_transact", True),
    "a record is durable": (ConversationStore, "recorded", True),
    "the call is set": (ConversationStore, "note_call", True),
    "LINE is called": (LineClient, "post", False),
    "LINE has answered": (LineClient, "post", True),
    "the end of the call is left": (ConversationStore, "end_later", True),
    "the call is unset": (ConversationStore, "end_call", True),
    "the batch is made": (Batches, "make", True),
    "it is about to end": (Batches, "end", False),
    "it has ended": (Batches, "end", True),
    "it is taken over": (Batches, "unfinished", True),
    "a predecessor's outboxes are read": (ConversationStore, "outboxes", True),
}


def install() -> None:
    """Make this process check for orders at each point, if a run requires it."""
    folder = os.environ.get(FOLDER)
    if folder:
        for number, (owner, name, is_after) in enumerate(POINTS.values()):
            _wrap(owner, name, Path(folder) / str(number), is_after=is_after)


def _wrap(owner: type, name: str, order: Path, *, is_after: bool) -> None:
    method: Callable[..., Any] = getattr(owner, name)

    def then(*args: Any, **kwargs: Any) -> Any:
        if not is_after:
            _come_by(order)
        done = method(*args, **kwargs)
        if is_after:
            _come_by(order)
        return done

    setattr(owner, name, then)


def _come_by(order: Path) -> None:
    if not order.exists():
        return
    taken = order.with_name(f"{order.name}-{os.getpid()}-{time.monotonic_ns()}")
    try:
        order.rename(taken)
    except OSError:
        # Another thread or process was first.
        return
    if taken.read_text() == KILL:
        os.kill(os.getpid(), signal.SIGKILL)
    stopped = taken.with_name(f"stopped-{os.getpid()}")
    stopped.write_text(str(time.monotonic()))
    os.kill(os.getpid(), signal.SIGSTOP)


class Orders:
    """The run's side: the orders, and the stopped processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def give(self, point: str, action: str) -> None:
        """The next thread that comes by that point stops or kills its process."""
        place = list(POINTS).index(point)
        made = self.folder / f"new-{place}"
        made.write_text(action)
        made.rename(self.folder / str(place))

    def withdraw(self) -> None:
        """Nothing more is to happen."""
        for place in range(len(POINTS)):
            (self.folder / str(place)).unlink(missing_ok=True)

    def stopped(self) -> dict[int, float]:
        """Return the stopped processes with their times, and forget them."""
        found = {}
        for path in self.folder.glob("stopped-*"):
            with suppress(ValueError):
                found[int(path.name.partition("-")[2])] = float(path.read_text())
            path.unlink()
        return found
