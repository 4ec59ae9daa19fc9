"""Processes of a measurement: each runs until the end of a block. Waits for what they do, and their
use of the processor.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from bench.report import BenchFailed
from linedesk.setup import children

START_SECONDS = 60.0
STOP_SECONDS = 30.0


@contextmanager
def child(
    name: str,
    command: Sequence[str],
    *,
    ready: Callable[[], object] = lambda: True,
    log: Path = Path(os.devnull),
    stop: signal.Signals = signal.SIGTERM,
    **options: Any,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process, once it is ready, until the end of the block.

    Its output is added to `log`. The options are those of Popen. Raises BenchFailed with the end of
    the log if the process does not become ready.
    """
    with log.open("ab") as output:
        streams = {"stdout": output, "stderr": output}
        process = children.start(command, **{**streams, **options})
    with ExitStack() as stack:
        stack.callback(_end, process, stop)
        try:
            until(ready, f"{name} is ready", seconds=START_SECONDS, process=process)
        except BenchFailed as error:
            said = log.read_text(errors="replace")[-2000:]
            raise BenchFailed(f"{name} did not start: {said or error}") from error
        yield process


def _end(process: subprocess.Popen[bytes], stop: signal.Signals) -> None:
    # A second signal could be taken for another kind of stop.
    with suppress(subprocess.TimeoutExpired):
        process.send_signal(stop)
        process.wait(STOP_SECONDS)
    children.stop(process, timeout_seconds=1)


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


def to_its_end(command: Sequence[str], step: str, **options: Any) -> None:
    """Run a command; raises BenchFailed, which names the step, with the end of the output."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise BenchFailed(f"{step}: {(done.stderr or done.stdout)[-1000:]}")


def cpu_seconds(pid: int, *, children: bool = False) -> float:
    """The processor time of a process (proc(5): utime and stime), with its children if wanted."""
    fields = _stat(pid)
    ticks = sum(int(field) for field in fields[11 : 15 if children else 13])
    seconds = ticks / os.sysconf("SC_CLK_TCK")
    for path in Path("/proc").glob("[0-9]*") if children else ():
        # Of any process of the machine, which can end meanwhile.
        with suppress(OSError):
            if int(_stat(int(path.name))[1]) == pid:
                seconds += cpu_seconds(int(path.name))
    return seconds


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
