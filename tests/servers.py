"""Servers that a test may kill or change: their data is in memory if there is room.

No test simulates a power failure, so none needs a disk for its MongoDB, and syncing a disk takes
most of the time.
"""

import os
import shutil
import signal
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import EmbeddedMongod
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from tests.rows import Db
from tests.waiting import eventually

IN_MEMORY = Path("/dev/shm")
# Several servers run at a time, two runs side by side, and a container often has 64 MB here.
ROOM_BYTES = 6 * 1024**3


@contextmanager
def data_folder(name: str) -> Iterator[Path]:
    """A folder for a server's data, removed at the end."""
    folder = make_data_folder(name)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def make_data_folder(name: str) -> Path:
    """The same for callers that remove it themselves."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=IN_MEMORY if _has_room() else None))


@contextmanager
def throwaway_mongod(*extra: str) -> Iterator[EmbeddedMongod]:
    """A mongod with temporary data; `extra` is appended to its command line."""
    with data_folder("mongod") as folder, EmbeddedMongod(folder, extra=extra) as server:
        yield server
        # A clean shutdown would only write data that is removed.
        server.kill()


@contextmanager
def one_for_all(client: Client, *, megabytes: int = 1) -> Iterator[Db]:
    """A database for a whole module, since making one takes longer than most tests of it."""
    database = client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=megabytes * MEGABYTE)
    yield database
    client.drop_database(database.name)


@contextmanager
def frozen(pid: int | None) -> Iterator[None]:
    """A server hangs with its connections open.

    On a busy machine its threads go on for a while after the signal.
    """
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: _is_stopped(pid))
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_stopped(pid: int) -> bool:
    threads = Path(f"/proc/{pid}/task").glob("*/stat")
    return all(one.read_text().rpartition(")")[2].split()[0] == "T" for one in threads)


def _has_room() -> bool:
    """Whether there is a folder in memory, and memory for it: its size alone promises none."""
    try:
        folder = os.statvfs(IN_MEMORY)
        meminfo = Path("/proc/meminfo").read_text().split()
        available = int(meminfo[meminfo.index("MemAvailable:") + 1]) * 1024
    except (OSError, ValueError):
        return False
    free = folder.f_bavail * folder.f_frsize
    return os.access(IN_MEMORY, os.W_OK) and min(free, available) > ROOM_BYTES
