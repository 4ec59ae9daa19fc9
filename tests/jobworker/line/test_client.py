"""The LINE client at its border: its requests, LINE's answers, and the rows about them."""

from __future__ import annotations

import json
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from linebot.v3.messaging import ApiException, MessagingApi
from pymongo.database import Database
from urllib3.exceptions import HTTPError
from urllib3.util.ssl_ import create_urllib3_context

from jobworker.assembly import LineSettings
from jobworker.errors import LineError, NotSent, OutcomeUnknown
from jobworker.line import client as client_module
from jobworker.line import deadline
from jobworker.line.answer import LineAnswer
from jobworker.line.breaker import Breaker
from jobworker.line.call_log import CallLog
from jobworker.line.client import LineClient
from jobworker.line.gate import Gate
from jobworker.line.hosts import Host
from jobworker.line.rate_limits import RateLimits
from jobworker.sdk.gated_client import GatedApiClient
from linedesk.setup.private_mongod import free_port
from linedesk.store.documents import Document
from linesim import Sim
from tests import line_openapi
from tests.rows import rows_of
from tests.waiting import eventually

TOKEN = "a-very-secret-channel-access-token"
PUSH = "/v2/bot/message/push"


def answer_or_error(call: Callable[[], LineAnswer]) -> LineAnswer | LineError:
    try:
        return call()
    except LineError as error:
        return error


@dataclass
class Wire:
    """A server of a few lines that keeps its requests and answers with raw bytes."""

    url: str
    answers: list[Callable[[socket.socket], None]]
    requests: list[bytes] = field(default_factory=list)
    connections: int = 0
    ended: int = 0


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
        threads: list[threading.Thread] = []

        def serve(connection: socket.socket, wire: Wire) -> None:
            with connection, suppress(OSError):
                while request := _read_request(connection):
                    wire.requests.append(request)
                    wire.answers[min(len(wire.requests), len(wire.answers)) - 1](connection)
            wire.ended += 1

        def accept(listener: socket.socket, wire: Wire) -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                wire.connections += 1
                # So that its thread ends with the test, whenever the client's end is closed.
                stack.callback(hang_up, connection)
                thread = threading.Thread(target=serve, args=(connection, wire), daemon=True)
                threads.append(thread)
                thread.start()

        def make(*answers: Callable[[socket.socket], None], host: str = "127.0.0.1") -> Wire:
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            listener = stack.enter_context(socket.create_server((host, 0), family=family))
            stack.callback(lambda: listener.shutdown(socket.SHUT_RDWR))
            named = f"[{host}]" if ":" in host else host
            made = Wire(f"http://{named}:{listener.getsockname()[1]}", list(answers))
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
def calls(database: Database[Any]) -> CallLog:
    """Its rows are written where the test looks at them."""
    return CallLog(database.calls)


def only_row(calls: CallLog, database: Database[Any]) -> Document:
    """The row of the one call that was made."""
    calls.write()
    (row,) = rows_of(database.calls)
    return row


@pytest.fixture
def line(calls: CallLog) -> Iterator[Callable[..., LineClient]]:
    with ExitStack() as stack:

        def make(url: str, token: str = TOKEN, **options: Any) -> LineClient:
            made = LineClient(
                host_of(url), token, connections=4, calls=calls, rate_limits=RateLimits(), **options
            )
            stack.callback(made.close)
            return made

        yield make


OK = answer(b"{}", "x-line-request-id: r-1")
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Echo(BaseHTTPRequestHandler):
    """Answers with the retry key of the request, on connections that it keeps."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        key = self.headers["X-Line-Retry-Key"].encode()
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(answer(key))

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serve_http(tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """A server of `Echo`; its port."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Echo) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        if tls:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join()


def test_japanese_travels_as_utf_8(wire: Any, line: Any) -> None:
    server = wire(says(OK))
    got = line(server.url).post(PUSH, {"messages": [{"type": "text", "text": "やあ😀"}]})
    assert (got.status, got.text, got.request_id) == (200, "{}", "r-1")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert "やあ😀".encode() in body
    assert b"content-type: application/json; charset=utf-8" in head.lower()
    assert f"Authorization: Bearer {TOKEN}".encode() in head


