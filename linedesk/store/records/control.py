"""`control`: what an operator ordered; `linedesk.store.control` has its rows as typed values."""

from __future__ import annotations

from typing import Final

DONE_AT: Final = "doneAt"
"""When a release was carried out; a pause has none."""
