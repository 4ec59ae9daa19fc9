"""When handlers started: a bot's handler writes it into a log, which the bench reads.

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


def started_log() -> Callable[[str], None]:
    """What a bot's handler calls with its event's id when it starts.

    The bot is made in the dispatcher, which has LOG_NAME in its environment.
    """
    if LOG_NAME not in os.environ:
        return lambda event_id: None
    log = Path(os.environ[LOG_NAME]).open("a", buffering=1)  # noqa: SIM115  # open as long as the bot
    return lambda event_id: print(event_id, time.monotonic(), file=log)


class Started:
    """Reads that log; the first start of each event counts."""

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
        """Until all of these have started; raises BenchFailed."""
        deadline, pause = time.monotonic() + seconds, threading.Event()
        while not self.read().keys() >= set(ids):
            if time.monotonic() > deadline:
                left = len(set(ids) - self.at.keys())
                raise BenchFailed(f"{left} events did not reach the handler in {seconds:.0f} s")
            pause.wait(0.1)
        return self.at


def waits_ms(
    posted: Mapping[str, float], started: Mapping[str, float], ids: Iterable[str]
) -> Figures:
    """From the start of the POST to the start of the handler: p99, p50 and max."""
    waits = sorted((started[id_] - posted[id_]) * 1000 for id_ in ids)
    cuts = statistics.quantiles(waits, n=100)
    return {"p99 ms": cuts[98], "p50 ms": cuts[49], "max ms": waits[-1]}
