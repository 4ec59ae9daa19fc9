"""Waits for the effects of other processes."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable

from bench.report import BenchFailed


def until(
    happened: Callable[[], object],
    words: str,
    *,
    seconds: float,
    every: float = 0.02,
    process: subprocess.Popen[bytes] | None = None,
) -> None:
    """Check every `every` seconds until the condition is true.

    Raises BenchFailed, with the missing condition, after a time-out or the end of `process`.
    """
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not happened():
        if process is not None and process.poll() is not None:
            raise BenchFailed(f"the process ended with {process.returncode} before: {words}")
        if time.monotonic() > deadline:
            raise BenchFailed(f"not within {seconds:.0f} s: {words}")
        pause.wait(every)


def listens(port: int) -> bool:
    """Whether something takes connections on this port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0
