"""Replaying one dead letter: whether it may be, and what of it goes into recvq."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymongo.database import Database

from console.choice import whole
from console.errors import NotReplayed
from console.letters import Letter
from console.words import local
from jobworker.errors import MayArriveTwice
from jobworker.replay import anew, is_sound
from recvq.documents import DEADLETTERS, Document
from recvq.guard import Guard
from recvq.replay import Replays, asks_for_effect, effect_again, event_again, replay_name
from recvq.shape import require_schema

# A dispatcher that writes by this number looks for the effect in recvq.
BRINGS_ITS_EFFECT = 1


class Replaying:
    """Replays letters of one database, as far as recvq's guard lets it."""

    def __init__(self, database: Database[Any]) -> None:
        self._database = database
        self._letters = database[DEADLETTERS]
        self._replays = Replays(database, Guard(database))

    def replay(self, id_: str, *, again: bool = False, force: bool = False) -> str:
        """Put a letter into recvq; returns the eventId of its replay.

        `again` replays one that was replayed, `force` what may arrive twice. Raises NotReplayed,
        RecvqClosed with nothing written, and StoreUnavailable, after which the same may be asked
        again.
        """
        letter, document = self.prepared(id_, again=again, force=force)
        if not self._replays.replay(letter, document):
            raise NotReplayed(
                "it was replayed or dropped meanwhile, or a document with the name of its replay "
                "had come before and was refused: look, then try again"
            )
        return str(document["eventId"])

    def prepared(self, id_: str, *, again: bool, force: bool) -> tuple[Letter, Document]:
        """The letter and what would go into recvq; writes nothing. Raises NotReplayed."""
        letter = whole(self._letters, id_)
        if letter is None:
            raise NotReplayed("it was dropped meanwhile")
        if letter.get("replayedAt") and not again:
            raise NotReplayed(f"it was replayed at {local(letter['replayedAt'])}", unless="again")
        document = _document(letter, now=datetime.now(UTC), force=force)
        if asks_for_effect(document) and require_schema(self._database) == BRINGS_ITS_EFFECT:
            raise NotReplayed("the dispatcher is of an older release: start this release's first")
        return letter, document


def _document(letter: Letter, *, now: datetime, force: bool) -> Document:
    """What goes into recvq. Raises NotReplayed, also for a letter that a person has changed."""
    name = replay_name(letter)
    if "effect" in letter:
        _require_replayable(letter, name, now, force=force)
        return effect_again(letter, name=name, now=now)
    document = letter.get("document")
    if not isinstance(document, Mapping) or not isinstance(document.get("event"), Mapping):
        raise NotReplayed("it holds neither an event nor a send")
    if asks_for_effect(document):
        raise NotReplayed("it holds no event: it was refused, since no dead letter stood behind it")
    if document.get("unsent"):
        raise NotReplayed("its message was taken back by its sender")
    return event_again(letter, name=name, now=now)


def _require_replayable(letter: Letter, name: str, now: datetime, *, force: bool) -> None:
    """Raise NotReplayed unless the worker can carry out what the letter holds.

    It does so as of `now`, by which is judged here whether that may arrive twice.
    """
    if not is_sound(letter) or not all(isinstance(letter.get(n), str) for n in ("channel", "key")):
        raise NotReplayed("its send is not whole, or names no conversation")
    try:
        anew(letter["effect"], name=name, now=now, force=force)
    except MayArriveTwice as error:
        raise NotReplayed(f"{error}, so it may arrive twice", unless="force") from error
