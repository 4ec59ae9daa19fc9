"""The LINE client at its border: whom it trusts, and LINE's answers."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from urllib3.util.ssl_ import create_urllib3_context

from jobworker.errors import NotSent, OutcomeUnknown
from jobworker.line import client as client_module
from jobworker.line import deadline
from jobworker.line.call_log import CallLog
from jobworker.line.client import LineClient
from jobworker.line.gate import Gate
from jobworker.line.hosts import Host
from jobworker.line.rate_limits import RateLimits
from tests.jobworker.line.test_deadline import serve_tls
from tests.rows import Db

TOKEN = "a-very-secret-channel-access-token"
PUSH = "/v2/bot/message/push"


@dataclass
class Wire:
    """A server of a few lines that keeps its requests and answers with raw bytes."""

    url: str
    answers: list[Callable[[socket.socket], None]]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    tls: Callable[[socket.socket], socket.socket] = lambda plain: plain


def says(raw: bytes) -> Callable[[socket.socket], None]:
    return lambda connection: connection.sendall(raw)


def answer(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def _read_request(connection: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            return b""
        data += piece
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    ]
    while lengths and len(body) < lengths[0]:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@pytest.fixture
def wire() -> Iterator[Callable[..., Wire]]:
    """`wire(*answers)`: one action an answer, the last one for all further requests."""
    with ExitStack() as stack:

        def serve(plain: socket.socket, wire: Wire) -> None:
            with suppress(OSError), wire.tls(plain) as connection:
                while request := _read_request(connection):
                    wire.requests.append(request)
                    wire.answers[min(len(wire.requests), len(wire.answers)) - 1](connection)

        def accept(listener: socket.socket, wire: Wire) -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                wire.connections += 1
                # So that its thread ends with the test, whenever the client's end is closed.
                stack.callback(hang_up, connection)
                threading.Thread(target=serve, args=(connection, wire), daemon=True).start()

        def make(*answers: Callable[[socket.socket], None], **more: Any) -> Wire:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            stack.callback(lambda: listener.shutdown(socket.SHUT_RDWR))
            made = Wire(f"http://127.0.0.1:{listener.getsockname()[1]}", list(answers), **more)
            thread = threading.Thread(target=accept, args=(listener, made), daemon=True)
            thread.start()
            return made

        yield make


def hang_up(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def host_of(url: str) -> Host:
    """A host with a gate that is free."""

    def step(action: Callable[[], None]) -> None:
        threading.Thread(target=action).start()

    gate = Gate(0.0, step=step, later=lambda seconds, f: f(), lease_is_fresh=lambda: True)
    return Host(url, gate)


@pytest.fixture
def calls(database: Db) -> CallLog:
    """Its rows are written where the test looks at them."""
    return CallLog(database.calls)


@pytest.fixture
def line(calls: CallLog) -> Iterator[Callable[..., LineClient]]:
    with ExitStack() as stack:

        def make(url: str, token: str = TOKEN) -> LineClient:
            made = LineClient(
                host_of(url), token, connections=4, calls=calls, rate_limits=RateLimits()
            )
            stack.callback(made.close)
            return made

        yield make


OK = answer(b"{}", "x-line-request-id: r-1")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_under_tls_a_server_that_is_not_trusted_gets_no_request(
    certificate: tuple[Path, Path], wire: Any, line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate must be signed by one that is trusted, and name the host."""
    trusting = create_urllib3_context()
    trusting.load_verify_locations(certificate[0])
    trusting.sslsocket_class = deadline.TimedTlsSocket
    server = wire(says(OK), tls=lambda plain: serve_tls(plain, certificate))
    port = server.url.rpartition(":")[2]
    with pytest.raises(NotSent):
        line(f"https://localhost:{port}").post(PUSH, {})
    monkeypatch.setattr(deadline, "_tls_context", lambda: trusting)
    with pytest.raises(NotSent):
        line(f"https://127.0.0.1:{port}").post(PUSH, {})
    assert server.requests == []
    assert line(f"https://localhost:{port}").post(PUSH, {}).status == 200


