"""`linedesk export`: a consistent snapshot of the database in one file.

It only reads, and all processes may keep running. It omits data without use on another machine:
recvq, the lease, and the figures of processes and calls.
"""

from __future__ import annotations

from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import click
from pymongo.database import Database
from pymongo.errors import OperationFailure
from rich.console import Console

from linedesk.backup.file import COLLECTIONS, BackupWriter, Header
from linedesk.settings.errors import BackupError
from linedesk.settings.settings import Settings
from linedesk.setup.database import open_database
from linedesk.setup.users import for_owner
from linedesk.store.client import AS_STORED
from linedesk.store.collections import DISPATCHER, require_schema
from linedesk.store.documents import LEASES, SCHEMA
from linedesk.store.errors import translated
from linedesk.store.records.leases import IMPORTING

# SnapshotTooOld: MongoDB keeps one moment readable for minSnapshotHistoryWindowInSeconds.
SNAPSHOT_TOO_OLD = 239
TOO_LONG = (
    "the export took longer than MongoDB keeps one moment readable (300 s unless set); run in "
    "the mongo shell, as an administrator: "
    "db.adminCommand({setParameter: 1, minSnapshotHistoryWindowInSeconds: 1800})"
)


def export_database(settings: Settings, target: Path) -> None:
    """Write an export into a new file, or into a folder under a name of its own."""
    with open_database(settings, app_name="linedesk-export") as database:
        with Console(stderr=True).status("exporting"):
            path = export_to(database, target)
        click.echo(f"exported to {path} ({path.stat().st_size:,} bytes)")


def export_to(database: Database[Any], target: Path) -> Path:
    """Write an export into a new file, completely or not at all; returns its path.

    Only its owner may read it, since it holds the users' messages. Raises BackupError,
    StoreUnavailable.
    """
    path = target / name_of_export(database.name, datetime.now(UTC)) if target.is_dir() else target
    _require_new(path)
    try:
        with for_owner(path) as stream:
            _write(database, stream)
            _require_new(path)
    except OSError as error:
        raise BackupError(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _write(database: Database[Any], stream: IO[bytes]) -> None:
    """Write a snapshot of one moment. Raises BackupError, StoreUnavailable, OSError."""
    with translated():
        writer = BackupWriter(stream, _header(database))
        try:
            with database.client.start_session(snapshot=True) as session:
                lease = database[LEASES].find_one({"_id": DISPATCHER}, session=session) or {}
                if lease.get(IMPORTING):
                    # An export would look complete.
                    told = f"{database.name} is half imported: complete the import first"
                    raise BackupError(told)
                for name in COLLECTIONS:
                    collection = database.get_collection(name, codec_options=AS_STORED)
                    for document in collection.find({}, session=session):
                        writer.add(name, document)
        except OperationFailure as error:
            if error.code == SNAPSHOT_TOO_OLD:
                raise BackupError(TOO_LONG) from error
            raise
        writer.finish()
    click.echo("documents: " + ", ".join(f"{name} {writer.counts[name]}" for name in COLLECTIONS))


def _header(database: Database[Any]) -> Header:
    client = database.client
    return Header(
        database=database.name,
        # Before the first read, which fixes the moment of the snapshot.
        at=client.admin.command("hello")["localTime"],
        linedesk=version("linedesk"),
        mongodb=client.server_info()["version"],
        schema=require_schema(database) or SCHEMA,
    )


def name_of_export(database: str, moment: datetime) -> str:
    """The default name of a file; the nightly unit recognises old exports by it."""
    return f"linedesk-{database}-{moment.astimezone(UTC):%Y-%m-%dT%H%M%SZ}.jsonl.gz"


def _require_new(path: Path) -> None:
    """Refuse to overwrite a file: an export of a database that is now empty must not replace a good
    one.
    """
    if path.exists():
        raise BackupError(f"{path} exists already: name another file")
