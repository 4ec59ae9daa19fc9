"""docs/reference/metrics.md has exactly the metrics that the processes declare, and the pages of
monitoring have exactly the alerts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

import dispatcher.metrics
import frontdesk.metrics
import jobworker.metrics
import jobworker.remote.leader
import jobworker.remote.worker
from linedesk.operate import processes
from linedesk.runtime.metrics import COUNTER, PREFIX, Figure, figure_name

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
MONITORING = ("docs/how-to/monitoring.md", "docs/ja/how-to/monitoring.md")
RULES = ROOT / "deploy" / "prometheus" / "linedesk-alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "linedesk.json"

Metric = tuple[str, frozenset[str], str]
"""The name that Prometheus has, its labels, and its kind."""


ROOMS: dict[str, tuple[Figure, ...]] = {
    "leader of workers": jobworker.remote.leader.OF_LEADER,
    "worker": jobworker.remote.worker.OF_WORKER,
    "front desk": frontdesk.metrics.TABLE,
    "dispatcher": dispatcher.metrics.TABLE,
    "bot and LINE": jobworker.metrics.TABLE,
    "timers": dispatcher.metrics.OF_TIMERS,
}


def declared(room: str) -> Iterator[Metric]:
    for name, kind, _, labels, *_ in ROOMS[room]:
        yield f"{PREFIX}{name}" + "_total" * (kind == COUNTER), frozenset(labels), kind


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
    rows = re.findall(r"^- `(Linedesk\w+)` ?[(（](\w+)[)）]", text, re.MULTILINE)
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
