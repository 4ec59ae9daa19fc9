"""The thread that reads what operators have ordered, and has the pool and the worker obey.

Where MongoDB is away the last word stands. A release is asked for anew with each look until it is
carried out, so it does not matter who died in between.
"""

from __future__ import annotations

import logging

from dispatcher.keyed.pool import Pool
from dispatcher.lease import Lease
from linedesk.contract import Worker
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.control import NO_PAUSES, Control, Pauses, Release
from linedesk.store.errors import AccessRefused, StoreUnavailable
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

CONTROL_SECONDS = 0.5
MOST_TOLD = 3


class ControlReader(BackgroundThread):
    """That of one process, a companion of its lease, without which nothing is given up."""

    def __init__(
        self,
        control: Control,
        pool: Pool,
        worker: Worker,
        lease: Lease,
        *,
        every_seconds: float = CONTROL_SECONDS,
    ) -> None:
        super().__init__("control", self._run)
        self._control = control
        self._pool = pool
        self._worker = worker
        self._lease = lease
        self._every_seconds = every_seconds
        self._failed: str | None = None

    def start(self) -> None:
        """Start the thread."""
        _tell(NO_PAUSES, self._pool.pauses)
        super().start()

    def status(self) -> str:
        """What is paused, in words for a person; empty where nothing is."""
        scopes = [str(one.scope) for one in self._pool.pauses.rows]
        if not scopes:
            return ""
        more = f" and {len(scopes) - MOST_TOLD} more" if len(scopes) > MOST_TOLD else ""
        return f"paused: {', '.join(scopes[:MOST_TOLD])}{more}"

    def _run(self) -> None:
        while not self._stop.wait(self._every_seconds):
            self.activity.busy()
            self._try()
            self.activity.idle()

    def _try(self) -> None:
        try:
            self.look()
            self._failed = None
        except StoreUnavailable as error:
            self._complain(error, logging.WARNING)
        except AccessRefused as error:
            self._complain(error, logging.ERROR)

    def _complain(self, error: Exception, level: int) -> None:
        if str(error) != self._failed:
            log.log(level, "orders not read or not settled, trying again error=%s", error)
        self._failed = str(error)

    def look(self) -> None:
        """Look once. Raises StoreUnavailable, AccessRefused."""
        orders = self._control.orders()
        before = self._pool.pauses
        if orders.pauses != before:
            self._pool.obey(orders.pauses)
            _tell(before, orders.pauses)
        # guard: no-release-without-lease -> body
        if self._lease.is_fresh():
            # All of them first: that one cannot be written down keeps no other from being done.
            for release in [one for one in orders.releases if not self._is_under_way(one)]:
                self._settle(release)

    def _is_under_way(self, release: Release) -> bool:
        if release.head == EVENT_ID:
            return self._pool.give_up(release.channel, release.key, release.name)
        return self._worker.give_up_send(release.channel, release.key, release.name)

    def _settle(self, release: Release) -> None:
        came = self._control.came_of(release)
        if came is not None and self._lease.is_fresh():
            self._control.finish(release, came)
            log.info("released conversation=%s came=%s", release.conversation, came)


def _tell(before: Pauses, now: Pauses) -> None:
    """Each pause that is new or over, in the log."""
    was, are = ({one.scope: one for one in pauses.rows} for pauses in (before, now))
    for scope in are.keys() - was.keys():
        log.info("paused scope=%s by=%s", scope, are[scope].by)
    for scope in was.keys() - are.keys():
        log.info("resumed scope=%s", scope)
