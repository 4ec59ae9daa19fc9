"""`/metrics`: its answers, a port that is taken, and that it ends with its process."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric

from linedesk.launch import metrics_server
from linedesk.launch.metrics_server import serve_metrics
from linedesk.runtime.metrics import COUNTER, Figure, Metrics
from linedesk.setup.private_mongod import free_port
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("nothing_left")

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


class Answer:
    def __init__(self, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.type = response.headers["Content-Type"]
        self.body = response.read().decode()


def ask(port: int, path: str = "/metrics", *, method: str = "GET", accept: str = "") -> Answer:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=10)) as line:
        line.request(method, path, headers={"Accept": accept} if accept else {})
        return Answer(line.getresponse())


def answers(port: int) -> bool:
    try:
        return ask(port).status == 200
    except OSError:
        return False


@contextmanager
def served(registry: CollectorRegistry | None = None) -> Iterator[int]:
    port = free_port()
    with serve_metrics(registry or CollectorRegistry(), "127.0.0.1", port):
        eventually(lambda: answers(port))
        yield port


# --- its answers ------------------------------------------------------------------------------


def test_it_serves_the_figures_those_of_the_process_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(self: ProcessCollector) -> float:
        raise FileNotFoundError("/proc/stat, as under ProcSubset=pid")

    monkeypatch.setattr(ProcessCollector, "_boot_time", hidden)
    registry = CollectorRegistry()
    figures = Metrics([Figure("accepted_events", COUNTER, "Events.")], registry)
    figures.add("accepted_events", by=3)
    with served(registry) as port:
        plain = ask(port)
        assert plain.type.startswith("text/plain; version=0.0.4")
        lines = plain.body.splitlines()
        assert "linedesk_accepted_events_total 3.0" in lines
        names = {line.split(" ")[2] for line in lines if line.startswith("# TYPE")}
        assert {"process_resident_memory_bytes", "process_open_fds"} <= names
        assert "_created" not in plain.body
        started = next(line for line in lines if line.startswith("process_start_time_seconds"))
        assert 0 <= time.time() - float(started.split()[1]) < 86_400

        open_metrics = ask(port, accept=OPENMETRICS)
        assert open_metrics.type.startswith("application/openmetrics-text; version=1.0.0")
        assert open_metrics.body.endswith("# EOF\n")

        assert ask(port, "/metrics?name=x").status == 200
        assert ask(port, method="POST").status == 405


def test_a_figure_that_fails_costs_an_answer_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        healthy = False

        def collect(self) -> list[Metric]:
            assert self.healthy
            return []

    broken, registry, port = Broken(), CollectorRegistry(), free_port()
    registry.register(broken)
    with serve_metrics(registry, "127.0.0.1", port):
        eventually(lambda: listens(port))
        assert ask(port).status == 500
        eventually(lambda: "assert self.healthy" in capsys.readouterr().err)
        broken.healthy = True
        assert ask(port).status == 200


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True


# --- its port, and its end --------------------------------------------------------------------


def test_it_ends_with_its_process_and_frees_the_port_whatever_a_client_does() -> None:
    with served() as port:
        slow = socket.create_connection(("127.0.0.1", port), timeout=10)
        slow.sendall(b"GET /metrics HT")
        assert ask(port).status == 200
        began = time.monotonic()
    assert time.monotonic() - began < metrics_server.JOIN_SECONDS
    assert not listens(port)
    slow.close()
