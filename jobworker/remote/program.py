"""A bot in another language: one program for each thread, JSON lines over its standard streams.

Its first line has its version and its rules. After that, each line that it reads is a job, and it
answers each with one line, its decision. Its standard error goes to the log. A program that ends,
hangs, or writes any other answer is killed, and the job has failed once. The next job starts
another one.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from jobworker.handler_retry import Failure
from jobworker.remote.job import CONTRACT, DECIDED, FAILED, MOST_BYTES, Job
from jobworker.remote.job import failed as failed_job
from jobworker.remote.rules import bot_of
from jobworker.remote.values import from_line, to_line
from linedesk.store.limits import MOST_LEVELS, nests_deeper

log = logging.getLogger(__name__)

HELLO_SECONDS = 20.0
# The limit of a whole message: deeper than any stored value, and below Python's own limit.
MOST_DEPTH = 2 * MOST_LEVELS
END_SECONDS = 2.0
# A process that left the program's group may hold its output open: check regularly.
LOOK_SECONDS = 1.0
CHUNK = 65_536
# A line of its standard error; longer ones are cut. The last lines are a dead letter's traceback.
MOST_LOG = 2_000
KEPT_LINES = 100
# The errors of a command without a program; others, such as a lack of memory, are temporary.
NO_PROGRAM = (errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ENOEXEC)
DEFAULT_RULES: Mapping[str, Any] = {"perMember": False, "rules": [{"name": "default"}]}


class ProgramFailed(Exception):
    """The program ended, or wrote an invalid line; the text quotes no user."""


class WrongProgram(ProgramFailed):
    """Another start would not help: the command, or the program's contract or rules, is wrong."""


