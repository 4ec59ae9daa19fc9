"""Keeps the processes of a small box running: starts, restarts and stops them in a fixed order.

A signal handler only puts the signal's number on a queue; the loop of `Supervisor.run` does the
rest in the main thread. It does not restart a process whose exit code a restart cannot fix
(Exit.CONFIG, SCHEMA).
"""

from __future__ import annotations

import logging
import queue
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from linedesk.runtime.backoff import pause_seconds
from linedesk.runtime.exit_codes import Exit
from linedesk.setup import children

log = logging.getLogger(__name__)

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
HEALTHY_SECONDS = 60.0
STOP_SIGNALS = frozenset({signal.SIGTERM, signal.SIGINT})

Signals = queue.SimpleQueue[int]


@dataclass(frozen=True)
class Program:
    """One process to keep running; `stop_seconds` is its time limit for a clean exit.

    One that holds `locks` has its own log, and its output is dropped. After Ctrl-C it ends, and
    gives the locks up, behind this process. `running` is its process if it was started before.
    """

    name: str
    command: Sequence[str]
    stop_seconds: float
    locks: Sequence[int] = ()
    running: subprocess.Popen[bytes] | None = None


class ManagedProcess:
    """One program with its current process; not thread-safe."""

    def __init__(self, program: Program, environ: Mapping[str, str]) -> None:
        self.program = program
        self._environ = environ
        self._process = program.running
        self._started_at = 0.0
        self._start_again_at = 0.0
        self._failures = 0

    def start(self) -> None:
        """Start the program; its log goes to this process's stderr."""
        output = subprocess.DEVNULL if self.program.locks else None
        self._started_at = time.monotonic()
        self._process = children.start(
            self.program.command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=self.program.locks,
        )
        log.debug("started process=%s pid=%d", self.program.name, self._process.pid)

    def look(self) -> int | None:
        """Restart the program if it is due; returns the exit status if a restart cannot fix it."""
        if self._process is None:
            if time.monotonic() >= self._start_again_at:
                self.start()
            return None
        status = self._process.poll()
        if status in {Exit.CONFIG, Exit.SCHEMA}:
            log.error("cannot run process=%s exit=%d", self.program.name, status)
            return status
        if status is not None:
            self._plan_restart(status)
        return None

    def seconds_until_start(self) -> float | None:
        """The seconds until it is started again; None while it runs."""
        if self._process is not None:
            return None
        return max(0.0, self._start_again_at - time.monotonic())

    def terminate(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait(self.program.stop_seconds)

    def ended(self) -> bool:
        """Whether no process runs."""
        return self._process is None or self._process.poll() is not None

    def exit_status(self) -> int:
        """The exit status of the last process; death by a signal counts as Exit.KILLED.

        SIGTERM itself kills only a process that does not handle signals yet, and thus has nothing
        to lose.
        """
        status = self._process.poll() if self._process is not None else None
        if status in {None, -signal.SIGTERM}:
            return Exit.OK
        return Exit.KILLED if status < 0 else status

    def _plan_restart(self, status: int) -> None:
        if time.monotonic() - self._started_at > HEALTHY_SECONDS:
            self._failures = 0
        self._failures += 1
        pause = pause_seconds(self._failures, first=FIRST_PAUSE_SECONDS, most=LONGEST_PAUSE_SECONDS)
        self._process = None
        self._start_again_at = time.monotonic() + pause
        log.warning(
            "restarting process=%s exit=%d in_seconds=%.1f", self.program.name, status, pause
        )


class Supervisor:
    """Runs programs until a signal; stops them in the given order and starts them in reverse."""

    def __init__(
        self, programs: Sequence[Program], environ: Mapping[str, str], signals: Signals
    ) -> None:
        self._managed = [ManagedProcess(program, environ) for program in programs]
        self._signals = signals

    def run(self) -> int:
        """Keep the programs running until SIGTERM or SIGINT; returns the exit code.

        The signals must come from `signals_on`, including SIGCHLD.
        """
        try:
            for managed in reversed(self._managed):
                if managed.ended():
                    managed.start()
            return self._keep()
        finally:
            self._kill_all()

    def _keep(self) -> int:
        while (number := self._next_signal(self._pause())) not in STOP_SIGNALS:
            for managed in self._managed:
                status = managed.look()
                if status is not None:
                    self._stop()
                    return status
        log.info("stopping")
        if number == signal.SIGINT:
            # The bot's author need not wait for mongod, for up to a second.
            self._managed = [one for one in self._managed if not one.program.locks]
        return self._stop()

    def _pause(self) -> float | None:
        """The seconds until the next restart; None while all run, since SIGCHLD ends the wait."""
        pauses = [managed.seconds_until_start() for managed in self._managed]
        return min((one for one in pauses if one is not None), default=None)

    def _next_signal(self, timeout_seconds: float | None) -> int | None:
        try:
            return self._signals.get(timeout=timeout_seconds)
        except queue.Empty:
            return None

    def _stop(self) -> int:
        for managed in self._managed:
            managed.terminate()
            if not self._wait_for(managed):
                return Exit.KILLED
        return next((k.exit_status() for k in self._managed if k.exit_status()), Exit.OK)

    def _wait_for(self, managed: ManagedProcess) -> bool:
        """Wait until it has ended or its time is up; False after a second signal."""
        deadline = time.monotonic() + managed.program.stop_seconds
        while not managed.ended():
            left = deadline - time.monotonic()
            if left <= 0:
                log.error("killing process=%s, it did not end in time", managed.program.name)
                managed.kill()
            elif self._next_signal(left) in STOP_SIGNALS:
                log.warning("second signal, ending at once")
                return False
        return True

    def _kill_all(self) -> None:
        for managed in self._managed:
            managed.kill()


@contextmanager
def signals_on(signals: Signals) -> Iterator[None]:
    """Put the numbers of SIGTERM, SIGINT and SIGCHLD on the queue; main thread only."""

    def note(number: int, frame: FrameType | None) -> None:
        signals.put(number)

    before = {number: signal.signal(number, note) for number in (*STOP_SIGNALS, signal.SIGCHLD)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
