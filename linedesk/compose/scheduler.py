"""The scheduler, put together from settings: within the dispatcher, or as a separate process."""

from __future__ import annotations

import os
import time
from queue import SimpleQueue

from prometheus_client import CollectorRegistry

from dispatcher.feed.feed import feed_client
from linedesk.compose.sim_clock import SimClock
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.metrics_server import serve_metrics
from linedesk.runtime.service_manager import let_time_pass, service_from
from linedesk.runtime.signals import take_signals
from linedesk.runtime.thread import Component
from linedesk.scheduler.process import SchedulerStatusReporter, run
from linedesk.scheduler.scheduler import Scheduler
from linedesk.settings.settings import Settings
from linedesk.store.client import Client, connect
from linedesk.store.errors import AccessRefused


def run_scheduler(settings: Settings) -> int:
    """Run until a signal; returns the exit code. Raises SetupError."""
    service = service_from(os.environ)
    inbox: SimpleQueue[int | BaseException] = SimpleQueue()
    take_signals(inbox)
    clock = simulated_clock(settings)
    registry = CollectorRegistry()
    with (
        serve_metrics(registry, settings.metrics_host, settings.scheduler_metrics_port),
        connect(settings.mongodb_uri, app_name="linedesk-scheduler") as client,
        feed_client(settings.mongodb_uri, app_name="linedesk-doorbell") as listening,
        SchedulerStatusReporter(service, client[settings.mongodb_database], registry) as reporter,
    ):
        scheduler = make_scheduler(settings, client, listening, clock=clock, registry=registry)
        parts: list[Component] = [scheduler] if clock is None else [clock, scheduler]
        began = time.monotonic()
        try:
            in_order = run(parts, client[settings.mongodb_database], inbox, reporter)
            return Exit.OK if in_order else Exit.SOFTWARE
        except AccessRefused as error:
            let_time_pass(began, inbox, reporter, why=str(error))
            raise


def simulated_clock(settings: Settings) -> SimClock | None:
    """The simulator's clock if SIM_CLOCK names one."""
    return None if settings.sim_clock is None else SimClock(settings.sim_clock)


def make_scheduler(
    settings: Settings,
    client: Client,
    listening: Client,
    *,
    clock: SimClock | None,
    registry: CollectorRegistry,
) -> Scheduler:
    """A scheduler for the settings' database; `listening` is a feed's client."""
    databases = (one[settings.mongodb_database] for one in (client, listening))
    if clock is None:
        return Scheduler(*databases, registry=registry)
    scheduler = Scheduler(*databases, now=clock.now, registry=registry)
    clock.when_moved(scheduler.wake)
    return scheduler