class Program:
    """One running program. Its owner thread sends, receives and ends; any thread may `kill`."""

    def __init__(self, command: Sequence[str], environ: Mapping[str, str]) -> None:
        self._buffer = bytearray()
        self._errors: deque[str] = deque(maxlen=KEPT_LINES)
        self._is_killed = False
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
            kind = WrongProgram if error.errno in NO_PROGRAM else ProgramFailed
            raise kind(f"cannot be started: {error.strerror}") from error
        assert self._process.stdin is not None, "opened as a pipe"
        assert self._process.stdout is not None, "opened as a pipe"
        self._input, self._output = self._process.stdin, self._process.stdout
        self._poll = select.poll()
        self._poll.register(self._output, select.POLLIN)
        self._logger = threading.Thread(target=self._log, name="program-stderr", daemon=True)
        self._logger.start()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for a job: it has not ended, and wrote nothing unasked."""
        return not self._buffer and not self._poll.poll(0)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write one line. Raises ProgramFailed."""
        self._errors.clear()
        try:
            self._input.write(to_line(message) + b"\n")
            self._input.flush()
        except (OSError, ValueError) as error:
            raise ProgramFailed(self._ended()) from error

    def receive(self, timeout_seconds: float = float("inf")) -> dict[str, Any]:
        """Return the next line. Raises ProgramFailed, also after the time-out."""
        deadline = time.monotonic() + timeout_seconds
        searched = 0
        while (end := self._buffer.find(b"\n", searched)) < 0:
            searched = len(self._buffer)
            if searched > MOST_BYTES:
                raise ProgramFailed(f"wrote a line of more than {MOST_BYTES} bytes")
            self._buffer += self._chunk(deadline, timeout_seconds)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        words = f"wrote a line of {len(line)} bytes"
        try:
            found = from_line(line)
        except ValueError as error:
            raise ProgramFailed(f"{words} that is no JSON object") from error
        if nests_deeper(found, MOST_DEPTH):
            raise ProgramFailed(f"{words} that is nested deeper than {MOST_DEPTH} levels")
        return found

    def kill(self) -> None:
        """Kill it with all its child processes; its owner thread then gets ProgramFailed."""
        self._is_killed = True
        with suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill it, and release its resources."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        for stream in (self._input, self._output):
            with suppress(OSError):
                stream.close()
        self._logger.join(END_SECONDS)

    def close(self) -> None:
        """Let it end: its standard input ends, and a moment later it is killed."""
        with suppress(OSError):
            self._input.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self.end()

    def errors(self) -> str:
        """The last lines of its standard error since it was sent a job; call it after `end`."""
        return "\n".join(list(self._errors))

    def _chunk(self, deadline: float, timeout_seconds: float) -> bytes:
        while not self._is_killed:
            left = deadline - time.monotonic()
            if left <= 0:
                raise ProgramFailed(f"wrote nothing within {timeout_seconds:.0f} s")
            if self._poll.poll(1_000 * min(left, LOOK_SECONDS)):
                found = os.read(self._output.fileno(), CHUNK)
                if not found:
                    raise ProgramFailed(self._ended())
                return found
        raise ProgramFailed("was killed")

    def _ended(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        code = self._process.returncode
        if code is None:
            return "closed its standard input or output"
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    def _log(self) -> None:
        """Read all of it; otherwise the program blocks when the pipe is full."""
        stream = self._process.stderr
        assert stream is not None, "opened as a pipe"
        with stream, suppress(ValueError, OSError):
            while line := stream.readline(MOST_LOG):
                text = line.decode("utf-8", "replace").rstrip()
                self._errors.append(text)
                log.info("program pid=%d: %s", self.pid, text)


class ProgramBot:
    """The bot of a worker process, as programs; `command` is split as a shell does.

    `version` differs between two versions of its code, `rules` are JSON (`jobworker.remote.rules`).
    `is_outdated`: its code was replaced, so the process has to start again.

    Raises WrongProgram, and ProgramFailed if the program does not start this time.
    """

    def __init__(
        self,
        command: str,
        *,
        settings: Mapping[str, str],
        secrets: Mapping[str, str],
        environ: Mapping[str, str],
        masked: Callable[[str], str] = str,
    ) -> None:
        try:
            self._command = shlex.split(command)
        except ValueError as error:
            raise WrongProgram(f"cannot be read as a command: {error}") from error
        if not self._command:
            raise WrongProgram("must be a program and its arguments")
        self._environ = environ
        self._settings = settings
        self._secrets = secrets
        self.masked = masked
        self.is_outdated = False
        program, hello = self._begin()
        self._first: Program | None = program
        self.rules: Mapping[str, Any] = hello["rules"]
        self.version = self._version(hello)
        try:
            to_line(hello)
            if bot_of(self.rules, self.version).is_async:
                raise ValueError("async is for rules of Python bots")
        except ValueError as error:
            program.end()
            raise WrongProgram(f"has wrong rules: {error}") from error

    def open(self) -> ProgramThread:
        """Return a program for a thread; it starts with the first job."""
        first, self._first = self._first, None
        return ProgramThread(self, first)

    def start(self) -> Program:
        """Start a new program of this version. Raises ProgramFailed."""
        program, hello = self._begin()
        if self._version(hello) != self.version:
            program.end()
            self.is_outdated = True
            raise ProgramFailed("has another version than when the worker began")
        return program

    def _begin(self) -> tuple[Program, dict[str, Any]]:
        """Start a new program; returns it with its hello, which contains the rules."""
        program = Program(self._command, self._environ)
        try:
            settings, secrets = dict(self._settings), dict(self._secrets)
            start = {"type": "start", "contract": CONTRACT}
            program.send({**start, "settings": settings, "secrets": secrets})
            hello = program.receive(HELLO_SECONDS)
            if hello.get("type") != "hello" or hello.get("contract") != CONTRACT:
                raise WrongProgram(f"did not say hello with contract {CONTRACT}")
        except ProgramFailed:
            program.end()
            raise
        return program, {**hello, "rules": hello.get("rules", DEFAULT_RULES)}

    def _version(self, hello: Mapping[str, Any]) -> str:
        """Return the program's own version, with a hash of its rules and settings."""
        told = json.dumps([hello["rules"], dict(self._settings)], sort_keys=True)
        name = str(hello.get("version", ""))[:80]
        return f"{name}+{hashlib.sha256(told.encode()).hexdigest()[:8]}"


class ProgramThread:
    """Runs the jobs of one thread in one program at a time.

    `abandon` and `close` say that it is over, and then look for a program. The thread notes a
    program that has started, and then looks whether it is over. One of the two sees the other.
    """

    def __init__(self, bot: ProgramBot, program: Program | None) -> None:
        self._bot = bot
        self._program = program
        self._is_busy = False
        self._is_over = False
        self._told = ""

    def run(self, job: Job, received: float) -> dict[str, Any]:
        """Return the decision of a job; raises nothing."""
        self._is_busy = True
        try:
            program = self._running()
            program.send(job.message)
            return self._checked(job, program.receive())
        except ProgramFailed as error:
            self._end()
            # A program that was replaced is not the handler's fault; the worker ends because of it.
            passing = self._bot.is_outdated
            told = self._bot.masked(self._told)
            failure = Failure(f"program {error}", "-", told, lasting=False, passing=passing)
            return failed_job(job.attempt, failure)
        finally:
            self._is_busy = False
            if self._is_over:
                self._end()

    def abandon(self) -> None:
        """The job's thread is abandoned: kill the program. From another thread."""
        self._is_over = True
        if (program := self._program) is not None:
            program.kill()

    def close(self) -> None:
        """End; no more jobs follow."""
        self._is_over = True
        if (program := self._program) is not None:
            if self._is_busy:
                program.kill()
            else:
                program.close()

    def _running(self) -> Program:
        """Return the thread's program, a new one if the last has ended. Raises ProgramFailed."""
        if self._program is not None:
            if self._program.is_waiting:
                return self._program
            log.warning("program ended or wrote unasked between jobs pid=%d", self._program.pid)
            self._end()
        program = self._program = self._bot.start()
        # It was abandoned while its program started.
        # guard: given-up-while-it-starts -> never
        if self._is_over:
            self._end()
            raise ProgramFailed("was killed")
        return program

    def _checked(self, job: Job, decision: Mapping[str, Any]) -> dict[str, Any]:
        """Return the decision; the leader checks its content. Raises ProgramFailed."""
        # An answer to an earlier job would be another user's.
        # guard: answer-of-this-job -> if decision.get("type") != "decision":
        if decision.get("type") != "decision" or decision.get("attempt") != job.attempt:
            raise ProgramFailed("answered something else than a decision of this job")
        if decision.get("outcome") not in (DECIDED, FAILED):
            raise ProgramFailed("gave no outcome")
        texts = {
            name: self._bot.masked(str(decision[name]))
            for name in ("what", "place", "traceback")
            if name in decision
        }
        return {**decision, **texts}

    def _end(self) -> None:
        program, self._program = self._program, None
        if program is not None:
            program.end()
            self._told = program.errors()
