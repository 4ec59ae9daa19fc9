"""`linedesk up --reload`: a process with all but the bot imported forks another for each edit."""

from __future__ import annotations

import logging
import os
import signal
import sys
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from linedesk.runtime.exit_codes import Exit
from linedesk.setup import children

log = logging.getLogger(__name__)

RELOAD_VARIABLE = "LINEDESK_RELOAD"
LOOK_SECONDS = 0.3
SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}


@contextmanager
def reloading(environ: MutableMapping[str, str]) -> Iterator[None]:
    """Around the import of the bot: continue in a child, and in another one after each edit.

    A child ends in order once its successor has imported the bot; without that it runs on.
    """
    before = _forked_at_edits(Path.cwd()) if environ.pop(RELOAD_VARIABLE, "") else 0
    yield
    with suppress(ProcessLookupError):
        if before:
            os.kill(before, signal.SIGTERM)


def _forked_at_edits(folder: Path) -> int:
    """Fork now and after each edit; returns in each child, with the child before or 0."""
    # Python takes the compiled code of a file for that of an edit in the same second.
    sys.dont_write_bytecode = True
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    parent, seen, running, successor = os.getpid(), None, 0, 0
    while True:
        if not successor and (files := python_files(folder)) != seen:
            seen, successor = files, os.fork()
            if not successor:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
                children.dying_with(parent)()
                return running
            if not running:
                running, successor = successor, 0
        came = signal.sigtimedwait(SIGNALS, LOOK_SECONDS)
        if came is not None and came.si_signo != signal.SIGCHLD:
            for child in filter(None, (successor, running)):
                os.kill(child, signal.SIGTERM)
                status = os.waitpid(child, 0)[1]
            os._exit(max(Exit.OK, os.waitstatus_to_exitcode(status)))
        ended, status = os.waitpid(-1, os.WNOHANG)
        code = os.waitstatus_to_exitcode(status)
        if ended == running:
            if not successor:
                os._exit(Exit.KILLED if code < 0 else code)
            running, successor = successor, 0
        elif ended:
            successor = 0
            log.error("not reloaded, the bot runs as before the edit exit=%d", code)


def python_files(folder: Path) -> dict[Path, int]:
    """The Python files below the folder, each with its time in nanoseconds."""
    found = {}
    for place, folders, names in os.walk(folder):
        folders[:] = [] if "pyvenv.cfg" in names else [one for one in folders if one[0] != "."]
        for path in (Path(place, name) for name in names if name.endswith(".py")):
            with suppress(FileNotFoundError):
                found[path] = path.stat().st_mtime_ns
    return found
