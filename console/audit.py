"""What operators did: one row in `audit` for each act, from page and command line alike.

It is written before the act and completed after it, so that one that died half way shows. An act
whose row cannot be written is not done.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Literal

import pymongo
from bson import ObjectId
from pymongo.database import Database

from console.errors import NotDone
from recvq.connect import DURABLE
from recvq.documents import AUDIT, Document
from recvq.errors import QueueError, RecvqClosed, SetupError, StoreUnavailable, translated
from recvq.shape import require_schema

log = logging.getLogger(__name__)

BEGUN, DONE, REFUSED = "begun", "done", "refused"
Via = Literal["page", "command"]
MOST_SHOWN = 200
WHY_CHARACTERS = 500
READ_SECONDS = 5.0


class Audit:
    """Writes what one operator does; `by` is his name, `via` the way that he came."""

    def __init__(self, database: Database[Any], *, by: str, via: Via) -> None:
        self._rows = database[AUDIT].with_options(write_concern=DURABLE)
        self._who = {"by": by, "via": via}

    @contextmanager
    def noted(self, act: str, *, on: str | Sequence[str], why: str = "") -> Iterator[None]:
        """Around an act. Raises StoreUnavailable with the act not begun where MongoDB is away.

        An act that raises NotDone, or that MongoDB or recvq refuses, ends as refused. One of which
        nobody knows whether it was done stays as begun.
        """
        require_schema(self._rows.database)
        id_ = self._begin(act, on if isinstance(on, str) else list(on), why)
        try:
            yield
        except (NotDone, RecvqClosed, SetupError) as error:
            self._end(id_, f"{REFUSED}: {error}")
            raise
        except StoreUnavailable:
            log.warning("nobody knows whether it was done, begun in audit act=%s id=%s", act, id_)
            raise
        self._end(id_, DONE)

    def _begin(self, act: str, on: str | list[str], why: str) -> ObjectId:
        row: Document = {
            "_id": ObjectId(),
            "at": datetime.now(UTC),
            **self._who,
            "act": act,
            "on": on,
            "why": why[:WHY_CHARACTERS],
            "outcome": BEGUN,
        }
        # guard: audit-row-first
        with translated():
            self._rows.insert_one(row)
        id_: ObjectId = row["_id"]
        return id_

    def _end(self, id_: ObjectId, outcome: str) -> None:
        try:
            with translated():
                ended = {"outcome": outcome, "endedAt": datetime.now(UTC)}
                self._rows.update_one({"_id": id_}, {"$set": ended})
        except QueueError as error:
            # What was done is done: only its row stays as begun.
            log.warning("end of an act not written id=%s error=%s", id_, type(error).__name__)


def newest(database: Database[Any], *, limit: int = MOST_SHOWN) -> list[Document]:
    """The newest rows, the newest first. Raises StoreUnavailable."""
    with translated(), pymongo.timeout(READ_SECONDS):
        return list(database[AUDIT].find({}).sort("at", -1).limit(limit))
