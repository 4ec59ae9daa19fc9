"""`linedesk import`: writes the state of an export into the database, while no dispatcher runs.

The state is conversations, timers and dead letters; the database's own dead letters are kept.
recvq, `held` and `progress` do not change, and front desks may keep storing. From its first write
on an import holds the dispatcher's lease without a time limit (`LeaseHold`). After a crashed import
dispatchers therefore wait until another import completes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any

import bson
import click
from bson.raw_bson import RawBSONDocument
from pymongo import ReturnDocument
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import BulkWriteError
from rich.console import Console

from dispatcher.commit.committer import Committer
from dispatcher.commit.progress import Progress
from dispatcher.lease import VACANT, is_dead, owner_name
from linedesk.backup.export import export_to
from linedesk.backup.file import Header, check, documents
from linedesk.backup.queue import finish_decided, require_progress
from linedesk.backup.transform import TOLD, Restored, Written
from linedesk.operate.format import local
from linedesk.operate.text import known
from linedesk.settings.errors import NotImported
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database
from linedesk.store.client import DURABLE
from linedesk.store.collections import DISPATCHER, EPOCHS, require_schema
from linedesk.store.documents import (
    BATCHES,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    LEASES,
    PROGRESS,
    RECVQ,
    SCHEDULE,
    Document,
)
from linedesk.store.errors import SetupError, StoreUnavailable, translated
from linedesk.store.insert import DUPLICATE_KEY
from linedesk.store.records.answers import WITH_ANSWERS
from linedesk.store.records.batches import READY
from linedesk.store.records.batches import STATE as BATCH_STATE
from linedesk.store.records.effects import WITH_OUTBOX
from linedesk.store.records.leases import EPOCH, IMPORTING, OWNER, UNTIL, LeaseRecord

# The prefix of the lease's owner: a dispatcher never mistakes an import for a dead dispatcher.
IMPORT = "import "
FOR_GOOD = datetime(9999, 1, 1, tzinfo=UTC)
# For the inspection, and for the export of the state that is replaced.
LOOKING_SECONDS = 3600.0


class LeaseHold:
    """One import's hold on the lease. Every method raises StoreUnavailable."""

    def __init__(self, database: Database[Any], *, owner: str | None = None) -> None:
        self._leases = database[LEASES].with_options(write_concern=DURABLE)
        self._name = owner or owner_name()
        self._owner = self._name
        self.epoch = 0
        self.is_half_written = False
        """Whether an import has begun to write: this one or an earlier incomplete one."""

    def take(self, *, above: int, take_over: bool) -> None:
        """Take the lease, with an epoch higher than `above` and than any in the database.

        `take_over` also takes it from an import of another machine or boot, which may still run.
        Raises NotImported if the lease is held, SetupError without `init`.
        """
        with translated():
            row = self._leases.find_one({"_id": DISPATCHER})
            counter = {"_id": EPOCHS}
            if row is None:
                raise SetupError("the lease's row is missing: run `linedesk init` first")
            lease = LeaseRecord.from_document(row)
            claim = self._claim(lease, take_over=take_over)
            if self._leases.count_documents(claim) == 0:
                raise NotImported(_held(lease))
            self._leases.update_one(counter, {"$max": {EPOCH: above}})
            epoch = self._next_epoch(counter)
            self.is_half_written = lease.is_importing
            if self.is_half_written:
                self._owner = f"{IMPORT}{self._name}"
            held = {OWNER: self._owner, EPOCH: epoch, UNTIL: self._until()}
            if not self._leases.update_one(
                {"$and": [claim, {EPOCH: {"$lt": epoch}}]}, [{"$set": held}]
            ).matched_count:
                raise NotImported(_held(lease))
        self.epoch = epoch

    def _until(self) -> Any:
        if self.is_half_written:
            return FOR_GOOD
        return {"$add": ["$$NOW", int(LOOKING_SECONDS * 1000)]}

    def _next_epoch(self, counter: Document) -> int:
        drawn = self._leases.find_one_and_update(
            counter, {"$inc": {EPOCH: 1}}, return_document=ReturnDocument.AFTER
        )
        if drawn is None:
            raise SetupError("the counter of epochs is missing: run `linedesk init` first")
        return int(drawn[EPOCH])

    def _claim(self, lease: LeaseRecord, *, take_over: bool) -> Document:
        """A filter that matches the row only while it may be taken."""
        owner = lease.owner or ""
        ended = is_dead(owner.removeprefix(IMPORT)) or owner.removeprefix(IMPORT) == self._name
        if ended or (take_over and owner.startswith(IMPORT)):
            return {"_id": DISPATCHER, **lease.holding}
        return {"_id": DISPATCHER, **VACANT}

    def begin(self) -> None:
        """Hold the lease without a time limit: from now on the database is half written. Raises
        NotImported.
        """
        # Before the write, whose outcome may be unknown.
        self.is_half_written = True
        owner = f"{IMPORT}{self._name}"
        self._change({"$set": {OWNER: owner, UNTIL: FOR_GOOD, IMPORTING: True}})
        self._owner = owner

    def require(self) -> None:
        """Raise NotImported if another process has taken the lease over."""
        with translated():
            if self._leases.find_one(self._own) is None:
                raise NotImported("the lease was taken over meanwhile")

    def release(self) -> None:
        """Release the lease: the database is complete. Raises NotImported."""
        self._change([{"$set": {OWNER: None, UNTIL: "$$NOW"}}, {"$unset": IMPORTING}])

    @property
    def _own(self) -> Document:
        return {"_id": DISPATCHER, OWNER: self._owner, EPOCH: self.epoch}

    def _change(self, update: Any) -> None:
        with translated():
            if not self._leases.update_one(self._own, update).matched_count:
                raise NotImported("the lease was taken over meanwhile")


