"""docs/reference/metrics.md has exactly the metrics that the processes declare, and the pages of
monitoring have exactly the alerts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

import dispatcher.metrics
import frontdesk.metrics
import jobworker.metrics
import jobworker.remote.metrics
import linedesk.scheduler.metrics
from linedesk.console import processes
from linedesk.runtime.metrics import PREFIX, figure_name
from linedesk.store.spool.spool import SpoolContents

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
MONITORING = ("docs/how-to/monitoring.md", "docs/ja/how-to/monitoring.md")
RULES = ROOT / "deploy" / "prometheus" / "linedesk-alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "linedesk.json"

Metric = tuple[str, frozenset[str], str]
"""The name that Prometheus has, its labels, and its kind."""


class Desk:
    """Everything that a front desk's figures read."""

    held = SpoolContents()
    spooled_events = 0
    no_spool: str | None = None
    closed = None
    share = 0.0


def front_desk(registry: CollectorRegistry) -> None:
    figures = frontdesk.metrics.FrontdeskMetrics(registry)
    desk: Any = Desk()
    figures.watch_spool(desk, max_bytes=1)
    figures.watch_guard(desk)
    figures.watch_connections(lambda: 0)
    figures.watch_certificate(lambda: 0.0)


def worker(registry: CollectorRegistry) -> None:
    figures = jobworker.metrics.WorkerMetrics(registry)
    figures.called("api", "/v2/bot/message/push", 200, 0.1)
    figures.of_gate("api")
    figures.sent("/v2/bot/message/push", sends=1, people=1)
    figures.watch_class("api", "live", waiting=lambda: 0, longest_seconds=lambda: 0.0)
    figures.watch_gate("api", used_seconds=lambda: 0.0, waiting=lambda: 0)
    figures.watch_breaker("api", lambda: False, pause_seconds=lambda: 0.0)


def the_dispatcher(registry: CollectorRegistry) -> None:
    dispatcher.metrics.DispatcherMetrics(registry, leads=lambda: True)


def the_scheduler(registry: CollectorRegistry) -> None:
    linedesk.scheduler.metrics.SchedulerMetrics(registry)


def leader_of_workers(registry: CollectorRegistry) -> None:
    jobworker.remote.metrics.watch_workers(registry, dict)


def worker_process(registry: CollectorRegistry) -> None:
    jobworker.remote.metrics.HandlerMetrics(registry, abandoned=lambda: 0)


ROOMS = {
    "leader of workers": leader_of_workers,
    "worker": worker_process,
    "front desk": front_desk,
    "dispatcher": the_dispatcher,
    "bot and LINE": worker,
    "scheduler": the_scheduler,
}


def declared(room: str) -> Iterator[Metric]:
    registry = CollectorRegistry()
    ROOMS[room](registry)
    for family in registry.collect():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        if not family.samples:
            labels |= set(labels_of(family.name))
        name = family.name + ("_total" if family.type == "counter" else "")
        yield name, frozenset(labels), family.type


def labels_of(name: str) -> Iterator[str]:
    """The labels of a figure that has values only while a dispatcher leads."""
    for one in (*dispatcher.metrics.IN_HAND, *dispatcher.metrics.DEPTH):
        if name == PREFIX + one.name and one.label is not None:
            yield one.label


def documented(room: str) -> Iterator[Metric]:
    table = PAGE.partition(f"| metrics of the {room} | type | meaning |\n")[2].partition("\n\n")[0]
    for name, labels, kind in re.findall(
        r"^\| `(linedesk_\w+)(?:\{([\w, ]+)\})?` \| (\w+) \| .+ \|$", table, re.MULTILINE
    ):
        yield name, frozenset(filter(None, labels.split(", "))), kind


@pytest.mark.parametrize("room", ROOMS)
def test_the_table_of_metrics_is_that_of_the_registry(room: str) -> None:
    assert sorted(documented(room), key=str) == sorted(declared(room), key=str)


@pytest.mark.parametrize("page", MONITORING)
def test_each_alert_has_a_row_with_its_severity(page: str) -> None:
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules = {rule["alert"]: rule["labels"]["severity"] for rule in group["rules"]}
    text = (ROOT / page).read_text("utf-8")
    rows = re.findall(r"^\| `(Linedesk\w+)`, (\w+) \|", text, re.MULTILINE)
    assert dict(rows) == rules
    assert len(rows) == len(rules)


def test_alerts_and_dashboard_use_only_documented_metrics() -> None:
    queries = RULES.read_text("utf-8") + " ".join(
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
    )
    used = {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\blinedesk_\w+", queries)
    }
    known = {name for room in ROOMS for name, _, _ in documented(room)}
    assert used <= known


def test_each_gauge_of_several_front_desks_is_summed_or_has_a_smallest_or_largest() -> None:
    gauges = {figure_name(name) for name, _, kind in declared("front desk") if kind == "gauge"}
    summed = {"connections"}
    assert gauges - summed == {*processes.SMALLEST, *processes.LARGEST}
