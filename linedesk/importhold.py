"""The lease while an import runs: no dispatcher begins before the import has come to its end.

From the first write on it does not run out, so a kill, or a restart of the machine, leaves the
dispatchers waiting as standbys; only the next import goes on from there. Who dies before that
leaves a database that is as it was, and a lease like any that is not given back.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pymongo import ReturnDocument
from pymongo.database import Database

from dispatcher.lease import VACANT, is_dead, owner_name
from linedesk.errors import NotImported
from recvq.collections import DISPATCHER, EPOCHS
from recvq.connect import DURABLE
from recvq.documents import LEASES, Document
from recvq.errors import SetupError, translated

# What the owner of the lease begins with; so no dispatcher takes it for a dead one of its kind.
IMPORT = "import "
FOR_GOOD = datetime(9999, 1, 1, tzinfo=UTC)
# For looking, and for exporting what is to be replaced.
LOOKING_SECONDS = 3600.0


class Hold:
    """One import's hold on the lease. Every method raises StoreUnavailable."""

    def __init__(self, database: Database[Any], *, owner: str | None = None) -> None:
        self._leases = database[LEASES].with_options(write_concern=DURABLE)
        self._name = owner or owner_name()
        self._owner = self._name
        self.epoch = 0
        self.is_half_written = False
        """Whether an import has begun to write, be it this one or one that did not end."""

    def take(self, *, above: int, take_over: bool) -> None:
        """Take the lease, with an epoch that is higher than `above` and than any of the database.

        `take_over` takes it from an import of another machine or boot, too: whether that still
        runs is not known. Raises NotImported where somebody holds it, SetupError without `init`.
        """
        with translated():
            row = self._leases.find_one({"_id": DISPATCHER})
            counter = {"_id": EPOCHS}
            if row is None:
                raise SetupError("the lease's row is missing: run `linedesk init` first")
            claim = self._claim(row, take_over=take_over)
            if self._leases.count_documents(claim) == 0:
                raise NotImported(_held(row))
            self._leases.update_one(counter, {"$max": {"epoch": above}})
            epoch = self._next_epoch(counter)
            self.is_half_written = bool(row.get("importing"))
            if self.is_half_written:
                self._owner = f"{IMPORT}{self._name}"
            held = {"owner": self._owner, "epoch": epoch, "until": self._until()}
            if not self._leases.update_one(
                {"$and": [claim, {"epoch": {"$lt": epoch}}]}, [{"$set": held}]
            ).matched_count:
                raise NotImported(_held(row))
        self.epoch = epoch

    def _until(self) -> Any:
        if self.is_half_written:
            return FOR_GOOD
        return {"$add": ["$$NOW", int(LOOKING_SECONDS * 1000)]}

    def _next_epoch(self, counter: Document) -> int:
        drawn = self._leases.find_one_and_update(
            counter, {"$inc": {"epoch": 1}}, return_document=ReturnDocument.AFTER
        )
        if drawn is None:
            raise SetupError("the counter of epochs is missing: run `linedesk init` first")
        return int(drawn["epoch"])

    def _claim(self, row: Mapping[str, Any], *, take_over: bool) -> Document:
        """A filter that matches the row only while it may be taken."""
        owner = str(row["owner"] or "")
        ended = is_dead(owner.removeprefix(IMPORT)) or owner.removeprefix(IMPORT) == self._name
        if ended or (take_over and owner.startswith(IMPORT)):
            return {"_id": DISPATCHER, "owner": row["owner"], "epoch": row["epoch"]}
        return {"_id": DISPATCHER, **VACANT}

    def begin(self) -> None:
        """Hold it for good: from now on the database is half written. Raises NotImported."""
        # Before the write, whose outcome may be unknown.
        self.is_half_written = True
        owner = f"{IMPORT}{self._name}"
        self._change({"$set": {"owner": owner, "until": FOR_GOOD, "importing": True}})
        self._owner = owner

    def require(self) -> None:
        """Raise NotImported if somebody else has taken over."""
        with translated():
            if self._leases.find_one(self._own) is None:
                raise NotImported("the lease was taken over meanwhile")

    def release(self) -> None:
        """Leave the lease to whoever waits for it: the database is whole. Raises NotImported."""
        self._change([{"$set": {"owner": None, "until": "$$NOW"}}, {"$unset": "importing"}])

    @property
    def _own(self) -> Document:
        return {"_id": DISPATCHER, "owner": self._owner, "epoch": self.epoch}

    def _change(self, update: Any) -> None:
        with translated():
            if not self._leases.update_one(self._own, update).matched_count:
                raise NotImported("the lease was taken over meanwhile")


def _held(row: Mapping[str, Any]) -> str:
    if str(row["owner"] or "").startswith(IMPORT):
        return (
            "another import runs, or was cut off on another machine, in another container or by a "
            "restart of this machine; if it runs no more: --take-over"
        )
    return "a dispatcher or another import runs: stop it first (systemctl stop linedesk-dispatcher)"
