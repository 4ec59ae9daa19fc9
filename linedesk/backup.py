"""`linedesk export`: what matters of the database as it is at one moment, in one file.

It only reads, and everything may run meanwhile. Left out is what is worth nothing elsewhere: recvq,
the lease, and the figures of processes and calls.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import click
from bson.raw_bson import RawBSONDocument
from pymongo.client_session import ClientSession
from pymongo.database import Database
from pymongo.errors import OperationFailure
from rich.console import Console
from rich.progress import Progress

from linedesk.backupfile import AS_STORED, COLLECTIONS, Header, Writer
from linedesk.choice import open_database
from linedesk.errors import BackupError
from linedesk.settings import Settings
from recvq.errors import translated

STREAM = "-"
BATCH_ROWS = 1_000
# SnapshotTooOld: MongoDB keeps one moment readable for minSnapshotHistoryWindowInSeconds.
SNAPSHOT_TOO_OLD = 239
TOO_LONG = (
    "the export took longer than MongoDB keeps one moment readable (300 s unless set); in the "
    "mongo shell, as an administrator: "
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
            raise click.UsageError("an export is no text: name a file, or send it through a pipe")
        with _written(STREAM):
            write_export(database, sys.stdout.buffer)
            sys.stdout.buffer.flush()


def export_to(database: Database[Any], target: Path) -> Path:
    """Write an export into a file that is not there yet, whole or not at all; returns its path.

    Nobody but its owner may read it, since it holds what people wrote. Raises BackupError,
    StoreUnavailable.
    """
    path = target / _name(database.name) if target.is_dir() else target
    if path.exists():
        raise BackupError(f"{path} is there already: name another file")
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    with _written(path):
        try:
            with open(beside, "xb", opener=_private) as stream:
                write_export(database, stream)
                stream.flush()
                os.fsync(stream.fileno())
            # Unlike a rename, it replaces no file that came in between.
            os.link(beside, path)
            _sync(path.parent)
        finally:
            with suppress(FileNotFoundError):
                beside.unlink()
    return path


def write_export(
    database: Database[Any],
    stream: IO[bytes],
    *,
    read: Callable[[str], None] = lambda collection: None,
) -> None:
    """Write all of it as of one moment; `read` is told of each collection that is read.

    Raises BackupError, StoreUnavailable, OSError.
    """
    with translated():
        writer = Writer(stream, _header(database))
        with database.client.start_session(snapshot=True) as session, _bar(database) as step:
            for name in COLLECTIONS:
                for document in _documents(database, name, session):
                    writer.add(name, document)
                    step()
                read(name)
    writer.finish()
    _tell(writer)


def _header(database: Database[Any]) -> Header:
    client = database.client
    return Header(
        database=database.name,
        # Before the first read, which settles what the moment is.
        at=client.admin.command("hello")["localTime"],
        linedesk=version("linedesk"),
        mongodb=client.server_info()["version"],
    )


def _documents(
    database: Database[Any], name: str, session: ClientSession
) -> Iterator[RawBSONDocument]:
    collection = database.get_collection(name, codec_options=AS_STORED)
    try:
        with collection.find({}, session=session, batch_size=BATCH_ROWS) as rows:
            yield from rows
    except OperationFailure as error:
        if error.code == SNAPSHOT_TOO_OLD:
            raise BackupError(TOO_LONG) from error
        raise


@contextmanager
def _bar(database: Database[Any]) -> Iterator[Callable[[], None]]:
    """Shows on a terminal how far it is; yields what is called for each document."""
    console = Console(stderr=True)
    total = sum(database[name].estimated_document_count() for name in COLLECTIONS)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task("exporting", total=total)
        yield lambda: bar.advance(task)


def _tell(writer: Writer) -> None:
    """On stderr, since stdout may be the export itself."""
    counts = ", ".join(f"{name} {writer.counts[name]}" for name in COLLECTIONS)
    click.echo(f"documents: {counts}", err=True)


def _name(database: str) -> str:
    return f"linedesk-{database}-{datetime.now(UTC):%Y-%m-%dT%H%M%SZ}.jsonl.gz"


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


@contextmanager
def _written(path: object) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackupError(f"{path} cannot be written: {error.strerror or error}") from error


def _sync(folder: Path) -> None:
    """What is renamed is there for good only once its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
