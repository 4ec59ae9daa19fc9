"""Regular checks on the thread that writes rows."""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod

import pymongo
from pymongo.errors import PyMongoError

from linedesk.runtime.outage import MONGODB
from linedesk.store.errors import QueueError, is_outage, translate

log = logging.getLogger(__name__)

# The shortest pause after an error: MongoDB is away, or an index does not exist yet.
AGAIN_SECONDS = 60.0


class Look(ABC):
    """Done at most once in `every_seconds`, unless more is left to do. Belongs to one thread."""

    what = ""
    every_seconds = 3600.0
    limit_seconds = 10.0

    def __init__(self) -> None:
        self._look_at = -math.inf

    @abstractmethod
    def act(self) -> bool:
        """Do it; returns whether more is left. May raise errors of MongoDB."""

    def look(self) -> None:
        """Do it if it is time; raises nothing."""
        now = time.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + self.every_seconds
        try:
            with pymongo.timeout(self.limit_seconds):
                if self.act():
                    self._look_at = -math.inf
            MONGODB.works(self.what)
        except (PyMongoError, QueueError) as error:
            self._look_at = now + max(self.every_seconds, AGAIN_SECONDS)
            found = translate(error) if isinstance(error, PyMongoError) else error
            reason = str(found) if isinstance(found, QueueError) else type(error).__name__
            if is_outage(found):
                MONGODB.fails(self.what, reason)
            else:
                log.warning('not checked, trying again later: %s reason="%s"', self.what, reason)
