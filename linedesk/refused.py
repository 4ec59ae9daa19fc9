"""What a process does that MongoDB refuses: it ends, but not at once.

systemd reads a password anew for each start, and gives a service up that starts too often. So a
refused one takes long enough never to be given up, however late the password is set right.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any

from recvq.service import Service

log = logging.getLogger(__name__)

# The units allow 60 starts in 15 minutes (dispatcher) and 30 in 10 (scheduler).
LEAST_SECONDS = 25.0


def let_time_pass(
    began: float, inbox: SimpleQueue[Any], service: Service, *, least_seconds: float = LEAST_SECONDS
) -> None:
    """Wait until `least_seconds` after `began` (a time of time.monotonic()), or a signal.

    A process that has run for longer ends at once: its start is what reads a new password.
    """
    left = began + least_seconds - time.monotonic()
    if left <= 0:
        return
    log.error("refused by MongoDB, waiting for the next start seconds=%.0f", left)
    service.unwell("refused by MongoDB, waiting for the next start; the log says why")
    with suppress(Empty):
        inbox.get(timeout=left)
