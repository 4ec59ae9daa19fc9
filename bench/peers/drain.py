"""Stores jobs of one peer, starts its worker, and prints as JSON the `Drain` of `measure`.

From the first start of a job until the peer's own store knows all as completed. Run as
`python -m bench.peers.drain MODULE JOBS KEYS`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path

from bench.peers import jobs
from bench.peers.names import module_of
from bench.processes import child, cpu_seconds
from bench.waiting import until
from bench.webhooks import SENTENCE, text_event

DRAIN_SECONDS = 300.0


def main(module: str, number: str, keys: str) -> None:
    """Store, complete and print."""
    peer, log, wanted = module_of(module), Path(os.environ[jobs.STARTED]), int(number)
    peer.reset()
    peer.fill([text_event(n % int(keys), SENTENCE) for n in range(wanted)])
    command = [sys.executable, "-m", "bench.peers.worker", module]
    with child("the worker", command, stdout=sys.stderr, stderr=None) as worker:
        waits = partial(until, seconds=DRAIN_SECONDS, process=worker)
        waits(lambda: jobs.starts(log), "a job starts", every=0.002)
        before = used(worker.pid)
        waits(lambda: jobs.starts(log) >= wanted and not peer.left(wanted), "all jobs end")
        seconds, after = time.monotonic() - min(jobs.started(log).values()), used(worker.pid)
    # The broker has returned unacknowledged jobs to the queue by now.
    if peer.left(wanted):
        raise SystemExit("jobs were left over")
    print(json.dumps({"seconds": seconds} | {name: after[name] - before[name] for name in before}))


def used(worker: int) -> dict[str, float]:
    """The processor time of the worker and of PostgreSQL so far, where jobs record a state."""
    if not jobs.SEND_URL:
        return {}
    # Here, since other stores need no driver of PostgreSQL.
    from bench.peers.postgresql import server

    database = cpu_seconds(server(jobs.STORE), children=True)
    return {"worker ms": 1000 * cpu_seconds(worker), "database ms": 1000 * database}


if __name__ == "__main__":
    main(*sys.argv[1:])