def test_parts_of_a_path_are_quoted(wire: Any, line: Any) -> None:
    server = wire(says(OK))
    line(server.url).get("/v2/bot/group/{}/member/{}", "C/../x", "日本 {}?")
    assert server.requests[0].startswith(
        b"GET /v2/bot/group/C%2F..%2Fx/member/%E6%97%A5%E6%9C%AC%20%7B%7D%3F HTTP/1.1\r\n"
    )


@pytest.mark.parametrize("status", ["503 Busy", "429 Slow", "500 Oh", "302 There"])
def test_nothing_is_repeated_or_followed_on_its_own(wire: Any, line: Any, status: str) -> None:
    server = wire(says(answer(b"", "Retry-After: 0", "Location: /elsewhere", status=status)))
    client = line(server.url)
    assert client.get("/v2/bot/profile/{}", "U1").status == int(status[:3])
    assert client.post(PUSH, {}).status == int(status[:3])
    assert len(server.requests) == 2


def test_a_connection_that_line_closed_while_it_was_idle_is_not_used(wire: Any, line: Any) -> None:
    closed = threading.Event()

    def answer_and_close(connection: socket.socket) -> None:
        connection.sendall(OK)
        hang_up(connection)
        closed.set()

    server = wire(says(OK), answer_and_close, says(OK))
    client = line(server.url)
    assert [client.post(PUSH, {}).status for _ in range(2)] == [200, 200]
    assert closed.wait(10)
    assert client.post(PUSH, {}).status == 200
    assert (len(server.requests), server.connections) == (3, 2)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(answer(b"{}", "Connection: close"), id="close"),
        pytest.param(OK.replace(b"HTTP/1.1", b"HTTP/1.0"), id="HTTP/1.0"),
        pytest.param(OK + OK, id="two answers"),
    ],
)
def test_a_connection_whose_next_answer_may_be_another_one_is_not_used_again(
    wire: Any, line: Any, raw: bytes
) -> None:
    server = wire(says(raw), says(OK))
    client = line(server.url)
    client.post(PUSH, {})
    assert client.post(PUSH, {}).status == 200
    assert server.connections == 2


def test_a_silent_line_is_an_unknown_outcome_in_time(wire: Any, line: Any) -> None:
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        line(wire(lambda connection: None).url).post(PUSH, {}, limit_seconds=0.2)
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"garbage\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", id="a huge header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20_000 + b"\r\n", id="endless headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX-Cut: ", id="cut short"),
    ],
)
def test_an_answer_that_is_not_http_is_an_unknown_outcome(wire: Any, line: Any, raw: bytes) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.close()

    with pytest.raises(OutcomeUnknown):
        line(wire(act).url).post(PUSH, {})


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", id="cut short"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\r\n", id="broken chunks"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            id="not gzip",
        ),
    ],
)
def test_a_200_is_valid_with_any_body(wire: Any, line: Any, raw: bytes) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_RDWR)

    assert line(wire(act).url).post(PUSH, {}).status == 200


@pytest.mark.parametrize(
    ("head", "more"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", b"." * 65536, id="body"),
        pytest.param(CHUNKED + b"0\r\n", b"X: " + b"a" * 65536 + b"\r\n", id="trailers"),
        pytest.param(CHUNKED + b"1;", b"a" * 65536, id="extension of a chunk"),
    ],
)
def test_an_endless_answer_is_left_at_its_bound(
    wire: Any, line: Any, head: bytes, more: bytes
) -> None:
    sent = [0]

    def flood(connection: socket.socket) -> None:
        connection.sendall(head)
        while True:
            connection.sendall(more)
            sent[0] += len(more)

    got = line(wire(flood).url).post(PUSH, {})
    assert (got.status, got.whole) == (200, False)
    assert len(got.text) <= client_module.MOST_BYTES + client_module.READ_BYTES
    # The rest of it is in the buffers of the kernel.
    assert sent[0] < 16 * 1024 * 1024


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("-1", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("\u00b2", None),
        ("9" * 400, client_module.MOST_RETRY_AFTER_SECONDS),
    ],
)
def test_a_retry_after_is_read_where_it_is_a_number(
    wire: Any, line: Any, header: str, seconds: float | None
) -> None:
    server = wire(says(answer(b"", f"Retry-After: {header}", status="429 Slow")))
    assert line(server.url).post(PUSH, {}).retry_after == seconds
