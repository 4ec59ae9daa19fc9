"""The clock since boot, which is never set and also runs during sleep."""

from __future__ import annotations

import time


def boottime() -> float:
    """Seconds since boot, including times in which the machine or the process was suspended."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
