"""deploy/prometheus and deploy/grafana: each query is parsed by promtool, and answered by a real
Prometheus that scrapes the running processes.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml
from pymongo.database import Database

import linesim
from linedesk.setup.private_mongod import free_port
from tests.acceptance.conftest import House
from tests.conftest import missing
from tests.waiting import eventually

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "linedesk-alerts.yml"
CONFIGURATION = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "linedesk.json"
# LINE is asked for the quota a minute after the start; the oplog's and recvq's rates take a while.
# The processes here have no workers.
LATER = re.compile(r"quota|_left_seconds|linedesk_worker|linedesk_broker")


def run(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    if shutil.which(program) is None:
        missing(f"{program} is not installed")
    return subprocess.run(
        [program, *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False
    )


def alerts() -> list[dict[str, Any]]:
    [group] = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboard_queries() -> list[str]:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", ())]


def metrics_in(query: str) -> set[str]:
    return set(re.findall(r"\blinedesk_\w+", query))


def test_promtool_takes_the_rules_and_the_configuration() -> None:
    checked = run("promtool", "check", "config", CONFIGURATION)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "13 rules found" in checked.stdout


def test_each_alert_fires_on_what_it_is_for_and_not_without_it() -> None:
    tested = run("promtool", "test", "rules", Path(__file__).with_name("alerts_test.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


class Prometheus:
    """A real one, which scrapes twice a second."""

    def __init__(self, url: str) -> None:
        self._url = url

    def ask(self, query: str) -> list[dict[str, Any]]:
        answer = requests.get(f"{self._url}/api/v1/query", params={"query": query}, timeout=10)
        body = answer.json()
        assert body["status"] == "success", (query, body)
        result: list[dict[str, Any]] = body["data"]["result"]
        return result

    def names(self) -> set[str]:
        answer = requests.get(f"{self._url}/api/v1/label/__name__/values", timeout=10)
        return set(answer.json()["data"])


@contextmanager
def prometheus(
    folder: Path, ports: Mapping[int, str], *, rules: Path = RULES
) -> Iterator[Prometheus]:
    """Run with the project's own configuration, but for its ports and its pace; each of the ports
    is that of a process of this name.
    """
    if shutil.which("prometheus") is None:
        missing("prometheus is not installed")
    configuration = yaml.safe_load(CONFIGURATION.read_text("utf-8"))
    # A scrape has as long as its interval, also on a busy machine.
    configuration["global"] = {"scrape_interval": "500ms", "evaluation_interval": "200ms"}
    configuration["rule_files"] = [str(rules)]
    [job] = configuration["scrape_configs"]
    job["static_configs"] = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"process": process}}
        for port, process in ports.items()
    ]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(configuration))
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        eventually(lambda: _is_ready(url))
        yield Prometheus(url)
    finally:
        process.terminate()
        process.wait(20)


def _is_ready(url: str) -> bool:
    try:
        return requests.get(f"{url}/-/ready", timeout=1).ok
    except requests.RequestException:
        return False


@pytest.fixture
def house(tmp_path: Path, mongo_uri: str, database: Database[Any]) -> Iterator[House]:
    with linesim.running(rate_limits=False) as sim:
        house = House(tmp_path, mongo_uri, database, sim)
        yield house
        house.close()


@pytest.mark.long
def test_a_real_prometheus_answers_every_query_from_the_running_processes(
    house: House, tmp_path: Path
) -> None:
    ports = {free_port(): process for process in ("frontdesk", "dispatcher")}
    house.settings.update(
        {f"{process.upper()}_METRICS_PORT": str(port) for port, process in ports.items()}
    )
    house.start_frontdesk()
    house.start_dispatcher()
    user = house.sim.add_user("花子")
    with prometheus(tmp_path, ports) as server:
        house.sim.say(user, "こんにちは")
        eventually(lambda: server.ask("sum(linedesk_calls_total) > 0"))

        eventually(
            lambda: (
                {row["metric"]["process"] for row in server.ask("up == 1")} == set(ports.values())
            )
        )
        queries = dashboard_queries()
        eventually(lambda: _all_answered(server, queries), seconds=60)
        wanted = set().union(*map(metrics_in, [*queries, *(rule["expr"] for rule in alerts())]))
        known = server.names()
        assert {name for name in wanted - known if not LATER.search(name)} == set()
        for alert in alerts():
            server.ask(alert["expr"])
        eventually(lambda: server.ask('ALERTS{alertname="LinedeskDown"}') == [])


def _all_answered(server: Prometheus, queries: list[str]) -> bool:
    return all(server.ask(query) for query in queries if not LATER.search(query))
