"""`linedesk import`: puts an export into the database, while no dispatcher runs.

It brings the state: conversations, timers and dead letters. What waits to be handled is not the
export's: recvq, `held` and `progress` stay as the database has them, and front desks may store
meanwhile. Whoever dies in between leaves the lease held (`linedesk.importhold`), and the next
import begins anew.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from shutil import copyfileobj
from typing import IO, Any

import click
from pymongo.database import Database
from rich.console import Console

from console.words import local
from dispatcher.progress import Progress
from linedesk.backup import STREAM, export_to
from linedesk.backupfile import Header, Reader
from linedesk.errors import BackupError, NotImported
from linedesk.importhold import Hold
from linedesk.importqueue import finish_decided, finish_recvq, is_to_be_skipped
from linedesk.importwrites import STATE, write
from linedesk.opening import open_database
from linedesk.restored import TOLD, Restored, Written
from linedesk.settings import Settings
from recvq.collections import DISPATCHER
from recvq.documents import CONVERSATIONS, HELD, PROGRESS, RECVQ, Document
from recvq.errors import translated
from recvq.shape import require_schema

# A process of the database that is gone may have had an epoch after the export, but none so high.
EPOCHS_SINCE = 1_000_000
NO_SAY = "--recvq has no say: it is beyond doubt what of recvq is still to be handled"
UNENDED = "not ended: no dispatcher starts until an import was run to its end"


@dataclass(frozen=True)
class Wishes:
    """What an operator has decided about an import."""

    replace: Path | None = None
    """Where to export what the database holds, which then is replaced."""
    recvq: str | None = None
    """`handle` or `skip` what recvq holds; None where that is beyond doubt."""
    take_over: bool = False


def import_export(settings: Settings, source: str, wishes: Wishes, *, dry_run: bool) -> None:
    """Check the whole file, then write what it holds, and say what became of it.

    Raises BackupError and NotImported with nothing changed, StoreUnavailable where it has to be
    run again.
    """
    screen = Console(stderr=True)
    with _opened(source) as stream:
        reader = Reader(stream)
        header = reader.header()
        with screen.status("checking"):
            restored = _looked_through(reader, header)
        if dry_run:
            for _ in _written(reader, restored):
                pass
            _show(header, restored)
            return
        with (
            open_database(settings, app_name="linedesk-import") as database,
            screen.status("importing"),
        ):
            restore(database, reader, restored, header, wishes)
    _show(header, restored)
    click.echo("imported: start the dispatcher; what waited: linedesk dead list --cause restored")


def _looked_through(reader: Reader, header: Header) -> Restored:
    """What is known once all of the file was read. Raises BackupError unless it is whole."""
    restored = Restored(at=header.at, now=datetime.now(UTC))
    for collection, document in reader.documents():
        restored.look(collection, document)
    return restored


def restore(
    database: Database[Any],
    reader: Reader,
    restored: Restored,
    header: Header,
    wishes: Wishes,
    *,
    wrote: Callable[[str], None] = lambda collection: None,
) -> None:
    """Give the database what was looked through; `wrote` is told of each batch."""
    require_schema(database)
    hold = Hold(database)
    above = max(restored.highest_epoch, _epoch_of(database)) + EPOCHS_SINCE
    hold.take(above=above, take_over=wishes.take_over)
    with _kept_until_whole(hold):
        skip = is_to_be_skipped(database, exported_at=header.at, wish=wishes.recvq)
        if wishes.recvq == "skip" and not skip:
            click.echo(NO_SAY, err=True)
        if not hold.is_half_written:
            _clear_the_way(database, wishes.replace)
        hold.begin()
        _take_progress(database, hold, skip=skip)
        restored.epoch = hold.epoch
        restored.is_known = lambda place: _knows(database, place)
        left = _left(database, restored)
        write(database, _written(reader, restored), hold, left=left, wrote=wrote)
        hold.release()


@contextmanager
def _kept_until_whole(hold: Hold) -> Iterator[None]:
    """Give the lease back where nothing was written; keep it where not all was."""
    try:
        yield
    except BaseException:
        if hold.is_half_written:
            click.echo(UNENDED, err=True)
        else:
            hold.release()
        raise


def _take_progress(database: Database[Any], hold: Hold, *, skip: bool) -> None:
    """Before all else, since what a front desk stores from now on is to be handled."""
    # Who was frozen while it was dispatcher has its saves refused from here on.
    Progress(database[PROGRESS], feed="", epoch=hold.epoch).take_over()
    if skip:
        finish_recvq(database, epoch=hold.epoch)
    else:
        finish_decided(database, epoch=hold.epoch)


def _knows(database: Database[Any], place: Document) -> bool:
    """Whether a document is in recvq or in `held`, whose own progress judges it then."""
    names = (RECVQ, HELD) if "_id" in place else (RECVQ,)
    with translated():
        return any(database[name].find_one(place, {"_id": 1}) for name in names)


def _epoch_of(database: Database[Any]) -> int:
    with translated():
        found = database[PROGRESS].find_one({"_id": DISPATCHER}, {"epoch": 1})
    return int((found or {}).get("epoch") or 0)


def _clear_the_way(database: Database[Any], replace: Path | None) -> None:
    """Raise NotImported if something would be overwritten that is nowhere else."""
    with translated():
        filled = [name for name in STATE if database[name].find_one({}, {"_id": 1}) is not None]
    if not filled:
        return
    if replace is None:
        raise NotImported(
            f"{database.name} is not empty, it has {' and '.join(filled)}: to replace that, say "
            "--replace NEWFILE; what is there now is exported to NEWFILE before"
        )
    click.echo(f"exported what was there to {export_to(database, replace)}")


def _left(database: Database[Any], restored: Restored) -> Iterator[Written]:
    """Letters of what waits in the outboxes of a database that is replaced."""
    with translated():
        for conversation in database[CONVERSATIONS].find({"pending.0": {"$exists": True}}):
            yield from restored.left(conversation)


def _written(reader: Reader, restored: Restored) -> Iterator[Written]:
    for collection, document in reader.documents():
        yield from restored.carry(collection, document)
    yield from restored.rest()


@contextmanager
def _opened(source: str) -> Iterator[IO[bytes]]:
    """The file, or a copy of stdin that can be read twice and that nobody else sees."""
    try:
        if source != STREAM:
            with open(source, "rb") as stream:
                yield stream
            return
        with tempfile.TemporaryFile() as copy:
            copyfileobj(sys.stdin.buffer, copy)
            yield copy
    except OSError as error:
        raise BackupError(f"{source} cannot be read: {error.strerror or error}") from error


def _show(header: Header, restored: Restored) -> None:
    """What is in an export, and what becomes of it."""
    click.echo(
        f"export of {header.database} as of {local(header.at)}, "
        f"by linedesk {header.linedesk} from MongoDB {header.mongodb}"
    )
    for what in TOLD:
        click.echo(f"{restored.became[what]:>9,}  {what}")
