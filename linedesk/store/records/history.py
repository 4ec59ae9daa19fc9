"""`history`: a row of the dispatcher's figures every ten seconds; null for unknown values."""

from __future__ import annotations

from typing import Final

QUEUE_DOCUMENTS: Final = "queueDocuments"
OLDEST_SECONDS: Final = "oldestUnfinishedSeconds"
LAG_DOCUMENTS: Final = "lagDocuments"
LAG_SECONDS: Final = "lagSeconds"
IN_HAND_DOCUMENTS: Final = "inHandDocuments"
HELD_DOCUMENTS: Final = "heldDocuments"
BUSY_THREADS: Final = "busyThreads"
OUTBOX_EFFECTS: Final = "outboxEffects"
OLDEST_SEND_SECONDS: Final = "oldestSendSeconds"
LINE_FAILS: Final = "lineFails"
REFUSES_TOKEN: Final = 2
"""The value of `lineFails` while LINE refuses the access token; 1 while LINE fails."""
READ_RATE: Final = "readPerSecond"
DECIDED_RATE: Final = "decidedPerSecond"
CALL_RATE: Final = "callsPerSecond"
WAIT_P50: Final = "waitP50"
WAIT_P99: Final = "waitP99"
HANDLER_P50: Final = "handlerP50"
HANDLER_P99: Final = "handlerP99"

AS_FIGURES = (
    *(QUEUE_DOCUMENTS, OLDEST_SECONDS, LAG_DOCUMENTS, LAG_SECONDS),
    *(IN_HAND_DOCUMENTS, HELD_DOCUMENTS, BUSY_THREADS),
    *(OUTBOX_EFFECTS, OLDEST_SEND_SECONDS),
)
"""Fields copied from the dispatcher's figures in `status`, under the same names."""
MEASURED = (
    *AS_FIGURES,
    *(READ_RATE, DECIDED_RATE, CALL_RATE, LINE_FAILS),
    *(WAIT_P50, WAIT_P99, HANDLER_P50, HANDLER_P99),
)
"""All fields of a row except `at`."""
