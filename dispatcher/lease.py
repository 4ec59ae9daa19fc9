"""The lease that one dispatcher holds, and the epoch that guards all of its writes.

Times in the row are the server's. This machine's CLOCK_BOOTTIME decides whether the lease is still
fresh; it continues while the machine sleeps and is never set back.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pymongo import ReturnDocument
from pymongo.database import Database
from pymongo.errors import DuplicateKeyError

from linedesk.runtime.clock import boottime
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.client import DURABLE
from linedesk.store.collections import DISPATCHER, EPOCHS
from linedesk.store.documents import LEASES, Document
from linedesk.store.errors import Replaced, SetupError, StoreUnavailable, translated
from linedesk.store.records.leases import EPOCH, OWNER, UNTIL, LeaseRecord

log = logging.getLogger(__name__)

LEASE_SECONDS = 3.0
RENEW_SECONDS = 1.0
# A standby tries this often: two small reads; it notices a clean stop quickly.
STANDBY_SECONDS = 0.25

# By whether an import has emptied collections and not filled them yet.
HOLDERS = {False: "another dispatcher", True: "an import that has not ended"}

# ProcSubset=pid hides it; the unit then passes it in the environment.
BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")

VACANT: Mapping[str, Any] = {"$expr": {"$lte": ["$until", "$$NOW"]}}


def owner_name() -> str:
    """Return a unique name of this process: machine and boot, pid, start in ticks."""
    return f"{_machine()}/{os.getpid()}/{_start_ticks(os.getpid())}"


def is_dead(owner: str) -> bool:
    """Whether the owner was certainly a process of this boot of this machine, and has ended."""
    machine, _, rest = owner.partition("/")
    pid, _, ticks = rest.partition("/")
    if not boot_id() or machine != _machine() or not pid.isdigit():
        return False
    started = _start_ticks(int(pid))
    # guard: hidden-is-not-dead -> return started != ticks
    return not _exists(int(pid)) if started is None else started != ticks


def _machine() -> str:
    """The machine, its boot, and the namespaces in which pid and ticks are counted.

    Machines of one image share a machine id, and init's pid namespace has the same number on each.
    Each kernel draws a new boot id (random(4)).
    """
    return ".".join(
        (
            _first_word(Path("/etc/machine-id")) or os.uname().nodename,
            boot_id(),  # guard: boot-in-the-owner
            _namespace("pid"),
            _namespace("time"),
        )
    )


def _namespace(kind: str) -> str:
    try:
        return str(os.stat(f"/proc/self/ns/{kind}").st_ino)
    except OSError:
        return "0"


def boot_id(file: Path = BOOT_ID_FILE) -> str:
    """This boot, without hyphens as systemd's `%b` (systemd.unit(5)); empty where unknown."""
    told = _first_word(file) or os.environ.get("BOOT_ID", "")
    return told.replace("-", "")


def _first_word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _start_ticks(pid: int) -> str | None:
    """Return field 22 of /proc/<pid>/stat (proc(5)), counted behind the name in brackets.

    None where /proc does not show the process, "ended" for a zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return "ended" if fields[0] == "Z" else fields[19]


def _exists(pid: int) -> bool:
    """Whether the process exists; /proc may hide processes of other users (hidepid)."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


