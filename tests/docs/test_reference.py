"""The pages of docs/reference have what the code has, and nothing else: each collection, setting,
metric, right, exit code and endpoint.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import dispatcher.metrics
import frontdesk.metrics
import jobworker.metrics
import jobworker.remote.leader
import jobworker.remote.worker
from linedesk.operate import processes
from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.metrics import COUNTER, PREFIX, figure_name
from linedesk.settings.settings import Settings
from linedesk.setup.rights import EVERY, USERS
from linedesk.store import documents

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RULES = ROOT / "deploy" / "prometheus" / "linedesk-alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "linedesk.json"
# Of a wrong command line, and of a second signal.
USAGE, TERMINATED = 2, 143
METRICS = {
    "leader of workers": jobworker.remote.leader.OF_LEADER,
    "worker": jobworker.remote.worker.OF_WORKER,
    "front desk": frontdesk.metrics.TABLE,
    "dispatcher": dispatcher.metrics.TABLE,
    "bot and LINE": jobworker.metrics.TABLE,
    "timers": dispatcher.metrics.OF_TIMERS,
}


def reference(name: str) -> str:
    return (DOCS / "reference" / f"{name}.md").read_text("utf-8")


def default(value: Any) -> str:
    if value in (None, (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_settings_with_their_defaults_and_values() -> None:
    found = re.findall(
        r"^### (\w+)\n(.*?)(?=^##|\Z)", reference("settings"), re.MULTILINE | re.DOTALL
    )
    assert sorted(name for name, _ in found) == sorted(map(str.upper, Settings.model_fields))
    entries = dict(found)
    for name, field in Settings.model_fields.items():
        assert f"- Default: {default(field.default)}\n" in entries[name.upper()]
        assert f"- Value: {field.description}\n" in entries[name.upper()]


def test_collections() -> None:
    named = re.findall(r"^### `(\w+)`\n", reference("collections"), re.MULTILINE)
    values = {name: value for name, value in vars(documents).items() if name.isupper()}
    assert set(named) == {value for name, value in values.items() if value == name.lower()}


def rights() -> Iterator[str]:
    """A line for each user and set of actions, with the collections that have it."""
    for user in USERS:
        where: dict[str, list[str]] = {}
        for name, may in user.own.items():
            where.setdefault(", ".join(may), []).append(name if name != EVERY else "all")
        if user.oplog:
            where.setdefault(", ".join(user.oplog), []).append("local.oplog.rs")
        if user.server:
            where.setdefault(", ".join(user.server), []).append("the server")
        for actions, names in where.items():
            yield f"- `{user.name}` on {', '.join(names)}: {actions}"


def test_rights_of_mongodbs_users() -> None:
    assert "\n".join(rights()) in reference("collections")


def test_exit_codes() -> None:
    cells = re.findall(r"^- ([\d, ]+): ", reference("exit-codes"), re.MULTILINE)
    assert {int(code) for cell in cells for code in cell.split(", ")} == {*Exit, USAGE, TERMINATED}


def declared(room: str) -> set[tuple[str, frozenset[str], str]]:
    return {
        (f"{PREFIX}{name}" + "_total" * (kind == COUNTER), frozenset(labels), kind)
        for name, kind, _, labels, *_ in METRICS[room]
    }


@pytest.mark.parametrize("room", METRICS)
def test_metrics(room: str) -> None:
    page = reference("metrics")
    part = page.partition(f"# {room[0].upper()}{room[1:]}\n")[2].partition("\n#")[0]
    row = re.compile(r"^- `(linedesk_\w+)(?:\{([\w, ]+)\})?` \((\w+)\): .+$", re.MULTILINE)
    assert {
        (name, frozenset(filter(None, labels.split(", "))), kind)
        for name, labels, kind in row.findall(part)
    } == declared(room)


def test_alerts_and_dashboard_use_only_metrics_that_there_are() -> None:
    queries = RULES.read_text("utf-8") + " ".join(
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
    )
    known = {name for room in METRICS for name, *_ in declared(room)}
    used = re.findall(r"\blinedesk_\w+", queries)
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} <= known


@pytest.mark.parametrize("page", ["how-to/monitoring.md", "ja/how-to/monitoring.md"])
def test_alerts_with_their_severity(page: str) -> None:
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    text = (DOCS / page).read_text("utf-8")
    rows = re.findall(r"^- `(Linedesk\w+)` ?[(（](\w+)[)）]", text, re.MULTILINE)
    assert dict(rows) == {rule["alert"]: rule["labels"]["severity"] for rule in group["rules"]}


def test_each_gauge_of_several_front_desks_is_summed_or_has_a_smallest_or_largest() -> None:
    gauges = {figure_name(name) for name, kind, *_ in frontdesk.metrics.TABLE if kind == "gauge"}
    assert gauges - {"connections"} == {*processes.SMALLEST, *processes.LARGEST}


def test_the_endpoints_are_lines_and_the_page_has_each_that_the_code_calls() -> None:
    named = re.findall(r"`(GET|POST) (/v2/[^`]+)`", reference("line-endpoints"))
    api = (ROOT / "tests" / "line-openapi" / "messaging-api.yml").read_text("utf-8")
    assert [
        path
        for _, path in named
        if not re.search(rf"^ +['\"]?{re.escape(path)}['\"]?:$", api, re.M)
    ] == []
    paths = {re.sub(r"\{\w+\}", "{}", path) for _, path in named}
    # gated_client.py has the paths that a bot of line-bot-sdk calls.
    sources = (
        path.read_text("utf-8")
        for package in ("jobworker", "linedesk")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "gated_client.py"
    )
    called = {one for text in sources for one in re.findall(r'(?<!f)"(/v2/bot/[^"]*[\w}])"', text)}
    assert len(called) > 10
    assert {re.sub(r"\{\w+\}", "{}", path) for path in called} <= paths


def test_the_index_links_to_every_page() -> None:
    for folder in (DOCS, DOCS / "ja"):
        links = re.findall(r"\]\(([^)#\s]+\.md)", (folder / "index.md").read_text("utf-8"))
        kinds = ("tutorial", "how-to", "reference", "explanation")
        pages = {page for kind in kinds for page in (folder / kind).glob("*.md")}
        assert pages - {(folder / link).resolve() for link in links} == set()