def _held(lease: LeaseRecord) -> str:
    if (lease.owner or "").startswith(IMPORT):
        return (
            "another import runs, or was cut off on another machine, in another container or by a "
            "restart of this machine; if it no longer runs, use --take-over"
        )
    return "a dispatcher or another import runs: stop it first (systemctl stop linedesk-dispatcher)"


STATE = (CONVERSATIONS, SCHEDULE)
BATCH_ROWS = 1_000
BATCH_BYTES = 8 * 1024 * 1024
# Processes of the exported database may have taken epochs after the export, but fewer than this.
EPOCHS_SINCE = 1_000_000
UNENDED = "not completed: no dispatcher starts until an import is completed"


def import_export(
    settings: Settings, source: Path, *, replace: Path | None, take_over: bool
) -> None:
    """Check the whole file, write its content and print the result.

    Raises BackupError and NotImported with nothing changed. Raises StoreUnavailable if the import
    has to be run again.
    """
    screen = Console(stderr=True)
    with screen.status("checking"):
        header = check(source)
    with (
        open_database(settings, app_name="linedesk-import") as database,
        screen.status("importing"),
    ):
        restored = restore(database, source, header, replace=replace, take_over=take_over)
    click.echo(
        f"export of {header.database} as of {local(header.at)}, "
        f"by linedesk {header.linedesk} from MongoDB {header.mongodb}"
    )
    for what in TOLD:
        click.echo(f"{restored.became[what]:>9,}  {known(what)}")
    click.echo("imported: start the dispatcher; then judge: linedesk dead list --cause restored")


def restore(
    database: Database[Any],
    source: Path,
    header: Header,
    *,
    replace: Path | None = None,
    take_over: bool = False,
) -> Restored:
    """Replace the database's state by a checked export.

    `replace` is the file for an export of the current state. `take_over` is for `LeaseHold.take`.
    It deletes the old state first, so the progress of an earlier incomplete import does not matter.
    """
    restored = Restored(at=header.at, now=datetime.now(UTC))
    for collection, document in documents(source):
        restored.look(collection, document)
    require_schema(database)
    hold = LeaseHold(database)
    with translated():
        progress = database[PROGRESS].find_one({"_id": DISPATCHER}, {"epoch": 1}) or {}
    above = max(restored.highest_epoch, int(progress.get("epoch") or 0)) + EPOCHS_SINCE
    hold.take(above=above, take_over=take_over)
    try:
        require_progress(database, exported_at=header.at)
        if not hold.is_half_written:
            _clear_the_way(database, replace)
        hold.begin()
        # Done first: documents that a front desk stores from now on are to be handled, and MongoDB
        # refuses saves of a frozen former dispatcher.
        Progress(Committer(database), feed="", epoch=hold.epoch).take_over()
        finish_decided(database, epoch=hold.epoch)
        restored.epoch = hold.epoch
        restored.is_known = lambda place: _knows(database, place)
        write(database, _left(database, restored), hold)
        # Multicasts are deleted after their members: until then they show a repeated import whether
        # the members were tried.
        for name in (*STATE, BATCHES):
            _empty(database[name], hold)
        carried = (one for written in documents(source) for one in restored.carry(*written))
        write(database, chain(carried, restored.rest()), hold)
        hold.release()
    except BaseException:
        if hold.is_half_written:
            click.echo(UNENDED, err=True)
        else:
            hold.release()
        raise
    return restored


