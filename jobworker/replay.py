"""Carrying out anew what was given up: the effect of a dead letter, and its decision. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from jobworker.conversations import Decision
from jobworker.delivery import RETRY_KEY_LIFE, Send, Way
from jobworker.errors import MayArriveTwice
from jobworker.timers import is_timer, is_whole
from recvq.documents import Document


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


def replayed(document: Mapping[str, Any]) -> Decision | None:
    """The decision that a replayed effect is, without a handler; None for any other document."""
    effect = document.get("effect")
    return Decision({}, [effect]) if isinstance(effect, dict) else None


def is_sound(document: Mapping[str, Any]) -> bool:
    """Whether a document's effect, if it has one, can be recorded; a hand-made one may not."""
    if "effect" not in document:
        return True
    try:
        if is_timer(document["effect"]):
            return is_whole(document["effect"])
        Send.from_document(document["effect"])
    except (KeyError, TypeError, ValueError):
        return False
    return True
