"""deploy/prometheus and deploy/grafana: each query is parsed by promtool, and answered by a real
Prometheus that scrapes the running processes.
"""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

import linesim
from linedesk.operate.acts import OperatorControl
from linedesk.setup.collections import create_collections
from linedesk.setup.private_mongod import free_port
from linedesk.store.collections import MEGABYTE
from linedesk.store.control import Scope
from linedesk.store.documents import RECVQ
from linesim import Rule, Status
from tests.acceptance.conftest import House, Process
from tests.conftest import missing
from tests.fork_server import Child, Written, nursery
from tests.rabbitmq import is_installed, throwaway_rabbitmq
from tests.rows import Db
from tests.waiting import Ended, eventually, ran

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "linedesk-alerts.yml"
CONFIGURATION = DEPLOY / "prometheus" / "prometheus.yml"
DASHBOARD = DEPLOY / "grafana" / "linedesk.json"
# LINE is asked for the quota a minute after the start; the oplog's and recvq's rates take a while.
# The processes here have no workers.
LATER = re.compile(r"quota|_left_seconds|linedesk_worker|linedesk_broker")


def run(program: str, *arguments: object) -> Ended:
    if shutil.which(program) is None:
        missing(f"{program} is not installed")
    return ran([program, *map(str, arguments)])


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


def test_each_alert_fires_on_what_it_is_for_and_not_without_it() -> None:
    tested = run("promtool", "test", "rules", Path(__file__).with_name("alerts_test.yml"))
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_promtool_takes_every_query_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {"record": f"query:{number}", "expr": query}
        for number, query in enumerate(dashboard_queries())
    ]
    assert len(rules) > 40
    path = tmp_path / "dashboard.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    checked = run("promtool", "check", "rules", path)
    assert checked.returncode == 0, checked.stdout + checked.stderr


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

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        rows = self.ask('ALERTS{alertstate="firing"}')
        return {row["metric"]["alertname"] for row in rows}


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
def house(tmp_path: Path, mongo_uri: str, database: Db) -> Iterator[House]:
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


class Faults:
    """Causes faults one by one, and notes the alerts that fire."""

    def __init__(self, server: Prometheus) -> None:
        self._server = server
        self.fired = set[str]()

    def fires(self, *alerts: str, fault: Callable[[], object]) -> None:
        """The fault makes these alerts fire, all of which are silent before."""
        self.ends(*alerts)
        fault()
        self.begins(*alerts)

    def begins(self, *alerts: str, seconds: float = 30.0) -> None:
        """These alerts fire by now, or soon."""
        eventually(lambda: self._server.firing() >= set(alerts), seconds=seconds)
        self.fired |= set(alerts)

    def ends(self, *alerts: str) -> None:
        """None of them fires, or none any more."""
        eventually(lambda: not self._server.firing() & set(alerts), seconds=30)


def rules_without_waits(folder: Path) -> Path:
    """The project's rules, each of which fires at once."""
    rules = yaml.safe_load(RULES.read_text("utf-8"))
    for rule in rules["groups"][0]["rules"]:
        rule.pop("for", None)
    path = folder / "alerts.yml"
    path.write_text(yaml.safe_dump(rules))
    return path


@contextmanager
def running_worker(**environ: str) -> Iterator[Child]:
    """With the settings of a worker's machine: no MongoDB and no secrets of LINE."""
    given = {**os.environ, **environ}
    with Written() as log:
        worker = nursery.start("linedesk", "worker", env=given, stdout=log.fd, stderr=log.fd)
        try:
            yield worker
        finally:
            worker.kill()
            worker.wait(10)


