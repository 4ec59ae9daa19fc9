"""Why an event or a send waits: a code with its values, as the field `why` of rows in `status` and
`held`.

Earlier releases stored an English sentence there.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from linedesk.store.documents import Document


class Why(StrEnum):
    """The codes. `until`, if a row has it, is the time of the next try."""

    BEHIND_SLOW_HANDLER = "behind_slow_handler"
    CONVERSATION_CHANGED = "conversation_changed"
    """The conversation was written between the handler's read and the record."""
    CRASH_SUSPECT = "crash_suspect"
    DECIDED_ELSEWHERE = "decided_elsewhere"
    """Another process has decided a message that was gathered with it."""
    DEFERRED = "deferred"
    FETCHING_PROFILE = "fetching_profile"
    GATHERING = "gathering"
    HANDLER_FAILED = "handler_failed"
    """With `failures`, the number of failed tries, and `tries`, that of all."""
    HANDLER_RUNS = "handler_runs"
    """Of an async handler; the console says it of an event on a thread, too."""
    LEASE_NOT_FRESH = "lease_not_fresh"
    LINE_NOT_CALLED = "line_not_called"
    MESSAGE_TAKEN_BACK = "message_taken_back"
    """Its sender took back a message that was gathered with it."""
    MOVING_TO_HELD = "moving_to_held"
    NO_SLOW_PLACE = "no_slow_place"
    NO_TURN = "no_turn"
    NO_WORKER = "no_worker"
    """With `cause`, a code of the leader of the worker processes."""
    NOT_READ = "not_read"
    """MongoDB does not return the stored document."""
    NOT_RECORDED = "not_recorded"
    NOT_SAVED = "not_saved"
    OUTBOX_FULL = "outbox_full"
    PAUSED = "paused"
    STORE_SILENT = "store_silent"
    SUSPECT_NOT_STORED = "suspect_not_stored"

    # Of sends. With `people`, it travels in one multicast to so many.
    FIRST_OF = "first_of"
    """The console says it of an outbox, with `count`."""
    FIRST_TRIED_OF = "first_tried_of"
    GATE = "gate"
    """With `behind`, the number of calls of better classes that wait at the gate."""
    LINE_ANSWERED = "line_answered"
    """With `status`."""
    LINE_FAILS = "line_fails"
    MONTHS_LIMIT = "months_limit"
    """With `status`: LINE's count of this month has to be read."""
    NO_ANSWER = "no_answer"
    NO_CONNECTION = "no_connection"
    NOT_CONFIRMED = "not_confirmed"
    RATE_LIMITED = "rate_limited"
    SENDING = "sending"
    TOKEN_REFUSED = "token_refused"  # no password
    WRITE_REFUSED = "write_refused"
    """With MongoDB's `errorCode`, or `tooLarge`."""


def reason(why: Why, seconds: float | None = None, **values: Any) -> Document:
    """The reason as stored; with `seconds` until the next try."""
    until = None if seconds is None else datetime.now(UTC) + timedelta(seconds=seconds)
    return {"code": why.value, **values, **({"until": until} if until else {})}


def code_of(why: object) -> str:
    """The code of a stored reason; an earlier release's sentence as it is."""
    return str(why.get("code") if isinstance(why, Mapping) else why or "")
