"""The clock since boot, which nothing sets and no sleep stops."""

from __future__ import annotations

import time


def boottime() -> float:
    """Seconds since boot, those included in which the machine or the process stood still."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
