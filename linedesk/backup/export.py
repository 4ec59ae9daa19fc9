"""`linedesk export`: a consistent snapshot of the database in one file.

It only reads, and all processes may keep running. It omits data without use on another machine:
recvq, the lease, and the figures of processes and calls.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import bson
import click
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.database import Database
from pymongo.errors import OperationFailure
from rich.console import Console
from rich.progress import Progress

from linedesk.backup.file import AS_STORED, COLLECTIONS, BackupWriter, Header
from linedesk.compose.database import open_database
from linedesk.settings.errors import BackupError
from linedesk.settings.settings import Settings
from linedesk.store.collections import DISPATCHER, require_schema
from linedesk.store.documents import LEASES, SCHEMA
from linedesk.store.errors import translated
from linedesk.store.records.leases import IMPORTING

STREAM = "-"
BATCH_ROWS = 1_000
# SnapshotTooOld: MongoDB keeps one moment readable for minSnapshotHistoryWindowInSeconds.
SNAPSHOT_TOO_OLD = 239
TOO_LONG = (
    "the export took longer than MongoDB keeps one moment readable (300 s unless set); run in "
    "the mongo shell, as an administrator: "
    "db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 1800})"
)


def export_database(settings: Settings, target: str) -> None:
    """Write an export into a new file, into a folder under a name of its own, or to stdout."""
    with open_database(settings, app_name="linedesk-export") as database:
        if target != STREAM:
            path = export_to(database, Path(target))
            click.echo(f"exported to {path} ({path.stat().st_size:,} bytes)")
            return
        if sys.stdout.isatty():
            raise click.UsageError("an export is not text: name a file, or write it to a pipe")
        with _written(STREAM):
            write_export(database, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def export_to(database: Database[Any], target: Path) -> Path:
    """Write an export into a new file, completely or not at all; returns its path.

    Only its owner may read it, since it holds the users' messages. Raises BackupError,
    StoreUnavailable.
    """
    path = target / name_of_export(database.name, datetime.now(UTC)) if target.is_dir() else target
    _require_new(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _written(path):
        try:
            with open(beside, "xb", opener=_private) as stream:
                write_export(database, stream, folder=path.parent)
                stream.flush()
                os.fsync(stream.fileno())
            _require_new(path)
            beside.rename(path)
            _sync(path.parent)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
    return path


def write_export(
    database: Database[Any],
    stream: IO[bytes],
    *,
    folder: Path | None = None,
    read: Callable[[str], None] = lambda collection: None,
) -> None:
    """Write a snapshot of one moment; `read` is called for each collection that is read.

    It temporarily needs as much space as the documents take, in `folder` or in the folder for
    temporary files. MongoDB keeps a snapshot readable for minutes only, and making JSON takes
    longer than reading. Raises BackupError, StoreUnavailable, OSError.
    """
    with ExitStack() as stack:
        copies = {name: stack.enter_context(TemporaryFile(dir=folder)) for name in COLLECTIONS}
        with translated():
            header = _header(database, require_schema(database))
            with database.client.start_session(snapshot=True) as session:
                _require_whole(database, session)
                for name, copy in copies.items():
                    _copy(database.get_collection(name, codec_options=AS_STORED), copy, session)
                    read(name)
        writer = BackupWriter(stream, header)
        size = sum(copy.tell() for copy in copies.values())
        with _bar(size) as step:
            for name, copy in copies.items():
                copy.seek(0)
                for document in bson.decode_file_iter(copy, AS_STORED):
                    writer.add(name, document)
                    step(len(document.raw))
    writer.finish()
    _tell(writer)


def _header(database: Database[Any], schema: int | None) -> Header:
    client = database.client
    return Header(
        database=database.name,
        # Before the first read, which fixes the moment of the snapshot.
        at=client.admin.command("hello")["localTime"],
        linedesk=version("linedesk"),
        mongodb=client.server_info()["version"],
        schema=schema or SCHEMA,
    )


def _require_whole(database: Database[Any], session: ClientSession) -> None:
    """Refuse to export a half-imported database: the export would look complete."""
    lease = database[LEASES].find_one({"_id": DISPATCHER}, {IMPORTING: 1}, session=session) or {}
    if lease.get(IMPORTING):
        raise BackupError(f"{database.name} is half imported: complete the import first")


def _copy(collection: Collection[RawBSONDocument], copy: IO[bytes], session: ClientSession) -> None:
    try:
        with collection.find({}, session=session, batch_size=BATCH_ROWS) as rows:
            for row in rows:
                copy.write(row.raw)
    except OperationFailure as error:
        if error.code == SNAPSHOT_TOO_OLD:
            raise BackupError(TOO_LONG) from error
        raise


@contextmanager
def _bar(size_bytes: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar on a terminal; yields the function that takes the bytes done so far."""
    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("exporting", total=size_bytes)
        yield lambda done_bytes: bar.advance(task, done_bytes)


def _tell(writer: BackupWriter) -> None:
    """On stderr, since stdout may be the export itself."""
    counts = ", ".join(f"{name} {writer.counts[name]}" for name in COLLECTIONS)
    click.echo(f"documents: {counts}", err=True)


def name_of_export(database: str, moment: datetime) -> str:
    """The default name of a file; the nightly unit recognises old exports by it."""
    return f"linedesk-{database}-{moment.astimezone(UTC):%Y-%m-%dT%H%M%SZ}.jsonl.gz"


def _require_new(path: Path) -> None:
    """Refuse to overwrite a file: an export of a database that is now empty must not replace a good
    one.
    """
    if path.exists():
        raise BackupError(f"{path} exists already: name another file")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _written(path: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackupError(f"{path} cannot be written: {error.strerror or error}") from error


def _sync(folder: Path) -> None:
    """A rename is durable only once its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
