"""A bot in another language: one program for each thread, JSON lines over its standard streams.

Its first line says who it is and which rules it has. Then each line that it reads is a job, and it
answers each with one line, its decision. Its standard error goes to the log. A program that ends,
hangs, or answers with anything else is ended and started anew; the job has failed once.
"""

from __future__ import annotations

import logging
import os
import queue
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jobworker.handler_retry import Failure
from jobworker.remote.job import CONTRACT, DECIDED, FAILED, MOST_BYTES, Job
from jobworker.remote.job import failed as failed_job
from jobworker.remote.rules import bot_of
from jobworker.remote.values import from_line, to_line

log = logging.getLogger(__name__)

HELLO_SECONDS = 20.0
END_SECONDS = 2.0
# A line of its standard error; what is longer is cut.
MOST_LOG = 2_000
DEFAULT_RULES: Mapping[str, Any] = {"perMember": False, "rules": [{"name": "default"}]}
SECRET_SETTINGS = ("AMQP_URL", "BOT_SECRETS", "CREDENTIALS_DIRECTORY")


class ProgramFailed(Exception):
    """The program ended, or said what it must not; the words name no user's text."""


class Program:
    """One running program."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._lines: queue.Queue[bytes | None] = queue.Queue(maxsize=16)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=dict(environ),
                start_new_session=True,
            )
        except OSError as error:
            raise ProgramFailed(f"cannot be started: {error.strerror}") from error
        for name, read in (("stdout", self._read), ("stderr", self._log)):
            threading.Thread(target=read, name=f"program-{name}", daemon=True).start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. Raises ProgramFailed."""
        stream = self._process.stdin
        assert stream is not None, "opened as a pipe"
        try:
            stream.write(to_line(message) + b"\n")
            stream.flush()
        except (OSError, ValueError) as error:
            raise ProgramFailed(self._ended()) from error

    def receive(self, timeout_seconds: float | None = None) -> dict[str, Any]:
        """The next line. Raises ProgramFailed, also when the time is over."""
        try:
            line = self._lines.get(timeout=timeout_seconds)
        except queue.Empty:
            raise ProgramFailed(f"said nothing within {timeout_seconds:.0f} s") from None
        if line is None:
            raise ProgramFailed(self._ended())
        try:
            return from_line(line)
        except ValueError as error:
            raise ProgramFailed(f"its line of {len(line)} bytes is no JSON object") from error

    def end(self) -> None:
        """Kill it with all that it has started."""
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)

    def close(self) -> None:
        """Let it end: its standard input ends, and a moment later it is killed."""
        with suppress(OSError, ValueError):
            if self._process.stdin is not None:
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self.end()

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        code = self._process.returncode
        if code is None:
            return "closed its standard output"
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None, "opened as a pipe"
        with stream, suppress(ValueError, OSError):
            while line := stream.readline(MOST_BYTES + 2):
                self._lines.put(line)
                if len(line) > MOST_BYTES:
                    break
        self._lines.put(None)

    def _log(self) -> None:
        """Read all of it, or the program stands still when the pipe is full."""
        stream = self._process.stderr
        assert stream is not None, "opened as a pipe"
        with stream, suppress(ValueError, OSError):
            while line := stream.readline(MOST_LOG):
                log.info("program pid=%d: %s", self.pid, line.decode("utf-8", "replace").rstrip())


class ProgramBot:
    """See `jobworker.remote.worker.Bot`. `command` is split as a shell does.

    Raises ProgramFailed where the program does not start, or its rules are none.
    """

    def __init__(
        self,
        command: str,
        *,
        settings: Mapping[str, str],
        secrets: Mapping[str, str],
        environ: Mapping[str, str],
        hello_seconds: float = HELLO_SECONDS,
        masked: Callable[[str], str] = str,
    ) -> None:
        self._command = shlex.split(command)
        self._environ = {name: one for name, one in environ.items() if name not in SECRET_SETTINGS}
        self._settings = settings
        self._secrets = secrets
        self._hello_seconds = hello_seconds
        self.masked = masked
        if not self._command:
            raise ProgramFailed("must be a program and its arguments")
        program, hello = self.begin()
        self._first: Program | None = program
        self.version = str(hello.get("version") or "0")[:100]
        self.rules: Mapping[str, Any] = hello.get("rules") or DEFAULT_RULES
        try:
            bot_of(self.rules, self.version)
        except ValueError as error:
            program.end()
            raise ProgramFailed(f"said rules that are none: {error}") from error

    def begin(self) -> tuple[Program, dict[str, Any]]:
        """A new program that has said hello. Raises ProgramFailed."""
        program = Program(self._command, self._environ)
        try:
            settings, secrets = dict(self._settings), dict(self._secrets)
            start = {"type": "start", "contract": CONTRACT}
            program.send({**start, "settings": settings, "secrets": secrets})
            hello = program.receive(self._hello_seconds)
            if hello.get("type") != "hello" or hello.get("contract") != CONTRACT:
                raise ProgramFailed(f"did not say hello with contract {CONTRACT}")
        except ProgramFailed:
            program.end()
            raise
        return program, hello

    def open(self) -> ProgramThread:
        """A program of its own for a thread; it starts with the first job."""
        first, self._first = self._first, None
        return ProgramThread(self, first)


class ProgramThread:
    """Runs the jobs of one thread in one program at a time."""

    def __init__(self, bot: ProgramBot, program: Program | None) -> None:
        self._bot = bot
        self._program = program
        self._is_abandoned = False

    def run(self, job: Job, received: float) -> dict[str, Any]:
        try:
            program = self._running()
            program.send(job.message)
            decision = program.receive()
            return self._checked(job, decision)
        except ProgramFailed as error:
            self._end()
            return failed_job(job.attempt, Failure(f"program {error}", "-", "", lasting=False))

    def abandon(self) -> None:
        """End the program, so that the thread comes back."""
        self._is_abandoned = True
        self._end()

    def close(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.close()

    def _running(self) -> Program:
        if self._is_abandoned:
            raise ProgramFailed("was ended")
        if self._program is None:
            self._program, hello = self._bot.begin()
            version = str(hello.get("version") or "0")[:100]
            if version != self._bot.version:
                raise ProgramFailed("has another version than when the worker began")
        return self._program

    def _checked(self, job: Job, decision: Mapping[str, Any]) -> dict[str, Any]:
        """The decision, whose content is the leader's to check. Raises ProgramFailed."""
        # An answer to an earlier job would be somebody else's.
        if decision.get("type") != "decision" or decision.get("attempt") != job.attempt:
            raise ProgramFailed("answered something else than a decision of this job")
        if decision.get("outcome") not in (DECIDED, FAILED):
            raise ProgramFailed("gave no outcome")
        if decision.get("outcome") == FAILED:
            told = str(decision.get("traceback", ""))
            return {**decision, "traceback": self._bot.masked(told)}
        return dict(decision)

    def _end(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.end()
