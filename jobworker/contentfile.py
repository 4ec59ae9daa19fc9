"""The file that content is written to: under its name only when whole and synced."""

from __future__ import annotations

import errno
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from jobworker.errors import BotError
from jobworker.handling import doing


@contextmanager
def file_for(to: str | os.PathLike[str] | None) -> Iterator[tuple[IO[bytes], Path]]:
    """The file to write, and the path under which it stands at the end, if nothing is raised.

    Without a path it is one that goes when the handler ends. Raises OSError.
    """
    if to is None:
        with _passing_file() as (part, path):
            yield part, path
        return
    path = Path(to)
    if path.is_dir():
        # Else this would come out after the download.
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    # Its own name: a run that was abandoned may still be writing.
    part_path = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part_path.open("xb") as part:
            yield part, path
            part.flush()
            os.fsync(part.fileno())
        part_path.replace(path)
        _sync_folder(path.parent)
    finally:
        part_path.unlink(missing_ok=True)


@contextmanager
def _passing_file() -> Iterator[tuple[IO[bytes], Path]]:
    """A file that goes when the handler ends."""
    current = doing()
    if current is None:
        raise BotError("outside of a handler's own thread content needs a path to go to")
    handle, name = tempfile.mkstemp(prefix="linedesk-")
    path = Path(name)
    current.at_end(lambda: path.unlink(missing_ok=True))
    with os.fdopen(handle, "wb") as part:
        yield part, path


def _sync_folder(folder: Path) -> None:
    """Have the new name survive a loss of power as well."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
