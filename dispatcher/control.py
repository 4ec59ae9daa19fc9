"""The thread that reads the operators' orders and makes the pool and the worker obey them.

While MongoDB is away the last known orders apply. A release is requested again at each reading
until it is carried out, so it survives the death of any process.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

from dispatcher.lease import Lease
from dispatcher.pool.pool import Pool
from jobworker.assembly import BotWorker
from linedesk.runtime.outage import MONGODB
from linedesk.runtime.thread import BackgroundThread
from linedesk.store.control import NO_PAUSES, Control, Drop, Pauses, Release, TimerOrder
from linedesk.store.errors import AccessRefused, StoreUnavailable
from linedesk.store.records.events import EVENT_ID

log = logging.getLogger(__name__)

CONTROL_SECONDS = 0.5
MOST_TOLD = 3
DROP_KEPT = timedelta(days=1)


class ControlReader(BackgroundThread):
    """One process's thread, a companion of its lease: without the lease no event is given up."""

    def __init__(self, control: Control, pool: Pool, worker: BotWorker, lease: Lease) -> None:
        super().__init__("control", self._run)
        self._control = control
        self._pool = pool
        self._worker = worker
        self._lease = lease
        self._refused: str | None = None
        # The names of the bot's `start_timers` that are ordered.
        self._started: set[str] = set()

    def start(self) -> None:
        _tell(NO_PAUSES, self._pool.pauses)
        super().start()

    def status(self) -> str:
        """The paused scopes as a text for operators; empty where none is paused."""
        scopes = [str(one.scope) for one in self._pool.pauses.rows]
        if not scopes:
            return ""
        more = f" and {len(scopes) - MOST_TOLD} more" if len(scopes) > MOST_TOLD else ""
        return f"paused: {', '.join(scopes[:MOST_TOLD])}{more}"

    def _run(self) -> None:
        while not self._stop.wait(CONTROL_SECONDS):
            self.activity.busy()
            self._try()
            self.activity.idle()

    def _try(self) -> None:
        try:
            self.look()
            MONGODB.works("orders not read or not settled")
            self._refused = None
        except StoreUnavailable as error:
            MONGODB.fails("orders not read or not settled", error)
        except AccessRefused as error:
            if str(error) != self._refused:
                log.error("orders not read or not settled, trying again error=%s", error)  # noqa: TRY400
            self._refused = str(error)

    def look(self) -> None:
        """Read the orders once. Raises StoreUnavailable, AccessRefused."""
        orders = self._control.orders()
        before = self._pool.pauses
        if orders.pauses != before:
            self._pool.obey(orders.pauses)
            _tell(before, orders.pauses)
        # guard: no-release-without-lease -> body
        if self._lease.is_fresh():
            # Read all releases first: one that cannot be settled must not block the others.
            for release in [one for one in orders.releases if not self._is_under_way(one)]:
                self._settle(release)
            for drop in orders.pauses.drops:
                self._settle_drop(drop, orders.pauses)
            for name in set(self._worker.timer_orders.starts()) - self._started:
                self._control.order_start(name)
                self._started.add(name)
            for order in orders.timers:
                if self._set_timers(order):
                    # One batch at a time: pauses are read in between.
                    break

    def _is_under_way(self, release: Release) -> bool:
        if release.head == EVENT_ID:
            return self._pool.give_up(release.channel, release.key, release.name)
        return self._worker.give_up_send(release.channel, release.key, release.name)

    def _settle_drop(self, drop: Drop, pauses: Pauses) -> None:
        """End a drop that has no events left. A spool may deliver some within a day."""
        is_paused = pauses.covers(drop.scope.channel, drop.scope.key)
        is_old = datetime.now(UTC) - drop.at >= DROP_KEPT
        if is_old and not is_paused and not self._pool.may_have_dropped(drop):
            self._control.end_drop(drop)

    def _set_timers(self, order: TimerOrder) -> bool:
        """Set it in the next conversations; False while its handler is not known."""
        has_handler = self._worker.timer_orders.has_handler(order.name)
        if has_handler is None:
            return False
        ids = self._worker.timer_orders.step(order) if has_handler else ()
        if ids:
            self._control.went_on(order, last=ids[-1], count=order.count + len(ids))
            return True
        code = "timers_set" if has_handler else "no_timer_handler"
        self._control.finish(order, {"code": code, "count": order.count})
        log.info(
            "timer for all friends name=%s came=%s conversations=%d", order.name, code, order.count
        )
        return True

    def _settle(self, release: Release) -> None:
        came = self._control.came_of(release)
        if came is not None and self._lease.is_fresh():
            self._control.finish(release, came)
            log.info("released conversation=%s came=%s", release.conversation, came)


def _tell(before: Pauses, now: Pauses) -> None:
    """Log each pause that has begun or ended."""
    was, are = ({one.scope: one for one in pauses.rows} for pauses in (before, now))
    for scope in are.keys() - was.keys():
        log.info("paused scope=%s by=%s", scope, are[scope].by)
    for scope in was.keys() - are.keys():
        log.info("resumed scope=%s", scope)
    for drop in set(now.drops) - set(before.drops):
        log.info("dropping what waits scope=%s by=%s until=%s", drop.scope, drop.by, drop.at)
