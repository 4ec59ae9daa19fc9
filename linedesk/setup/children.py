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

    -P keeps the working directory, which holds a bot, out of the import path. Unlike PYTHONSAFEPATH
    it does not affect programs that the process starts.
    """
    return [sys.executable, "-P", "-m", name, *options]


def start(command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a child that gets SIGTERM when its parent dies, also by kill -9 (Linux).

    Call it from a thread that lives as long as the child should, such as the main thread. The child
    has its own process group: Ctrl-C in the terminal reaches only the parent, which then stops its
    children one after the other.
    """
    return subprocess.Popen(command, preexec_fn=dying_with(os.getpid()), process_group=0, **options)


def dying_with(parent: int) -> Callable[[], None]:
    """The function that a child calls first to get SIGTERM when its parent dies."""

    def at_birth() -> None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        # If the parent died before the line above, the kernel sends no signal.
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
