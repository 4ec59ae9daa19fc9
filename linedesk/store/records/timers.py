"""`schedule`: one row for each timer; jobworkers set and cancel it, the dispatcher fires it.

Besides these fields a row has `channel`, `key`, `name`, `n` (the number of its conversation's
record that set or cancelled it), `every` (see `linedesk.store.timers.Daily`), `data` and `source`.
"""

from __future__ import annotations

from typing import Final

RUN_AT: Final = "runAt"
"""None: it does not fire again."""
SET_BY: Final = "setBy"
"""The name of the event that set it."""
RANG: Final = "rang"
"""The time for which a daily timer last fired."""
SET_ASIDE: Final = "setAside"
"""Why the row can never fire; the operator has to act."""
ENDED_AT: Final = "endedAt"
