"""`/metrics`: its answers, and that it ends with its process."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import requests
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.metrics_core import Metric

from linedesk.launch import metrics_server
from linedesk.launch.metrics_server import serve_metrics
from linedesk.runtime.metrics import COUNTER, Figure, Metrics
from linedesk.setup.private_mongod import free_port
from tests.waiting import eventually

OPENMETRICS = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True


@contextmanager
def served(registry: CollectorRegistry) -> Iterator[tuple[str, int]]:
    port = free_port()
    with serve_metrics(registry, "127.0.0.1", port):
        eventually(lambda: listens(port))
        yield f"http://127.0.0.1:{port}/metrics", port


def test_it_serves_the_figures_those_of_the_process_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(self: ProcessCollector) -> float:
        raise FileNotFoundError("/proc/stat, as under ProcSubset=pid")

    monkeypatch.setattr(ProcessCollector, "_boot_time", hidden)
    registry = CollectorRegistry()
    figures = Metrics([Figure("accepted_events", COUNTER, "Events.")], registry)
    figures.add("accepted_events", by=3)
    with served(registry) as (url, _):
        plain = requests.get(url, timeout=10)
        assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = plain.text.splitlines()
        assert "linedesk_accepted_events_total 3.0" in lines
        names = {line.split(" ")[2] for line in lines if line.startswith("# TYPE")}
        assert {"process_resident_memory_bytes", "process_open_fds"} <= names
        assert "_created" not in plain.text
        started = next(line for line in lines if line.startswith("process_start_time_seconds"))
        assert 0 <= time.time() - float(started.split()[1]) < 86_400
        assert requests.get(url, headers={"accept": OPENMETRICS}).text.endswith("# EOF\n")
        assert requests.post(url, timeout=10).status_code == 405


def test_a_figure_that_fails_costs_an_answer_and_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Broken:
        healthy = False

        def collect(self) -> list[Metric]:
            assert self.healthy
            return []

    broken, registry = Broken(), CollectorRegistry()
    registry.register(broken)
    with served(registry) as (url, _):
        assert requests.get(url, timeout=10).status_code == 500
        eventually(lambda: "assert self.healthy" in capsys.readouterr().err)
        broken.healthy = True
        assert requests.get(url, timeout=10).status_code == 200


def test_it_ends_with_its_process_and_frees_the_port_whatever_a_client_does() -> None:
    with served(CollectorRegistry()) as (url, port):
        slow = socket.create_connection(("127.0.0.1", port), timeout=10)
        slow.sendall(b"GET /metrics HT")
        assert requests.get(url, timeout=10).status_code == 200
        began = time.monotonic()
    assert time.monotonic() - began < metrics_server.JOIN_SECONDS
    assert not listens(port)
    slow.close()
