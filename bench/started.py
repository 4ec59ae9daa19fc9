"""When events arrived, by a log that a bot's handler writes as it starts, or `free_line`.

Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path

from bench.report import BenchFailed, Figures

LOG_NAME = "STARTED_LOG"


def started_log() -> Callable[[str], object]:
    """Return the function that a bot's handler calls with its event's id when it starts.

    The bot is made in the dispatcher, which has LOG_NAME in its environment.
    """
    if LOG_NAME not in os.environ:
        return lambda event_id: None
    log = Path(os.environ[LOG_NAME]).open("a", buffering=1)  # noqa: SIM115  # open as long as the bot
    # In one write, since handlers of several threads share the log.
    return lambda event_id: log.write(f"{event_id} {time.monotonic()}\n")


class Started:
    """Reads such a log, lines of an event id and a time; the first line of each event counts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.at: dict[str, float] = {}
        self._offset = 0

    def read(self) -> Mapping[str, float]:
        """All starts so far, by event id."""
        with self.path.open() as log:
            log.seek(self._offset)
            text = log.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in whole.splitlines():
            event_id, at = line.split()
            self.at.setdefault(event_id, float(at))
        return self.at

    def wait_for(self, ids: Collection[str], *, seconds: float = 60.0) -> Mapping[str, float]:
        """Wait until all of these have started; raises BenchFailed after `seconds` without another
        one.
        """
        wanted, pause = set(ids), threading.Event()
        known, deadline = len(self.at), time.monotonic() + seconds
        while left := len(wanted - self.read().keys()):
            if len(self.at) > known:
                known, deadline = len(self.at), time.monotonic() + seconds
            if time.monotonic() > deadline:
                raise BenchFailed(f"{left} events did not arrive, and none for {seconds:.0f} s")
            pause.wait(0.1)
        return self.at


def waits_ms(
    posted: Mapping[str, float], started: Mapping[str, float], ids: Iterable[str]
) -> Figures:
    """From the start of the POST to the start of the handler: p99, p50 and max."""
    waits = sorted((started[id_] - posted[id_]) * 1000 for id_ in ids)
    cuts = statistics.quantiles(waits, n=100)
    return {"p99 ms": cuts[98], "p50 ms": cuts[49], "max ms": waits[-1]}
