"""`/metrics`: what it answers, whom it outlasts, and several processes that answer as one."""

from __future__ import annotations

import errno
import http.client
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from linedesk import metrics, sharedmetrics
from linedesk.embedded import free_port
from linedesk.metrics import MetricsServer, serve_metrics
from linedesk.sharedmetrics import Gauges, SharedMetrics
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


def threads_of(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


# --- what it answers --------------------------------------------------------------------------


def test_it_tells_the_figures_those_of_the_process_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def hidden(self: ProcessCollector) -> float:
        raise FileNotFoundError("/proc/stat, as under ProcSubset=pid")

    monkeypatch.setattr(ProcessCollector, "_boot_time", hidden)
    registry = CollectorRegistry()
    Counter("linedesk_accepted_events", "Events.", registry=registry).inc(3)
    with served(registry) as port:
        plain = ask(port)
        assert plain.type.startswith("text/plain; version=0.0.4")
        lines = plain.body.splitlines()
        assert "linedesk_accepted_events_total 3.0" in lines
        names = {line.split(" ")[2] for line in lines if line.startswith("# TYPE")}
        assert {"process_resident_memory_bytes", "process_open_fds", "python_info"} <= names
        assert "_created" not in plain.body
        started = next(line for line in lines if line.startswith("process_start_time_seconds"))
        assert 0 <= time.time() - float(started.split()[1]) < 86_400

        open_metrics = ask(port, accept=OPENMETRICS)
        assert open_metrics.type.startswith("application/openmetrics-text; version=1.0.0")
        assert open_metrics.body.endswith("# EOF\n")

        assert ask(port, "/metrics?name=x").status == 200
        assert ask(port, "/").status == 404
        assert ask(port, method="POST").status == 405
        with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as line:
            line.sendall(b"nonsense\r\n\r\n")
            assert line.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_a_figure_that_fails_costs_an_answer_and_nothing_else(
    caplog: pytest.LogCaptureFixture,
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
        assert "metrics failed" in caplog.text
        broken.healthy = True
        assert ask(port).status == 200


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=10).close()
    except OSError:
        return False
    return True


def test_without_a_port_nothing_is_served() -> None:
    before = threading.active_count()
    with serve_metrics(CollectorRegistry(), "127.0.0.1", None):
        assert threading.active_count() == before


# --- whom it outlasts -------------------------------------------------------------------------


def test_the_slow_hold_up_neither_others_nor_the_end() -> None:
    with served() as port:
        slow = [socket.create_connection(("127.0.0.1", port), timeout=10) for _ in range(3)]
        for line in slow:
            line.sendall(b"GET /metrics HT")
        assert ask(port).status == 200
        began = time.monotonic()
    assert time.monotonic() - began < metrics.JOIN_SECONDS
    for line in slow:
        with closing(line):
            assert line.recv(1) == b""


def test_a_request_that_takes_too_long_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ANSWER_SECONDS", 0.1)
    with served() as port, closing(socket.create_connection(("127.0.0.1", port))) as line:
        line.settimeout(10)
        line.sendall(b"GET /metrics")
        assert line.recv(1) == b""


def test_more_than_it_can_answer_at_a_time_are_turned_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "ANSWER_SECONDS", 60.0)
    with served() as port:
        eventually(lambda: not threads_of("metrics-answer"))
        monkeypatch.setattr(metrics, "MOST_AT_A_TIME", 1)
        with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as first:
            first.sendall(b"GET")

            def turned_away() -> bool:
                with closing(socket.create_connection(("127.0.0.1", port), timeout=10)) as line:
                    try:
                        return line.recv(1) == b""
                    except ConnectionResetError:
                        return True

            assert turned_away()
        eventually(lambda: answers(port))


def test_a_port_that_is_taken_is_told_once_and_had_once_it_is_free(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metrics, "AGAIN_SECONDS", 0.05)
    attempts: list[None] = []
    listen = MetricsServer._listen

    def counted(self: MetricsServer) -> socket.socket:
        attempts.append(None)
        return listen(self)

    monkeypatch.setattr(MetricsServer, "_listen", counted)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        server = serve_metrics(CollectorRegistry(), "127.0.0.1", port)
        eventually(lambda: len(attempts) > 3)
    with server:
        eventually(lambda: answers(port))
    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert [one.getMessage() for one in errors] == [
        "metrics not served, trying again host=127.0.0.1 "
        f'port={port} reason="Address already in use"'
    ]


def test_it_may_be_stopped_before_it_began_and_twice() -> None:
    server = MetricsServer(CollectorRegistry(), "127.0.0.1", free_port())
    server.stop()
    server.start()
    server.stop()
    assert not server._thread.is_alive()


# --- several processes ------------------------------------------------------------------------

GAUGES = Gauges(summed=frozenset({"linedesk_connections"}), smallest=frozenset({"linedesk_ends"}))


class Desk:
    """One process's part; several fit into one, since locks belong to open files."""

    def __init__(self, folder: Path) -> None:
        registry = CollectorRegistry()
        self.events = Counter("linedesk_events", "Events.", registry=registry)
        refused = Counter("linedesk_refused", "Refused.", ["reason"], registry=registry)
        self.refused = refused.labels("body")
        self.seconds = Histogram("linedesk_seconds", "Time.", buckets=(1, 2), registry=registry)
        self.connections = Gauge("linedesk_connections", "Open.", registry=registry)
        self.bytes = Gauge("linedesk_bytes", "Size.", registry=registry)
        self.ends = Gauge("linedesk_ends", "End.", registry=registry)
        self.shared = SharedMetrics(registry, folder, GAUGES)

    def figures(self) -> dict[str, float]:
        """Of all of them, as this one tells."""
        return {
            ",".join([sample.name, *sample.labels.values()]): sample.value
            for metric in self.shared.collect()
            for sample in metric.samples
            if not sample.name.endswith("_created")
        }

    def killed(self) -> None:
        """As kill -9 leaves it: nothing is written any more, and its lock is free."""
        assert self.shared._place is not None
        self.shared._place.leave()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "spool.db-metrics-9101"