@pytest.mark.long
@pytest.mark.timeout(300)
def test_each_alert_fires_by_its_fault(house: House, tmp_path: Path) -> None:
    """One installation, fault after fault; a minute passes until an event that hangs is late."""
    if not is_installed():
        missing("no RabbitMQ on this machine (apt install rabbitmq-server)")
    house.database.drop_collection(RECVQ)
    create_collections(house.database, capped_bytes=MEGABYTE)
    desk, leader, standby = free_port(), free_port(), free_port()
    bot = {"BOT": "tests.deploy.hanging_bot:bot"}
    house.settings |= {"FRONTDESK_METRICS_PORT": str(desk), "SPOOL_MAX_MB": "1", **bot}
    house.settings |= {"HANDLER_LIMIT_SECONDS": "1", "HANDLER_TRIES": "100"}
    house.start_frontdesk()
    dispatcher = house.start_dispatcher(DISPATCHER_METRICS_PORT=str(leader))
    ports = {desk: "frontdesk", leader: "dispatcher", standby: "dispatcher"}
    sim, control = house.sim, OperatorControl(house.database)
    paused, stuck, *well = (sim.add_user(name) for name in "花月雪星空海山")

    with prometheus(tmp_path, ports, rules=rules_without_waits(tmp_path)) as server:
        faults = Faults(server)

        def start_standby() -> Process:
            starts = f'process_start_time_seconds{{instance="127.0.0.1:{standby}"}}'
            before = server.ask(starts)
            process = house.start_dispatcher(ready=False, DISPATCHER_METRICS_PORT=str(standby))
            eventually(
                lambda: (
                    [row["value"][1] for row in server.ask(starts)]
                    not in ([], [row["value"][1] for row in before])
                )
            )
            return process

        second = start_standby()
        eventually(lambda: server.firing() == set())

        # One user is paused, and another one's handler hangs.
        scope = Scope("main", paused.user_id)
        control.pause(scope, by="operator")
        eventually(lambda: server.ask('linedesk_pauses{scope="conversation"} == 1'))
        sim.say(paused, "hello")
        house.wait_for(lambda: house.database.held.find_one({"why.code": "paused"}))
        assert "LinedeskAnswersLate" not in server.firing()
        faults.fires("LinedeskHandlersHang", fault=lambda: sim.say(stuck, "hang"))
        yesterday = {"$set": {"at": datetime.now(UTC) - timedelta(hours=25)}}
        pauses = house.database.control
        faults.fires(
            "LinedeskPauseForgotten", fault=lambda: pauses.update_one({"_id": scope.id}, yesterday)
        )
        for wide in (Scope("main"), Scope()):
            faults.fires("LinedeskPaused", fault=partial(control.pause, wide, by="operator"))
            control.resume(wide)

        # LINE takes no message of anybody, then fails, and then refuses one message.
        def line_answers(status: int, message: str) -> None:
            sim.misbehave(Rule(outcome=Status(status, {"message": message})))
            for user in well:
                sim.say(user, "hello")

        faults.fires(
            "LinedeskLineFails", fault=lambda: line_answers(429, "You have reached your limit.")
        )
        sim.behave()
        faults.fires("LinedeskLineFails", fault=lambda: line_answers(500, "Internal server error"))
        sim.behave()
        faults.fires(
            "LinedeskDeadLetters", fault=lambda: line_answers(400, "The request body is wrong")
        )
        sim.behave()

        def keep_dying() -> None:
            nonlocal second
            for _ in range(4):
                house.stop(second, signal.SIGKILL)
                second = start_standby()

        faults.fires("LinedeskKeepsDying", fault=keep_dying)
        faults.fires("LinedeskDown", fault=lambda: house.stop(second, signal.SIGKILL))

        with throwaway_rabbitmq() as rabbitmq:
            # By the event that hangs: also in `held`, where the paused one waits, too.
            faults.begins("LinedeskAnswersLate", seconds=90)
            [late] = [one["expr"] for one in alerts() if one["alert"] == "LinedeskAnswersLate"]
            eventually(lambda: server.ask(f"({late}) and on() max(linedesk_behind_seconds) < 60"))
            assert set(house.database.held.distinct("key")) == {paused.user_id, stuck.user_id}

            faults.fires(
                "LinedeskNobodyDispatches", fault=lambda: house.stop(dispatcher, signal.SIGKILL)
            )

            # recvq fills, then the spool does.
            full = ("LinedeskRecvqFilling", "LinedeskSpooling", "LinedeskRefusesWebhooks")

            def flood() -> bool:
                sim.say(well[0], "あ" * 5_000)
                return server.firing() >= set(full)

            faults.fires(*full, fault=lambda: eventually(flood, seconds=60))

            # Handlers in a worker process: there is none, then RabbitMQ is gone.
            amqp: dict[str, Any] = {"AMQP_URL": rabbitmq.url}
            leads = {"DISPATCHER_WORKERS": "amqp", "DISPATCHER_METRICS_PORT": str(leader), **amqp}
            faults.fires(
                "LinedeskNoWorker", fault=lambda: house.start_dispatcher(ready=False, **leads)
            )
            with running_worker(**amqp, **bot, WORKER_THREADS="4"):
                faults.ends("LinedeskNoWorker")
                faults.fires("LinedeskLineFails", fault=lambda: line_answers(401, "Wrong token"))
                faults.fires("LinedeskNoWorker", fault=rabbitmq.kill)
    assert faults.fired == {alert["alert"] for alert in alerts()}
