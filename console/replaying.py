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
from recvq.replay import Replays, effect_again, event_again, replay_name


class Replaying:
    """Replays letters of one database, as far as recvq's guard lets it."""

    def __init__(self, database: Database[Any]) -> None:
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
            raise NotReplayed("somebody else replayed or dropped it meanwhile")
        return str(document["eventId"])

    def prepared(self, id_: str, *, again: bool, force: bool) -> tuple[Letter, Document]:
        """The letter and what would go into recvq; writes nothing. Raises NotReplayed."""
        letter = whole(self._letters, id_)
        if letter is None:
            raise NotReplayed("it was dropped meanwhile")
        if letter.get("replayedAt") and not again:
            raise NotReplayed(f"it was replayed at {local(letter['replayedAt'])}", unless="again")
        return letter, _document(letter, now=datetime.now(UTC), force=force)


def _document(letter: Letter, *, now: datetime, force: bool) -> Document:
    """What goes into recvq. Raises NotReplayed, also for a letter that a person has changed."""
    name = replay_name(letter)
    if "effect" in letter:
        return effect_again(letter, _effect(letter, name, now, force=force), name=name, now=now)
    document = letter.get("document")
    if not isinstance(document, Mapping) or not isinstance(document.get("event"), Mapping):
        raise NotReplayed("it holds neither an event nor a send")
    if document.get("unsent"):
        raise NotReplayed("its message was taken back by its sender")
    return event_again(letter, name=name, now=now)


def _effect(letter: Letter, name: str, now: datetime, *, force: bool) -> Document:
    if not is_sound(letter) or not all(isinstance(letter.get(n), str) for n in ("channel", "key")):
        raise NotReplayed("its send is not whole, or names no conversation")
    try:
        return anew(letter["effect"], name=name, now=now, force=force)
    except MayArriveTwice as error:
        raise NotReplayed(f"{error}, so it may arrive twice", unless="force") from error
