"""One check after the other on the booted machine, each a line of a table."""

import subprocess
import time
import traceback
from collections.abc import Callable, Sequence

from tests.booted.box import Box

Check = Callable[[Box], str]
CHECKS: list[tuple[str, bool, Check]] = []


def check(words: str, *, vital: bool = False) -> Callable[[Check], Check]:
    """Add a check with this title; it returns details and fails by AssertionError.

    If a vital check fails, the rest cannot run.
    """

    def add(function: Check) -> Check:
        CHECKS.append((words, vital, function))
        return function

    return add


def go(box: Box, only: str = "") -> Sequence[str]:
    """Run the vital checks and those whose title contains `only`; returns the failed ones."""
    failed = []
    for words, vital, function in CHECKS:
        if not vital and only not in words:
            continue
        began = time.monotonic()
        problem, note = _made(function, box)
        mark = "✗" if problem else "✓"
        print(f"{mark} {time.monotonic() - began:6.1f} s  {words}: {problem or note}", flush=True)
        if problem:
            failed.append(words)
            if vital:
                break
            box.recover()
    return failed


def _made(function: Check, box: Box) -> tuple[str, str]:
    """The error, or the details."""
    try:
        return "", function(box)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        with (box.work / "failures.txt").open("a") as file:
            traceback.print_exc(file=file)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # The file has all of it.
        return lines[0] if len(lines) == 1 else f"{lines[0]} ... {lines[-1]}", ""
