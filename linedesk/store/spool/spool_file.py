"""The spool's SQLite file: opening and creating it, its limits, its rows, and its errors.

With a write-ahead log readers do not wait for writers. Each commit is synced.
"""

from __future__ import annotations

import fcntl
import logging
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bson.raw_bson import RawBSONDocument

from linedesk.runtime.language import gettext as _
from linedesk.store.errors import SetupError, SpoolDamaged, SpoolUnavailable
from linedesk.store.records.events import EVENT_ID
from linedesk.store.redaction import message_id_of

log = logging.getLogger(__name__)

# Device and inode: they identify a file independently of its name.
Identity = tuple[int, int]

MEGABYTE = 1024 * 1024
BUSY_SECONDS = 0.6
SETUP_SECONDS = 1.0
PAGE_BYTES = 4096
LARGEST_LOG_BYTES = 64 * MEGABYTE
MOST_SPARE_BYTES = MEGABYTE // 4
# Kept free on the disk: removing rows takes space as well, and a full spool must drain.
RESERVE_BYTES = 8 * MEGABYTE
VERSION = 1

SCHEMA = """
CREATE TABLE IF NOT EXISTS spool (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    key TEXT NOT NULL,
    event_id TEXT,
    message_id TEXT,
    bson BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS spool_key ON spool (key, channel);
CREATE INDEX IF NOT EXISTS spool_message ON spool (message_id) WHERE message_id IS NOT NULL;
CREATE TABLE IF NOT EXISTS totals (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    documents INTEGER NOT NULL,
    bytes INTEGER NOT NULL
);
INSERT OR IGNORE INTO totals VALUES (1, 0, 0);
CREATE TABLE IF NOT EXISTS refused (
    n INTEGER PRIMARY KEY, at TEXT NOT NULL, reason TEXT NOT NULL, bson BLOB NOT NULL
);
"""

TABLES = {"spool", "totals", "refused"}
HEADER = b"SQLite format 3\0"

REASONS = {
    sqlite3.SQLITE_FULL: "the spool or its disk is full",
    sqlite3.SQLITE_BUSY: "the spool is locked by another process",
    sqlite3.SQLITE_LOCKED: "the spool is locked by another process",
    sqlite3.SQLITE_READONLY: "the spool is read-only",
    sqlite3.SQLITE_CANTOPEN: "the spool cannot be opened: see SPOOL_PATH",
    sqlite3.SQLITE_PERM: "the spool may not be used: see SPOOL_PATH",
    sqlite3.SQLITE_IOERR: "the spool's disk fails",
}
DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


