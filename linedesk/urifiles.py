"""The files with the URIs of MongoDB's users, passwords included: one a user, for systemd's
LoadCredential.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from linedesk import rules
from linedesk.errors import SettingsError
from recvq.uri import Uri

FILE = "MONGODB_URI"


@dataclass(frozen=True)
class UriFile:
    """`<folder>/<who>/MONGODB_URI`. Every method raises OSError as the system does."""

    path: Path

    @classmethod
    def of(cls, folder: Path, who: str) -> UriFile:
        """The file of one process, or person, below the folder of all."""
        return cls(folder / who / FILE)

    @property
    def next(self) -> UriFile:
        """A file beside it, for what is to take its place."""
        return UriFile(self.path.with_name(f"{self.path.name}.next"))

    def read(self) -> Uri | None:
        """What the file holds; None if it is missing. Raises SettingsError if that is no URI."""
        try:
            text = self.path.read_text("utf-8").strip()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError:
            raise self._useless() from None
        try:
            uri = Uri.parse(rules.mongodb_uri(text))
        except ValueError:
            raise self._useless() from None
        if not uri.user:
            raise self._useless()
        return uri

    def write(self, uri: Uri) -> None:
        """Have it hold this URI, for its owner only: on the disk and whole, or not at all."""
        beside = self.path.with_name(f".{self.path.name}.part")
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sync(self.path.parent.parent)
        with suppress(FileNotFoundError):
            # One that a killed `init` has left would keep its owner and mode.
            beside.unlink()
        handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"{uri}\n")
            file.flush()
            os.fsync(file.fileno())
        UriFile(beside).become(self)

    def become(self, other: UriFile) -> None:
        """Take the other one's place, and have that on the disk."""
        self.path.replace(other.path)
        _sync(other.path.parent)

    def _useless(self) -> SettingsError:
        words = (
            "holds no URI of MongoDB with a user: remove it, and `linedesk init` makes a new one"
        )
        return SettingsError([f"{self.path} {words}"])


@contextmanager
def at_work_in(folder: Path) -> Iterator[None]:
    """Make the folder, and keep every other `init` out of it. Raises SettingsError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)
    except BlockingIOError:
        raise SettingsError([f"another `linedesk init` is at work in {folder}"]) from None
    except OSError as error:
        where = error.filename or folder
        raise SettingsError([f"{where} cannot be read or written: {error.strerror}"]) from error


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
