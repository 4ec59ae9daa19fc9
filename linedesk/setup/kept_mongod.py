"""The mongod of `linedesk up`: its data stay, and commands on this machine find it by its lock."""

from __future__ import annotations

import fcntl
import threading
import time
from pathlib import Path
from typing import IO

from linedesk.settings.errors import DataInUse
from linedesk.settings.settings import EMBEDDED, Settings
from linedesk.settings.sources import CREDENTIALS
from linedesk.setup.collections import create_collections, set_audit_age
from linedesk.setup.private_mongod import EmbeddedMongod, free_port, state_dir
from linedesk.store.client import connect
from linedesk.store.collections import require_schema

# A command holds the lock for a moment, and the mongod of the `up` before until its end.
LOCK_SECONDS = 3.0
# Settings that commands do not take over from an `up`: secrets, and those that may contain some.
NOT_NOTED = {*CREDENTIALS, "bot_settings"} - {"mongodb_uri"}


class KeptMongod(EmbeddedMongod):
    """An embedded mongod with lasting data, which the supervisor keeps running."""

    def __init__(self, data_dir: Path) -> None:
        super().__init__(data_dir, port=_kept_port(data_dir))
        self.lock = _locked(data_dir)
        self.locks = (self.lock.fileno(),)

    def prepare(self, database: str, *, audit_days: int) -> None:
        """Start it, and create the collections as `linedesk init` does. Raises OtherSchema."""
        self.start()
        with connect(self.uri, app_name="linedesk-init") as client:
            require_schema(client[database])
            create_collections(client[database])
            set_audit_age(client[database], days=audit_days)

    def note(self, settings: Settings) -> None:
        """Store the settings of this `up`, without secrets, for commands on this machine."""
        text = settings.model_dump_json(exclude_unset=True, exclude=NOT_NOTED)
        self.lock.truncate(0)
        self.lock.write(text)
        self.lock.flush()


def beside_up(settings: Settings) -> Settings:
    """The settings of a command; if it names no server, completed by those of the running `up`.

    Settings of the command override those of the `up`. Without an `up` they are unchanged.
    """
    given = settings.model_fields_set
    if settings.mongodb_uri != EMBEDDED and "mongodb_uri" in given:
        return settings
    used = _noted(state_dir())
    if used is None:
        return settings
    taken = used.model_fields_set - given | {"mongodb_uri"}
    return settings.model_copy(update={name: getattr(used, name) for name in taken})


def _noted(data_dir: Path) -> Settings | None:
    """The settings of the running `up` with this data; None if none runs."""
    try:
        with (data_dir / "lock").open(encoding="utf-8") as lock:
            if _is_free(lock, fcntl.LOCK_SH):
                return None
            return Settings.model_validate_json(lock.read())
    # Settings of another version, or none yet: as without an `up`.
    except (OSError, ValueError):
        return None


def _locked(data_dir: Path) -> IO[str]:
    """The data folder's lock, held until this process and its mongod end. Raises DataInUse."""
    lock = (data_dir / "lock").open("a", encoding="utf-8")
    until, pause = time.monotonic() + LOCK_SECONDS, threading.Event()
    while not _is_free(lock, fcntl.LOCK_EX):
        if time.monotonic() > until:
            lock.close()
            raise DataInUse(f"another `linedesk up` uses the data in {data_dir}")
        pause.wait(0.05)
    # Settings of an earlier `up` are not valid any more.
    lock.truncate(0)
    return lock


def _is_free(lock: IO[str], kind: int) -> bool:
    """Take the lock if it is free, until the file is closed. Returns whether it was free."""
    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _kept_port(data_dir: Path) -> int:
    """The same port at each start: the replica set's configuration in the data contains it."""
    kept = data_dir / "port"
    if not kept.exists():
        data_dir.mkdir(parents=True, exist_ok=True)
        kept.write_text(f"{free_port()}\n", encoding="ascii")
    return int(kept.read_text(encoding="ascii"))