@dataclass(frozen=True)
class SpoolLimits:
    """The disk space of the spool in bytes, including the write-ahead log."""

    max_bytes: int

    @property
    def log_bytes(self) -> int:
        return min(LARGEST_LOG_BYTES, self.max_bytes // 4)

    @property
    def spare_bytes(self) -> int:
        """The free space that a full spool needs before it accepts documents again."""
        return min(MOST_SPARE_BYTES, self.max_bytes // 8)

    @property
    def pages(self) -> int:
        """The limit of the database itself, in pages."""
        return (self.max_bytes - self.log_bytes) // PAGE_BYTES


def identity(file: Path | int) -> Identity | None:
    """The file with this name or descriptor; None if there is none."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def require_spool(path: Path) -> None:
    """Raise SetupError if another thing than a spool has its name; nothing is changed.

    A spool has SQLite's header, or it is empty, or damaged: then it has a spool's owner, mode and
    whole pages. A file that cannot be read passes, since it cannot be set aside either. Not for a
    process that has the spool open: closing the file would release its locks.
    """
    try:
        found = path.stat()
        if is_file := stat.S_ISREG(found.st_mode):
            with path.open("rb") as file:
                is_database = file.read(len(HEADER)) in (HEADER, b"")
    except OSError:
        return
    whose = found.st_uid, stat.S_IMODE(found.st_mode), found.st_size % PAGE_BYTES
    is_own = is_file and (is_database or whose == (os.geteuid(), 0o600, 0))
    if not is_own or _has_tables_of_others(path):
        told = _("{file} is not a spool and stays as it is: move it away, or change SPOOL_PATH")
        raise SetupError(told.format(file=path))


def _has_tables_of_others(path: Path) -> bool:
    # Without a log SQLite would make one even to read.
    how = "mode=ro" if Path(f"{path}-wal").exists() else "immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as connection:
            found = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            )
            return not {name for (name,) in found} <= TABLES
    except sqlite3.Error:
        # A damaged spool, or one that other processes have locked.
        return False


def open_file(path: Path, limits: SpoolLimits) -> tuple[sqlite3.Connection, Identity]:
    """Open or create the file, with its name synced like its content.

    Only one process at a time does so. A damaged file is set aside, and a new one created. Raises
    SpoolUnavailable. A missing folder is not created, since it may be the mount point of a disk.
    """
    try:
        with folder_held(path) as folder:
            try:
                opened = _opened(path, limits)
            except SpoolDamaged as error:
                _set_aside(path, str(error))
                opened = _opened(path, limits)
            os.fsync(folder)
            return opened
    except OSError as error:
        raise SpoolUnavailable(REASONS[sqlite3.SQLITE_CANTOPEN], _detail(path, error)) from error


def set_aside(path: Path, damaged: Identity, reason: str) -> None:
    """Rename a damaged file, unless another process has done so; the next use creates a new one.

    A process that still writes to it detects the change by the file's identity before it confirms
    the write.
    """
    with suppress(SpoolUnavailable, OSError), folder_held(path):
        if identity(path) == damaged:
            _set_aside(path, reason)


def begin(connection: sqlite3.Connection) -> None:
    """Begin a write transaction; waits up to BUSY_SECONDS for other writers.

    SQLite's own wait polls only ten times a second at the end, so this polls every millisecond.
    """
    deadline = time.monotonic() + BUSY_SECONDS
    connection.execute("PRAGMA busy_timeout = 1").fetchone()
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
            break
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
    connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}").fetchone()


def check_room(connection: sqlite3.Connection, path: Path, limits: SpoolLimits, size: int) -> None:
    """Raise SpoolUnavailable unless `size` more bytes fit into the limit and on the disk."""
    [pages] = connection.execute("PRAGMA page_count").fetchone()
    [free] = connection.execute("PRAGMA freelist_count").fetchone()
    # Each document also takes an index entry and a part of a page.
    if pages - free + (size * 5 // 4) // PAGE_BYTES + 4 > limits.pages:
        raise SpoolUnavailable("the spool is full: see SPOOL_MAX_MB", str(path))
    free_bytes = free * PAGE_BYTES
    short = _short_of(path, limits, size, free_bytes)
    if short is not None:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        short = _short_of(path, limits, size, free_bytes)
    if short is not None:
        raise SpoolUnavailable(short, str(path))


def _short_of(path: Path, limits: SpoolLimits, size: int, free_bytes: int) -> str | None:
    log_bytes = _log_bytes(path)
    if log_bytes and log_bytes + size * 2 > limits.log_bytes:
        return "the spool's log cannot be emptied"
    disk = os.statvfs(path)
    reserve = min(RESERVE_BYTES, disk.f_blocks * disk.f_frsize // 8)
    available = disk.f_bavail * disk.f_frsize
    # Documents need their space twice, since the log is copied into the database later. Free pages
    # there take some of it.
    if (
        available < size * 5 // 4 + reserve // 2
        or available + free_bytes < log_bytes + size * 2 + reserve
    ):
        return "the spool's disk is full"
    return None


def reason(error: sqlite3.Error, path: Path) -> SpoolUnavailable:
    """The error for a code of SQLite."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    detail = f"{path} {getattr(error, 'sqlite_errorname', type(error).__name__)}"
    if code in DAMAGED:
        return SpoolDamaged("the spool's file is damaged", detail)
    return SpoolUnavailable(REASONS.get(code, "the spool fails"), detail)


def _opened(path: Path, limits: SpoolLimits) -> tuple[sqlite3.Connection, Identity]:
    # Created here and not by SQLite, so that only its user can read the messages. An existing file
    # is not opened: closing it would release the locks of this whole process.
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    file = identity(path)
    connection = sqlite3.connect(
        path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        _prepare(connection, path, limits)
    except sqlite3.Error as error:
        connection.close()
        raise reason(error, path) from error
    except BaseException:
        connection.close()
        raise
    if file is None or file != identity(path):
        connection.close()
        raise SpoolUnavailable("the spool's file was replaced", str(path))
    return connection, file


def _prepare(connection: sqlite3.Connection, path: Path, limits: SpoolLimits) -> None:
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if version not in (0, VERSION):
        raise SpoolUnavailable("the spool was made by another version", f"{path} {version}")
    if version == 0:
        # This setting takes effect only before the first table is created.
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA secure_delete = FAST").fetchall()
    connection.execute(f"PRAGMA max_page_count = {limits.pages}").fetchall()
    if version == 0:
        connection.executescript(
            f"BEGIN IMMEDIATE; {SCHEMA} PRAGMA user_version = {VERSION}; COMMIT"
        )


@contextmanager
def folder_held(path: Path) -> Iterator[int]:
    """The folder's descriptor, locked: one process at a time creates or renames the file."""
    try:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SpoolUnavailable(REASONS[sqlite3.SQLITE_CANTOPEN], _detail(path, error)) from error
    deadline, pause = time.monotonic() + SETUP_SECONDS, threading.Event()
    try:
        while not _locked(folder):
            if time.monotonic() > deadline:
                raise SpoolUnavailable("the spool is being opened elsewhere", str(path))
            pause.wait(0.01)
        yield folder
    finally:
        os.close(folder)


def _locked(folder: int) -> bool:
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _set_aside(path: Path, why: str) -> None:
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    aside = path.with_name(f"{path.name}.damaged-{stamp}")
    # The log first, under the name that SQLite expects: it must not be applied to the new file.
    for ending in ("-wal", "-shm", ""):
        with suppress(FileNotFoundError):
            os.rename(f"{path}{ending}", f"{aside}{ending}")
    log.error('spool set aside, its documents are not handled as="%s" reason="%s"', aside, why)


def _log_bytes(path: Path) -> int:
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


def _detail(path: Path, error: OSError) -> str:
    return f"{path}: {error.strerror}"


# Channel and key: order is kept within them.
Key = tuple[str, str]


def key_of_document(document: RawBSONDocument) -> Key:
    return document["channel"], document["key"]


def keys_of(documents: Iterable[RawBSONDocument]) -> frozenset[Key]:
    return frozenset(key_of_document(document) for document in documents)


def as_row(document: RawBSONDocument) -> tuple[str, str, str | None, str | None, bytes]:
    """The columns except `n`: the message's id for unsends, and the exact bytes for MongoDB."""
    names = document.get(EVENT_ID), message_id_of(document)
    return *key_of_document(document), *names, bytes(document.raw)
