"""recvq: one document for each event of LINE (`linedesk.store.documents.make_document`)."""

from __future__ import annotations

from typing import Final

EVENT_ID: Final = "eventId"
"""Also the field of `jobs`, `calls`, `outbox` and `control` that names the event."""
ACCEPT_TIME: Final = "acceptTime"
"""When the front desk accepted the webhook."""
