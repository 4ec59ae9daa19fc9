"""Carrying out anew what was given up: the effect of a dead letter, and its decision."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from jobworker.conversations import Decision
from jobworker.effects import RETRY_KEY_LIFE, Send, Way, is_timer, is_whole, of_event
from jobworker.errors import MayArriveTwice
from recvq.documents import Document, name_of
from recvq.replay import REFUSED

log = logging.getLogger(__name__)

NO_LETTER = f"{REFUSED}it asks for a send or timer, and no dead letter under replay has one"
NO_ROW = f"{REFUSED}it is shaped like a timer's ring, and no row of schedule has what it tells"


def anew(effect: Mapping[str, Any], *, name: str, now: datetime, force: bool = False) -> Document:
    """The effect of a dead letter as the event `name` is to record it; never a reply any more.

    A timer is set or cancelled over whatever was set meanwhile.

    A new retry key only where every try was definitely refused. Where one is of unknown outcome,
    the same key, under which LINE takes it once, for as long as LINE keeps it (design: G5);
    after that raises MayArriveTwice, unless `force` accepts it.
    """
    if is_timer(effect):
        return {**effect, "id": f"{name}/timer/{effect['name']}", "eventId": name}
    given_up = Send.from_document(effect)
    send = replace(
        given_up,
        id=f"{name}/0",
        event_id=name,
        way=Way.PUSH if given_up.way is Way.REPLY else given_up.way,
        at=now,
        token=None,
        token_from=None,
    )
    tried = given_up.tried_at
    if tried is not None and given_up.tried_as is not Way.REPLY and now < tried + RETRY_KEY_LIFE:
        return send.as_document()
    if tried is not None and not force:
        raise MayArriveTwice(f"a try of {tried:%Y-%m-%d %H:%M} UTC may have arrived")
    fresh = replace(send, retry_key=str(uuid.uuid4()), tried_at=None, tried_as=None)
    return fresh.as_document()


def carried_out(document: Mapping[str, Any], letter: Mapping[str, Any] | None) -> Decision | None:
    """The decision that a replayed effect is, without a handler; None where it is to be refused.

    `letter` is what the document is a replay of. All that is sent or set stands there: of the
    document only the moment counts, by which the operator's process judged whether it may arrive
    twice.
    """
    if letter is None or "effect" not in letter or not is_sound(letter):
        return None
    moment = min(document["acceptTime"], datetime.now(UTC))
    effect = anew(letter["effect"], name=name_of(document), now=moment, force=True)
    return Decision({}, [effect])


def refused(document: Document, cause: str) -> Decision:
    """The decision to give up a document that asks for what nothing stands behind."""
    log.error("%s event_id=%s", cause, name_of(document))
    now = datetime.now(UTC)
    letter = of_event(document, cause=cause, traceback="", attempts=0, first_at=now)
    return Decision({}, [letter])


def is_sound(document: Mapping[str, Any]) -> bool:
    """Whether the effect in it can be recorded; a hand-made one may not."""
    try:
        if is_timer(document["effect"]):
            return is_whole(document["effect"])
        Send.from_document(document["effect"])
    except (KeyError, TypeError, ValueError):
        return False
    return True