def _knows(database: Database[Any], place: Document) -> bool:
    """Whether a document is in recvq or in `held`; then this database's progress applies to it."""
    names = (RECVQ, HELD) if "_id" in place else (RECVQ,)
    with translated():
        return any(database[name].find_one(place, {"_id": 1}) for name in names)


def _clear_the_way(database: Database[Any], replace: Path | None) -> None:
    """Raise NotImported if the import would overwrite state that has no other copy."""
    with translated():
        filled = [name for name in STATE if database[name].find_one({}, {"_id": 1}) is not None]
    if not filled:
        return
    if replace is None:
        raise NotImported(
            f"{database.name} is not empty, it has {' and '.join(filled)}: to replace it use "
            f"--replace NEWFILE, which first exports the current state to NEWFILE"
        )
    click.echo(f"exported the current state to {export_to(database, replace)}")


def _left(database: Database[Any], restored: Restored) -> Iterator[Written]:
    """Dead letters of sends that wait in the replaced database, in outboxes or for a tap."""
    with translated():
        rows = database[BATCHES].find({BATCH_STATE: READY}, {"_id": 1})
        ready = {row["_id"] for row in rows}
        for conversation in database[CONVERSATIONS].find({"$or": [WITH_OUTBOX, WITH_ANSWERS]}):
            yield from restored.left(conversation, is_ready=ready.__contains__)


def write(database: Database[Any], written: Iterable[Written], hold: LeaseHold) -> None:
    """Store documents in batches of some megabytes, while the lease is held.

    Raises NotImported for a document that MongoDB refuses, StoreUnavailable.
    """
    for name, batch in _batches(written):
        hold.require()
        _insert(database[name], batch)


def _batches(written: Iterable[Written]) -> Iterator[tuple[str, list[RawBSONDocument]]]:
    """The documents in order, grouped by collection."""
    waiting: dict[str, list[RawBSONDocument]] = {}
    sizes: dict[str, int] = {}
    for collection, document in written:
        raw = RawBSONDocument(bson.encode(document))
        batch = waiting.setdefault(collection, [])
        batch.append(raw)
        sizes[collection] = sizes.get(collection, 0) + len(raw.raw)
        if len(batch) >= BATCH_ROWS or sizes[collection] >= BATCH_BYTES:
            yield collection, waiting.pop(collection)
            del sizes[collection]
    yield from waiting.items()


def _insert(collection: Collection[Any], batch: list[RawBSONDocument]) -> None:
    """Store documents on a majority. An existing dead letter of the same id is kept."""
    try:
        with translated():
            collection.insert_many(batch, ordered=False)
    except BulkWriteError as error:
        for one in error.details["writeErrors"]:
            if collection.name != DEADLETTERS or one["code"] != DUPLICATE_KEY:
                raise NotImported(
                    f"MongoDB refuses {one['op']['_id']!r} of {collection.name} (error "
                    f"{one['code']}): remove the cause, such as a validator, and run the import "
                    f"again"
                ) from error
        if error.details["writeConcernErrors"]:
            raise StoreUnavailable("documents not confirmed in time") from error


def _empty(collection: Collection[Any], hold: LeaseHold) -> None:
    """Delete in slices, since one large delete may exceed the time limit of a command."""
    while True:
        hold.require()
        with translated():
            ids = [row["_id"] for row in collection.find({}, {"_id": 1}).limit(BATCH_ROWS)]
            if not ids:
                return
            collection.delete_many({"_id": {"$in": ids}})
