"""What a process does that MongoDB refuses: it ends, but not at once.

systemd reads a password anew for each start, and gives a service up that starts too often. So a
refused one takes long enough never to be given up, however late the password is set right.
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from queue import Empty, SimpleQueue

from recvq.service import Service

log = logging.getLogger(__name__)

# The scheduler's unit allows 30 starts in 10 minutes; the dispatcher's has no limit.
LEAST_SECONDS = 25.0


def let_time_pass(
    began: float, inbox: SimpleQueue[int | BaseException], service: Service, *, why: str
) -> None:
    """Wait until LEAST_SECONDS after `began` (a time of time.monotonic()), or until a signal.

    A process that has run for longer ends at once, since the next start reads a new password.
    """
    until = began + LEAST_SECONDS
    left = until - time.monotonic()
    if left <= 0:
        return
    log.error('refused, ending in a while seconds=%.0f reason="%s"', left, why)
    service.unwell(why)
    while (left := until - time.monotonic()) > 0:
        with suppress(Empty):
            # Its other threads die of the same, and say so here, too.
            if isinstance(inbox.get(timeout=left), int):
                return
