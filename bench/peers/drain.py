"""Stores jobs of one peer, starts its worker, and prints how long that took for all, in seconds.

From the first start of a job until the peer's own store knows all as completed. Run as
`python -m bench.peers.drain MODULE JOBS KEYS`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.peers import jobs
from bench.peers.names import module_of
from bench.processes import child
from bench.waiting import until
from bench.webhooks import SENTENCE, text_event

DRAIN_SECONDS = 300.0


def main(module: str, number: str, keys: str) -> None:
    """Fill, drain, and print the seconds."""
    peer, log, wanted = module_of(module), Path(os.environ[jobs.STARTED]), int(number)
    peer.reset()
    peer.fill([text_event(n % int(keys), SENTENCE) for n in range(wanted)])
    command = [sys.executable, "-m", "bench.peers.worker", module]
    with child("the worker", command, stdout=sys.stderr, stderr=None) as worker:
        until(
            lambda: jobs.starts(log) >= wanted and not peer.left(wanted),
            "all jobs are completed",
            seconds=DRAIN_SECONDS,
            process=worker,
        )
        ended = time.monotonic()
    # The broker has returned unacknowledged jobs to the queue by now.
    if peer.left(wanted):
        raise SystemExit("jobs were left over")
    print(ended - min(jobs.started(log).values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
