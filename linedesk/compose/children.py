"""Child processes that never outlive their parent, however it ends."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

# prctl(2): the number of PR_SET_PDEATHSIG.
PR_SET_PDEATHSIG = 1

_libc = ctypes.CDLL(None, use_errno=True)


def of_module(name: str, *options: str) -> list[str]:
    """The command line of a process that runs one of our modules.

    With -P the working directory, where a bot lies, is no place of its imports. Programs that the
    process starts are not concerned, as they would be by PYTHONSAFEPATH.
    """
    return [sys.executable, "-P", "-m", name, *options]


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child that gets SIGTERM when its parent dies, by kill -9 too (Linux).

    Call it from a thread that lives as long as the child should, such as the main thread. The
    child has a process group of its own: Ctrl-C in the terminal reaches only the parent, which
    then stops its children one after the other.
    """
    return subprocess.Popen(command, preexec_fn=dying_with(os.getpid()), process_group=0, **options)


def dying_with(parent: int) -> Callable[[], None]:
    """What a child of this process calls first, so that it gets SIGTERM when its parent dies."""

    def at_birth() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        # The parent may have died before the line above; then nobody will send the signal.
        if os.getppid() != parent:
            os._exit(0)

    return at_birth


def stop(child: subprocess.Popen[bytes], *, timeout_seconds: float) -> int:
    """End a child by SIGTERM, by SIGKILL once the time is up; returns its exit status."""
    if child.poll() is None:
        child.terminate()
    try:
        return child.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        return child.wait(timeout_seconds)
