"""`schedule`: one row a timer; jobworkers set and cancel it, the scheduler lets it fire.

Beside these a row has `channel`, `key`, `name`, `n` (the number of its conversation's record that
set or cancelled it), `every` (see `linedesk.store.timers.Daily`), `data` and `source`.
"""

from __future__ import annotations

from typing import Final

RUN_AT: Final = "runAt"
"""None: it fires no more."""
SET_BY: Final = "setBy"
"""The name of the event that set it."""
RANG: Final = "rang"
"""For which time a daily timer fired last."""
SET_ASIDE: Final = "setAside"
"""Why the row can never fire; it waits for a person."""
ENDED_AT: Final = "endedAt"
