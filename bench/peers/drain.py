"""Stores jobs of one peer, starts its worker, and prints how long that took for all, in seconds.

From the first start of a job until the peer's own store knows all as completed. Run as
`python -m bench.peers.drain MODULE JOBS KEYS`.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from bench.load import make_event
from bench.peers import jobs
from bench.peers.names import module_of
from linedesk.compose import children

POLL_SECONDS = 0.02
STOP_SECONDS = 20.0


def main(module: str, number: str, keys: str) -> None:
    """Fill, drain, and print the seconds."""
    peer, log, wanted = module_of(module), Path(os.environ[jobs.STARTED]), int(number)
    peer.reset()
    peer.fill([make_event(n, users=int(keys)) for n in range(wanted)])
    command = [sys.executable, "-m", "bench.peers.worker", module]
    worker = children.start(command, stdout=sys.stderr)
    try:
        while jobs.starts(log) < wanted or peer.left(wanted):
            if worker.poll() is not None:
                raise SystemExit(f"its worker ended with {worker.returncode}")
            time.sleep(POLL_SECONDS)
        ended = time.monotonic()
    finally:
        children.stop(worker, timeout_seconds=STOP_SECONDS)
    # What a broker has handed out and was not acknowledged is back in the queue now.
    if peer.left(wanted):
        raise SystemExit("jobs were left over")
    print(ended - min(jobs.started(log).values()))


if __name__ == "__main__":
    main(*sys.argv[1:])
