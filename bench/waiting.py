"""Waiting for what other processes do."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path

from bench.report import BenchFailed


def until(happened: Callable[[], object], words: str, *, seconds: float) -> None:
    """Look 50 times a second; raises BenchFailed, which says what did not happen."""
    deadline, pause = time.monotonic() + seconds, threading.Event()
    while not happened():
        if time.monotonic() > deadline:
            raise BenchFailed(f"not within {seconds:.0f} s: {words}")
        pause.wait(0.02)


def listens(port: int) -> bool:
    """Whether something takes connections on this port of loopback."""
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def cpu_seconds(pid: int) -> float:
    """What a process has had of the processor."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
