"""`jobs`: one row for each run of a job, with or without a call of a handler (`jobworker.runs`)."""

from __future__ import annotations

from typing import Final

WAITED_MS: Final = "waitedMs"
"""From the webhook's arrival to this run."""
GATHERED_WITH: Final = "gatheredWith"
"""The name of the first message of a group that was handled together; not set for that one."""
PLACE: Final = "place"
"""File and line where the handler raised its error."""