def test_requests_have_these_headers_and_no_others(wire: Any, line: Any) -> None:
    server = wire(says(OK))
    client = line(f"{server.url}/line/")
    client.post(PUSH, {"to": "U1"}, retry_key="k-1")
    client.get("/v2/bot/profile/{}", "U1")
    host = server.url.removeprefix("http://")
    common = [
        f"Host: {host}",
        "Accept-Encoding: identity",
        f"Authorization: Bearer {TOKEN}",
        "User-Agent: linedesk",
    ]
    of_post = [
        "Content-Length: 11",
        "Content-Type: application/json; charset=utf-8",
        "X-Line-Retry-Key: k-1",
    ]
    written = [request.decode().split("\r\n\r\n") for request in server.requests]
    lines = [(*head.split("\r\n"), body) for head, body in written]
    assert [(first, sorted(headers), body) for first, *headers, body in lines] == [
        (f"POST /line{PUSH} HTTP/1.1", sorted(common + of_post), '{"to":"U1"}'),
        ("GET /line/v2/bot/profile/U1 HTTP/1.1", sorted(common), ""),
    ]


def test_a_request_leaves_in_one_piece(line: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        calling = pool.submit(line(f"http://127.0.0.1:{listener.getsockname()[1]}").post, PUSH, {})
        connection, _ = listener.accept()
        with connection:
            assert connection.recv(65536).endswith(b"\r\n\r\n{}")
            connection.sendall(OK)
        assert calling.result().status == 200


def test_an_ipv6_address_is_a_host(wire: Any, line: Any) -> None:
    server = wire(says(OK), host="::1")
    assert line(server.url).post(PUSH, {}).status == 200
    assert f"Host: {server.url.removeprefix('http://')}".encode() in server.requests[0]


def test_a_proxy_of_the_environment_is_not_asked(
    wire: Any, line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, proxy = wire(says(OK)), wire(says(OK))
    monkeypatch.setenv("http_proxy", proxy.url)
    monkeypatch.setenv("HTTP_PROXY", proxy.url)
    monkeypatch.delenv("no_proxy", raising=False)
    assert line(server.url).post(PUSH, {}).status == 200
    assert proxy.connections == 0


def test_under_tls_a_server_that_is_not_trusted_gets_no_request(
    certificate: tuple[Path, Path], wire: Any, line: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its certificate must be signed by one that is trusted, and name the host."""
    of_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    of_server.load_cert_chain(*certificate)
    trusting = create_urllib3_context()
    trusting.load_verify_locations(certificate[0])
    trusting.sslsocket_class = deadline.TimedTlsSocket
    with serve_http(of_server) as port:
        with pytest.raises(NotSent):
            line(f"https://localhost:{port}").post(PUSH, {})
        monkeypatch.setattr(deadline, "_tls_context", lambda: trusting)
        with pytest.raises(NotSent):
            line(f"https://127.0.0.1:{port}").post(PUSH, {})
        client = line(f"https://localhost:{port}")
        assert [client.post(PUSH, {}, retry_key=key).text for key in "ab"] == ["a", "b"]


def test_a_retry_key_goes_along_only_where_given(wire: Any, line: Any) -> None:
    server = wire(says(OK))
    client = line(server.url)
    client.post(PUSH, {}, retry_key="k-1")
    client.post(PUSH, {})
    assert [b"X-Line-Retry-Key: k-1" in request for request in server.requests] == [True, False]


def test_parts_of_a_path_are_quoted(wire: Any, line: Any) -> None:
    server = wire(says(OK))
    line(server.url).get("/v2/bot/group/{}/member/{}", "C/../x", "日本 {}?")
    assert server.requests[0].startswith(
        b"GET /v2/bot/group/C%2F..%2Fx/member/%E6%97%A5%E6%9C%AC%20%7B%7D%3F HTTP/1.1\r\n"
    )


def test_fifty_calls_share_one_connection(wire: Any, line: Any) -> None:
    server = wire(says(OK))
    client = line(server.url)
    for _ in range(50):
        client.post(PUSH, {"messages": []})
    assert (len(server.requests), server.connections) == (50, 1)


def test_an_answer_of_an_error_keeps_the_connection_too(wire: Any, line: Any) -> None:
    server = wire(says(answer(b"no", status="503 Busy")), says(OK))
    client = line(server.url)
    assert [client.post(PUSH, {}).status for _ in range(2)] == [503, 200]
    assert server.connections == 1


@pytest.mark.parametrize("status", ["503 Busy", "429 Slow", "500 Oh", "302 There"])
def test_nothing_is_repeated_or_followed_on_its_own(wire: Any, line: Any, status: str) -> None:
    server = wire(says(answer(b"", "Retry-After: 0", "Location: /elsewhere", status=status)))
    client = line(server.url)
    assert client.get("/v2/bot/profile/{}", "U1").status == int(status[:3])
    assert client.post(PUSH, {}).status == int(status[:3])
    assert len(server.requests) == 2


def test_a_connection_that_breaks_is_an_unknown_outcome_and_not_repeated(
    wire: Any, line: Any
) -> None:
    server = wire(hang_up)
    client = line(server.url)
    with pytest.raises(OutcomeUnknown):
        client.get("/v2/bot/profile/{}", "U1")
    assert len(server.requests) == 1


def test_a_kept_connection_that_line_closed_meanwhile_is_an_unknown_outcome(
    wire: Any, line: Any
) -> None:
    server = wire(says(OK), hang_up, says(OK))
    client = line(server.url)
    client.post(PUSH, {})
    assert isinstance(answer_or_error(lambda: client.post(PUSH, {})), OutcomeUnknown)
    assert client.post(PUSH, {}).status == 200
    assert server.connections == 2


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


@pytest.mark.parametrize("first", [b"100 Continue", b"103 Early Hints\r\nRetry-After: 9"])
def test_the_answer_follows_a_1xx(wire: Any, line: Any, first: bytes) -> None:
    said = b"HTTP/1.1 " + first + b"\r\n\r\n" + answer(b"no", status="400 Bad")
    server = wire(says(said))
    got = line(server.url).post(PUSH, {})
    assert (got.status, got.text, got.retry_after, server.connections) == (400, "no", None, 1)


def test_a_refusal_before_the_whole_request_is_read_counts(line: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        client = line(f"http://127.0.0.1:{listener.getsockname()[1]}")
        calling = pool.submit(client.post, PUSH, {"messages": ["あ" * 8_000_000]})
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(answer(b"", status="413 Large"))
        assert calling.result().status == 413


def test_calls_at_a_time_get_their_own_answers_on_connections_of_their_own(line: Any) -> None:
    with serve_http() as port, ThreadPoolExecutor(4) as pool:
        client = line(f"http://127.0.0.1:{port}")
        keys = [f"k-{number}" for number in range(200)]
        assert list(pool.map(lambda key: client.post(PUSH, {}, retry_key=key).text, keys)) == keys


@pytest.mark.parametrize("kept", [4, 1])
def test_no_more_connections_stay_open_than_threads_call(
    wire: Any, calls: CallLog, kept: int
) -> None:
    """The last one to come back is closed, and so is each at the end."""
    together = threading.Barrier(2)

    def at_once(connection: socket.socket) -> None:
        together.wait(10)
        connection.sendall(OK)

    server = wire(at_once, at_once, says(OK), says(OK))
    client = LineClient(
        host_of(server.url), TOKEN, connections=kept, calls=calls, rate_limits=RateLimits()
    )
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: client.post(PUSH, {}), range(2)))
    eventually(lambda: server.ended == 2 - min(kept, 2))
    client.close()
    eventually(lambda: server.ended == 2)
    assert client.post(PUSH, {}).status == 200
    eventually(lambda: server.ended == 3)


def test_no_listener_means_not_sent(line: Any) -> None:
    with pytest.raises(NotSent):
        line(f"http://127.0.0.1:{free_port()}").post(PUSH, {})


def test_an_unknown_host_means_not_sent(line: Any) -> None:
    with pytest.raises(NotSent):
        line("http://line.invalid").post(PUSH, {})


def test_a_silent_line_is_an_unknown_outcome_in_time(wire: Any, line: Any) -> None:
    started = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        line(wire(lambda connection: None).url, call_seconds=0.2).post(PUSH, {})
    assert time.monotonic() - started < 2


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"garbage\r\n\r\n", id="not HTTP"),
        pytest.param(b"HTTP/1.1 abc OK\r\n\r\n", id="a status that is no number"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", id="a huge header"),
        pytest.param(b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 20_000 + b"\r\n", id="endless headers"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nabc", id="a negative length"),
        pytest.param(
            b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", id="101"
        ),
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
    "body", ["<html>エラー</html>".encode(), "caf\u00e9".encode("latin-1"), b"\xff\xfe\x00"]
)
def test_a_body_of_any_encoding_leaves_the_status_readable(
    wire: Any, line: Any, body: bytes
) -> None:
    server = wire(says(answer(body, status="502 Bad Gateway")))
    assert line(server.url).post(PUSH, {}).status == 502


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", id="cut short"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\r\n", id="broken chunks"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", id="no chunks at all"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
            id="not gzip",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\nuntil the end", id="without a length"),
    ],
)
def test_a_200_is_valid_with_any_body(wire: Any, line: Any, raw: bytes) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.shutdown(socket.SHUT_RDWR)

    assert line(wire(act).url).post(PUSH, {}).status == 200


@pytest.mark.parametrize("length", [14, 40])
def test_a_refusal_notes_whether_its_body_is_complete(wire: Any, line: Any, length: int) -> None:
    raw = f"HTTP/1.1 400 Bad Request\r\nContent-Length: {length}\r\n\r\n" + '{"message":"In'

    def act(connection: socket.socket) -> None:
        connection.sendall(raw.encode())
        connection.shutdown(socket.SHUT_RDWR)

    answer = line(wire(act).url).post(PUSH, {})
    assert (answer.status, answer.text, answer.whole) == (400, '{"message":"In', length == 14)


def test_a_chunked_body_is_read(wire: Any, line: Any) -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n3\r\n   \r\n0\r\n\r\n"
    server = wire(says(raw))
    client = line(server.url)
    assert [client.post(PUSH, {}).text for _ in range(2)] == ["{}   "] * 2
    assert server.connections == 1


def test_a_dripping_body_is_left_in_time(wire: Any, line: Any) -> None:
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not stop.wait(0.02):
            connection.sendall(b".")

    started = time.monotonic()
    assert line(wire(drip).url, call_seconds=0.3).post(PUSH, {}).status == 200
    assert time.monotonic() - started < 2
    stop.set()


def test_dripping_headers_are_left_in_time(wire: Any, line: Any) -> None:
    """Each read by itself comes at once, so a time-out of each read would never end it."""
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX-Drip: ")
        while not stop.wait(0.02):
            connection.sendall(b".")

    started = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        line(wire(drip).url, call_seconds=0.3).post(PUSH, {})
    assert time.monotonic() - started < 2
    stop.set()


def test_a_request_body_that_is_not_read_ends_in_time(line: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = line(f"http://127.0.0.1:{silent.getsockname()[1]}", call_seconds=0.3)
        started = time.monotonic()
        with pytest.raises(OutcomeUnknown):
            client.post(PUSH, {"messages": ["あ" * 8_000_000]})
        assert time.monotonic() - started < 2


def test_a_call_s_time_is_its_own(wire: Any, line: Any) -> None:
    """The connection is kept, and the deadline of one call is nothing to the next."""
    server = wire(says(OK))
    client = line(server.url, call_seconds=0.3)
    client.post(PUSH, {})
    threading.Event().wait(0.4)
    assert client.post(PUSH, {}).status == 200
    assert server.connections == 1


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
        ("0", 0.0),
        ("-1", None),
        ("Wed, 21 Oct 2026 07:28:00 GMT", None),
        ("\u00b2", None),
        ("1e3", None),
        ("", None),
        ("9" * 400, client_module.MOST_RETRY_AFTER_SECONDS),
        ("100000000000", client_module.MOST_RETRY_AFTER_SECONDS),
    ],
)
def test_a_retry_after_is_read_where_it_is_a_number(
    wire: Any, line: Any, header: str, seconds: float | None
) -> None:
    server = wire(says(answer(b"", f"Retry-After: {header}", status="429 Slow")))
    assert line(server.url).post(PUSH, {}).retry_after == seconds


def test_the_token_is_in_no_log_and_no_repr(
    wire: Any, line: Any, calls: CallLog, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="jobworker")
    server = wire(says(OK), says(answer(b"no", status="401 No")), hang_up)
    client = line(server.url)
    errors = [answer_or_error(lambda: client.post(PUSH, {"text": "秘密"})) for _ in range(3)]
    settings = LineSettings(api_base=server.url, token=TOKEN, interval_seconds=0.1, threads=2)
    told = [caplog.text, *map(repr, (client, errors, settings, calls)), *map(str, errors)]
    assert not any(TOKEN in text or "秘密" in text for text in told)
    assert "called LINE method=POST" in caplog.text


# The SDK's own client, for handlers that read.


@pytest.fixture
def api(sim: Sim, calls: CallLog) -> MessagingApi:
    return MessagingApi(_gated(sim.url, calls, token=sim.token))


def _gated(
    url: str, calls: CallLog, *, token: str = TOKEN, breaker: Breaker | None = None, **more: Any
) -> GatedApiClient:
    host = host_of(url)
    if breaker is not None:
        host.gate.breaker = breaker
    more.setdefault("rate_limits", RateLimits())
    return GatedApiClient(host, token, calls=calls, connections=4, **more)


def test_a_handler_reads_through_the_sdk(
    sim: Sim, api: MessagingApi, calls: CallLog, database: Database[Any]
) -> None:
    user = sim.add_user("花子")
    assert api.get_profile(user.user_id).display_name == "花子"
    row = only_row(calls, database)
    assert (row["endpoint"], row["method"], row["status"]) == (
        "/v2/bot/profile/{userId}",
        "GET",
        200,
    )
    assert row["requestId"] == sim.calls_to("profile")[-1].request_id


def test_a_refused_read_is_noted_with_its_status(
    sim: Sim, api: MessagingApi, calls: CallLog, database: Database[Any]
) -> None:
    with pytest.raises(ApiException):
        api.get_profile("U" + "0" * 32)
    row = only_row(calls, database)
    assert (row["status"], row["requestId"]) == (404, sim.calls_to("profile")[-1].request_id)


def test_the_sdk_repeats_nothing_either(wire: Any, calls: CallLog) -> None:
    server = wire(says(answer(b"{}", "Retry-After: 0", status="503 Busy")))
    api = MessagingApi(_gated(server.url, calls))
    with pytest.raises(ApiException):
        api.get_profile("U1")
    assert len(server.requests) == 1


def test_the_sdk_waits_no_longer_than_a_call_may_take(
    wire: Any, calls: CallLog, database: Database[Any]
) -> None:
    api = MessagingApi(_gated(wire(lambda connection: None).url, calls, limit_seconds=0.2))
    started = time.monotonic()
    with pytest.raises(Exception, match=r"[Tt]imed out|time-out"):
        api.get_profile("U1")
    assert time.monotonic() - started < 2
    assert only_row(calls, database)["status"] is None


def test_the_sdk_s_call_is_bounded_as_a_whole(wire: Any, calls: CallLog) -> None:
    stop = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while not stop.wait(0.02):
            connection.sendall(b".")

    api = MessagingApi(_gated(wire(drip).url, calls))
    started = time.monotonic()
    with pytest.raises(HTTPError):
        api.get_profile("U1", _request_timeout=0.3)
    assert time.monotonic() - started < 2
    stop.set()


@pytest.mark.parametrize(
    ("raw", "state"),
    [
        (answer(b"{}", status="503 Busy"), "failed"),
        (answer(b"{}", status="302 There"), "failed"),
        (answer(b"{}", status="401 No"), "unauthorized"),
        (answer(b"{}", status="429 Slow"), "answered"),
        (answer(b"{}", status="404 None"), "answered"),
        (OK, "answered"),
        (answer(b"\xff<html>", status="502 Bad"), "failed"),
        (b"", "failed"),
    ],
)
def test_each_call_s_end_is_reported_to_the_breaker(
    wire: Any, line: Any, calls: CallLog, raw: bytes, state: str
) -> None:
    def act(connection: socket.socket) -> None:
        connection.sendall(raw)
        connection.close()

    told: list[str] = []
    asked = time.monotonic()

    def tell(what: str, began: float) -> None:
        assert asked <= began <= time.monotonic()
        told.append(what)

    class Told(Breaker):
        def failed(self, whose: str, *, began: float = math.inf) -> None:
            tell("failed", began)

        def answered(self, *, began: float = math.inf) -> None:
            tell("answered", began)

        def unauthorized(self, *, began: float = math.inf) -> None:
            tell("unauthorized", began)

    server = wire(act)
    client = line(server.url)
    client._breaker = breaker = Told(threading.Lock())
    answer_or_error(lambda: client.post(PUSH, {}))
    assert told == [state]
    api = MessagingApi(_gated(server.url, calls, breaker=breaker))
    with suppress(ApiException, HTTPError, ValueError):
        api.get_profile("U1")
    assert told == [state] * 2


# linesim's requests conform to LINE's own description.


def test_bodies_are_valid_by_line_s_description(sim: Sim, line: Any) -> None:
    client = line(sim.url, sim.token)
    user = sim.add_user("花子")
    bodies = {
        "push": {"to": user.user_id, "messages": [{"type": "text", "text": "やあ"}]},
        "multicast": {"to": [user.user_id], "messages": [{"type": "text", "text": "皆さん"}]},
    }
    for endpoint, body in bodies.items():
        path = f"/v2/bot/message/{endpoint}"
        key = "8a1c3b42-9f6e-4f0a-8f2b-6a1f0f6f000" + str(len(endpoint))
        got = client.post(path, body, retry_key=key)
        assert got.status == 200
        line_openapi.check_request("POST", path, sim.calls_to(endpoint)[-1].body)
        line_openapi.check_answer("POST", path, 200, json.loads(got.text))
    eventually(lambda: len(sim.answers(user)) == 2)