class Lease(BackgroundThread):
    """One process's hold on the row `dispatcher` of `leases`; `start` renews it each second."""

    def __init__(
        self,
        database: Database[Any],
        *,
        owner: str | None = None,
        lease_seconds: float = LEASE_SECONDS,
        renew_seconds: float = RENEW_SECONDS,
    ) -> None:
        super().__init__("lease", self._run)
        self.database = database
        self._leases = database[LEASES].with_options(write_concern=DURABLE)
        self._owner = owner or owner_name()
        self._lease_seconds = lease_seconds
        self._renew_seconds = renew_seconds
        self._fresh_until = 0.0
        self._saw_row = False
        self.epoch = 0
        self.held_by = "no process"
        """The holder when `try_acquire` failed last, as a text."""

    def try_acquire(self) -> bool:
        """Take the lease if it is vacant or its owner is dead; sets `epoch`.

        Raises SetupError if `linedesk init` never ran, StoreUnavailable.
        """
        with translated():
            row = self._leases.find_one({"_id": DISPATCHER})
            if row is None:
                raise self._missing("row")
            lease = LeaseRecord.from_document(row)
            claim = self._claim(lease)
            if self._leases.count_documents(claim) == 0:
                self._saw_row = True
                self.held_by = HOLDERS[lease.is_importing]
                return False
            epoch = self._next_epoch()
            self._saw_row = True
            asked = boottime()
            # A process with a later epoch may have come and gone since; this one is then stale.
            taken = self._leases.find_one_and_update(
                {"$and": [claim, {EPOCH: {"$lt": epoch}}]},
                [{"$set": {OWNER: self._owner, EPOCH: epoch, UNTIL: self._until()}}],
            )
        if taken is None:
            return False
        self.epoch = epoch
        self._fresh_until = asked + self._lease_seconds
        return True

    def is_fresh(self) -> bool:
        """Whether no other process can hold it at this moment."""
        return boottime() < self._fresh_until

    def release(self) -> None:
        """Stop renewing and give up the lease to the next standby; harmless without one."""
        self.abandon()
        if self.epoch == 0:
            return
        with translated():
            self._leases.update_one(
                {"_id": DISPATCHER, OWNER: self._owner, EPOCH: self.epoch},
                [{"$set": {OWNER: None, UNTIL: "$$NOW"}}],
            )

    def abandon(self) -> None:
        """Stop renewing without giving it back: it is no longer fresh here, and free in 3 s."""
        self.stop()
        self.join(self._renew_seconds + self._lease_seconds)
        self._fresh_until = 0.0

    def _claim(self, lease: LeaseRecord) -> Document:
        """A filter that matches the row only while it may be taken."""
        if lease.owner and is_dead(lease.owner):
            # An owner that renews it in the meantime is alive, and the filter no longer matches.
            return {
                "_id": DISPATCHER,
                **lease.holding,
                UNTIL: lease.until,  # guard: not-renewed-since-read
            }
        return {"_id": DISPATCHER, **VACANT}

    def _next_epoch(self) -> int:
        counter = self._leases.find_one_and_update(
            {"_id": EPOCHS}, {"$inc": {EPOCH: 1}}, return_document=ReturnDocument.AFTER
        )
        if counter is None:
            raise self._missing("counter of epochs")
        return int(counter[EPOCH])

    def _missing(self, what: str) -> Exception:
        """Return the error: a row that was never seen is missing; any other was dropped."""
        if self._saw_row:
            return StoreUnavailable(f"the lease's {what} was dropped: run `linedesk init`")
        return SetupError(f"the lease's {what} is missing: run `linedesk init` first")

    def _run(self) -> None:
        while not self._stop.wait(self._renew_seconds):
            self.activity.busy()
            try:
                self.renew()
            except StoreUnavailable as error:
                MONGODB.fails("lease not renewed", error)
            else:
                MONGODB.works("lease not renewed")
            self.activity.idle()

    def renew(self) -> None:
        """Renew once. Raises Replaced if another dispatcher took it, StoreUnavailable."""
        asked = boottime()
        with translated():
            answer = self._leases.update_one(
                {"_id": DISPATCHER, OWNER: self._owner, EPOCH: self.epoch},
                [{"$set": {UNTIL: self._until()}}],
            )
            if answer.matched_count == 0 and not self._made_again():
                raise Replaced(f"the lease of epoch {self.epoch} was taken by another dispatcher")
        self._fresh_until = asked + self._lease_seconds

    def _made_again(self) -> bool:
        """Put the row back after a drop of the whole database; False if another process holds it.

        Only while the lease is fresh: no other process can have held it then. Raises
        StoreUnavailable if it is not fresh; it then keeps checking for a row that an operator or a
        restore creates.
        """
        if self._leases.find_one({"_id": DISPATCHER}) is not None:
            return False
        if not self.is_fresh():
            raise self._missing("row")
        self._leases.update_one({"_id": EPOCHS}, {"$max": {EPOCH: self.epoch}}, upsert=True)
        own = {"_id": DISPATCHER, OWNER: self._owner, EPOCH: self.epoch}
        try:
            self._leases.update_one(own, [{"$set": {UNTIL: self._until()}}], upsert=True)
        except DuplicateKeyError:
            return False
        log.error("the leases were dropped, recreating them epoch=%d", self.epoch)
        return True

    def _until(self) -> Document:
        return {"$add": ["$$NOW", int(self._lease_seconds * 1000)]}