@pytest.fixture
def two(folder: Path) -> tuple[Desk, Desk]:
    one, other = Desk(folder), Desk(folder)
    for desk in (one, other):
        desk.figures()
    return one, other


def test_whoever_is_asked_tells_of_all(two: tuple[Desk, Desk]) -> None:
    one, other = two
    for desk, number in ((one, 1), (other, 10)):
        desk.events.inc(number)
        desk.seconds.observe(1.5)
        for gauge in (desk.connections, desk.bytes, desk.ends):
            gauge.set(number)
    one.refused.inc()
    other.figures()
    expected = {
        "linedesk_events_total": 11,
        "linedesk_refused_total,body": 1,
        "linedesk_seconds_bucket,1.0": 0,
        "linedesk_seconds_bucket,2.0": 2,
        "linedesk_seconds_bucket,+Inf": 2,
        "linedesk_seconds_count": 2,
        "linedesk_seconds_sum": 3,
        "linedesk_connections": 11,
        "linedesk_bytes": 10,
        "linedesk_ends": 1,
    }
    assert one.figures() == expected
    assert other.figures() == expected


def test_who_was_killed_leaves_its_counts_and_none_of_its_gauges(
    two: tuple[Desk, Desk], folder: Path
) -> None:
    one, other = two
    one.events.inc(5)
    one.connections.set(7)
    one.bytes.set(9)
    one.figures()
    one.killed()
    assert other.figures()["linedesk_events_total"] == 5
    assert other.figures()["linedesk_connections"] == 0
    assert other.figures()["linedesk_bytes"] == 0

    successor = Desk(folder)
    successor.events.inc()
    assert successor.figures()["linedesk_events_total"] == 6
    assert other.figures()["linedesk_events_total"] == 6
    assert len(list(folder.glob("*.json"))) == 2


def test_where_nobody_lives_what_stands_there_is_forgotten(
    two: tuple[Desk, Desk], folder: Path
) -> None:
    for desk in two:
        desk.events.inc()
        desk.figures()
        desk.killed()
    assert Desk(folder).figures()["linedesk_events_total"] == 0


def test_who_hangs_keeps_its_counts_and_loses_its_gauges(
    two: tuple[Desk, Desk], folder: Path
) -> None:
    one, other = two
    one.events.inc(5)
    one.connections.set(7)
    one.figures()
    assert other.figures()["linedesk_connections"] == 7
    file = folder / "0.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "at": content["at"] - 60}))
    assert other.figures()["linedesk_connections"] == 0
    assert other.figures()["linedesk_events_total"] == 5


@pytest.mark.parametrize("content", ["", "{", "[]", '{"at": 1, "metrics": [[1]]}', "\0\xff"])
def test_a_file_that_is_none_of_them_counts_for_nothing(
    two: tuple[Desk, Desk], folder: Path, content: str
) -> None:
    two[1].events.inc()
    (folder / "7.json").write_text(content)
    assert two[1].figures()["linedesk_events_total"] == 1


def test_on_a_full_disk_counts_stand_still_rather_than_go_back(
    two: tuple[Desk, Desk], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = two
    one.events.inc(5)
    one.figures()
    write = Path.write_text

    def full(self: Path, *_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "write_text", full)
    one.events.inc(5)
    one.bytes.set(3)
    for _ in range(2):
        assert one.figures()["linedesk_events_total"] == 5
        assert one.figures()["linedesk_bytes"] == 3
    assert other.figures()["linedesk_events_total"] == 5
    assert caplog.text.count("No space left on device") == 2  # one line for each of them

    monkeypatch.setattr(Path, "write_text", write)
    assert one.figures()["linedesk_events_total"] == 10


def test_without_a_place_among_the_others_nothing_is_told(tmp_path: Path) -> None:
    port = free_port()
    alone = Desk(tmp_path / "missing" / "folder")
    with (
        alone.shared,
        MetricsServer(alone.shared, "127.0.0.1", port, share_port=True) as server,
    ):
        server.start()
        eventually(lambda: listens(port))
        assert ask(port).status == 503


def test_two_that_begin_at_once_wait_for_each_other(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desks, barrier = [Desk(folder) for _ in range(4)], threading.Barrier(4)
    figures: list[dict[str, float]] = []

    def begin(desk: Desk) -> None:
        desk.events.inc()
        barrier.wait(10)
        figures.append(desk.figures())

    threads = [threading.Thread(target=begin, args=(desk,)) for desk in desks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert max(one["linedesk_events_total"] for one in figures) == 4

    # One that stands still amid it keeps the others waiting for a moment only.
    monkeypatch.setattr(sharedmetrics, "CLAIM_SECONDS", 0.05)
    lock = sharedmetrics._tried(folder / "claim.lock")
    assert lock is not None
    with pytest.raises(OSError, match="no place"):
        Desk(folder).figures()
    os.close(lock)


def test_what_it_tells_is_what_prometheus_reads(two: tuple[Desk, Desk]) -> None:
    one, other = two
    port = free_port()
    with MetricsServer(one.shared, "127.0.0.1", port) as server:
        server.start()
        eventually(lambda: answers(port))
        other.refused.inc(2)
        other.figures()
        families = {one.name: one for one in text_string_to_metric_families(ask(port).body)}
    assert families["linedesk_refused"].samples[0].value == 2
    assert families["linedesk_seconds"].type == "histogram"
