"""One deadline for a whole call, on plain connections and under TLS, from the name to the end."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from urllib3.exceptions import ConnectTimeoutError, HTTPError

from jobworker.line import deadline
from jobworker.line.deadline import make_timed, within

Act = Callable[[socket.socket, threading.Event], None]
SECONDS = 0.2


@pytest.fixture(params=["http", "https"])
def serve(
    request: pytest.FixtureRequest, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[Act], tuple[urllib3.PoolManager, str]]]:
    """`serve(act)`: a server whose connections do that, and a timed manager that trusts it."""
    # Each with a context of its own: the process's context would keep trusting this certificate.
    monkeypatch.setattr(deadline, "_tls_context", deadline._tls_context.__wrapped__)
    ended = threading.Event()
    with ExitStack() as stack:

        def make(act: Act) -> tuple[urllib3.PoolManager, str]:
            listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            stack.callback(listener.shutdown, socket.SHUT_RDWR)
            stack.callback(ended.set)

            def one(plain: socket.socket) -> None:
                with suppress(OSError), plain:
                    is_tls = request.param == "https"
                    connection = serve_tls(plain, certificate) if is_tls else plain
                    with connection:
                        act(connection, ended)

            accepted: list[socket.socket] = []

            def end_all() -> None:
                for connection in accepted:
                    with suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)

            # Also one that the client has opened and never used.
            stack.callback(end_all)

            def accept() -> None:
                with suppress(OSError):
                    while True:
                        connection, _ = listener.accept()
                        accepted.append(connection)
                        threading.Thread(target=one, args=(connection,), daemon=True).start()

            threading.Thread(target=accept, daemon=True).start()
            manager = urllib3.PoolManager(ca_certs=str(certificate[0]))
            make_timed(manager)
            stack.callback(manager.clear)
            return manager, f"{request.param}://localhost:{listener.getsockname()[1]}/"

        yield make


def serve_tls(plain: socket.socket, files: tuple[Path, Path]) -> socket.socket:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context.wrap_socket(plain, server_side=True)


def ask(manager: urllib3.PoolManager, url: str, body: bytes = b"") -> tuple[Any, float]:
    """The answer or error of one call bounded by SECONDS, and how long it took."""
    started = time.monotonic()
    got: Any
    try:
        with within(SECONDS):
            got = manager.request("POST", url, body=body, retries=False, timeout=30.0)
    except (HTTPError, OSError) as error:
        got = error
    return got, time.monotonic() - started


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\n\r\n"])
def test_a_dripping_answer_ends_with_the_call_s_time(serve: Any, head: bytes) -> None:
    def act(connection: socket.socket, ended: threading.Event) -> None:
        connection.recv(65536)
        connection.sendall(head)
        while not ended.wait(0.02):
            connection.sendall(b".")

    manager, url = serve(act)
    got, took = ask(manager, url)
    assert isinstance(got, HTTPError)
    assert SECONDS <= took < SECONDS + 1


def test_a_peer_that_does_not_read_ends_with_the_call_s_time(serve: Any) -> None:
    """It reads a little repeatedly, so each write by itself succeeds."""

    def act(connection: socket.socket, ended: threading.Event) -> None:
        while not ended.wait(0.02):
            connection.recv(1000)

    manager, url = serve(act)
    got, took = ask(manager, url, b"x" * 20_000_000)
    assert isinstance(got, (HTTPError, OSError))
    assert SECONDS <= took < SECONDS + 1


def test_a_handshake_that_is_never_answered_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "CONNECT_SECONDS", 0.3)
    manager = urllib3.PoolManager()
    make_timed(manager)
    got: list[tuple[Any, float]] = []
    # No process accepts, so the kernel connects and no byte ever comes back.
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/"
        # On a thread, since a failure here hangs.
        asking = threading.Thread(target=lambda: got.append(ask(manager, url)), daemon=True)
        asking.start()
        asking.join(5)
        assert not asking.is_alive()
    ((answer, took),) = got
    assert isinstance(answer, HTTPError)
    assert took < 3
    manager.clear()


def test_a_name_that_does_not_resolve_blocks_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    answered = threading.Event()

    def look_up(*_: Any) -> Any:
        answered.wait(10)
        raise socket.gaierror(-3, "no name server")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    monkeypatch.setattr(deadline, "CONNECT_SECONDS", 0.2)
    manager = urllib3.PoolManager()
    make_timed(manager)
    got, took = ask(manager, "http://line.invalid/")
    answered.set()
    assert isinstance(got, ConnectTimeoutError)
    assert took < 1
