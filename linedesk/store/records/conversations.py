"""`conversations`: one document a conversation; `jobworker.record` reads and writes it."""

from __future__ import annotations

from typing import Final

UNSENT_AT: Final = "unsentAt"
"""When a message of it was taken back last."""
