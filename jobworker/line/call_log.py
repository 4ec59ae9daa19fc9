"""One row in `calls` per LINE API call: what LINE tells bot makers to keep, since it gives out
no logs of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from pymongo.collection import Collection

from jobworker.metrics import WorkerMetrics
from jobworker.row_log import RowLog
from linedesk.store.records.calls import CallRecord
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)


class CallLog(RowLog):
    """The rows of `calls`; each call is counted in the figures, too."""

    def __init__(self, collection: Collection[Any], figures: WorkerMetrics | None = None) -> None:
        self._figures = figures or WorkerMetrics()
        super().__init__(collection, unwritten=self._figures.unwritten_rows["calls"].inc)

    @contextmanager
    def noted(
        self, method: str, endpoint: str, context: Mapping[str, Any], *, host: str = "api"
    ) -> Iterator[CallRecord]:
        """Note one call; the caller fills in `status` and `request_id` when there is an answer."""
        row = CallRecord(
            at=datetime.now(UTC),
            method=method,
            endpoint=endpoint,
            event_id=context.get(EVENT_ID),
            key=context.get("key"),
            attempt=context.get("attempt", 1),
            also=context.get("also") or (),
        )
        started = time.monotonic()
        try:
            yield row
        finally:
            seconds = time.monotonic() - started
            row.ms = round(seconds * 1000, 1)
            log.info(
                "called LINE method=%s endpoint=%s status=%s request_id=%s event_id=%s "
                "attempt=%d ms=%.1f",
                *(row.method, row.endpoint, row.status, row.request_id),
                *(row.event_id, row.attempt, row.ms),
            )
            self._figures.called(host, endpoint, row.status, seconds)
            self.add(row.to_document())
