"""Effects that wait or are under way: `outbox` and `call` of a conversation, and reading both.
Pure.

`jobworker.effects` makes the effects. `outbox` is an object whose keys are places, so the sorted
keys give the order in which the effects were recorded:

    outbox: {"<epoch>-<running number of the process>": effect, ...}

`call` is the one call of LINE that is under way or of unknown outcome. It names the places of its
sends, which all count as tried:

    call: {at, as, key, token, members}   sends of this conversation alone
    call: {at, batch, members}            a claim: they travel in the multicast `batch`

A claim counts only while its document in `batches` is ready.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from operator import itemgetter
from typing import Any, Final

from linedesk.store.documents import Document

EFFECT_ID: Final = "effectId"
"""The field that names an effect in `control` and `status`."""
RETRY_KEY: Final = "retryKey"
RETRY_KEY_LIFE: Final = timedelta(hours=23)
"""LINE keeps a retry key for 24 hours from the first request; an hour is left as a margin."""
TOKEN_FROM: Final = "tokenFrom"
"""When the webhook with the reply token arrived."""
TRIED_AT: Final = "triedAt"
"""In a send of a dead letter or of its replay: the start of a try with unknown outcome."""
ANSWER_TO: Final = "answerTo"
"""In a send: the event that it answers after a tap (`linedesk.store.records.answers`)."""
SEND: Final = "send"
"""The `type` of a send."""

OUTBOX: Final = "outbox"
CALL: Final = "call"
MEMBERS: Final = "members"
"""In `call`: the places of its sends."""
BATCH: Final = "batch"
"""In `call`: the `_id` in `batches`."""

# The filter of the partial index; fast queries need it.
WITH_OUTBOX: Mapping[str, Any] = {OUTBOX: {"$gt": {}}}
"""Conversations whose outbox is not empty."""

_IS_OBJECT = {"$eq": [{"$type": f"${OUTBOX}"}, "object"]}
OUTBOX_PAIRS: Mapping[str, Any] = {"$objectToArray": {"$cond": [_IS_OBJECT, f"${OUTBOX}", {}]}}
"""For aggregations: the outbox as pairs of place `k` and effect `v`, unsorted."""


def place_of(epoch: int, number: int) -> str:
    """The place of the effect recorded by the leader of `epoch` under `number`."""
    return f"{epoch:010d}-{number:010d}"


def unproved_try(send: Mapping[str, Any], now: datetime) -> datetime | None:
    """When a send was tried with unknown outcome, if LINE no longer detects a repetition of it.

    As long as LINE keeps the retry key it accepts the same send once (architecture: G5).
    """
    tried = send.get(TRIED_AT)
    if not isinstance(tried, datetime):
        return None
    has_key = send.get(RETRY_KEY) is not None and send.get("as") != "reply"
    return None if has_key and now < tried + RETRY_KEY_LIFE else tried


def effects_of(conversation: Mapping[str, Any]) -> list[tuple[str, Document]]:
    """The effects of a conversation, each with its place, in the order of recording."""
    outbox = conversation.get(OUTBOX)
    # Other values, typed in a shell, are ignored.
    return sorted(outbox.items(), key=itemgetter(0)) if isinstance(outbox, Mapping) else []
