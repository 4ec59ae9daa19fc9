"""`control`: the operator's orders; `linedesk.store.control` has its rows as typed values."""

from __future__ import annotations

from typing import Final

DONE_AT: Final = "doneAt"
"""When a release was carried out; pauses do not have it."""
