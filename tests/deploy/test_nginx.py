"""deploy/nginx/linedesk.conf under a real nginx, in front of a real front desk."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from linedesk.setup.private_mongod import free_port
from linedesk.store.client import Client
from linedesk.store.collections import MEGABYTE
from tests.conftest import missing
from tests.frontdesk.authority import Authority, Pair
from tests.frontdesk.authority import authority as authority
from tests.frontdesk.desk import DeskProcess
from tests.frontdesk.load import PATIENCE_SECONDS, Load, post
from tests.linesim.conftest import bot_server
from tests.rows import Db
from tests.servers import one_for_all
from tests.waiting import eventually

CONFIGURATIONS = Path(__file__).parents[2] / "deploy" / "nginx"
CONFIGURATION = CONFIGURATIONS / "linedesk.conf"
TWO_HOSTS = CONFIGURATIONS / "linedesk-two-hosts.conf"
# Any address of 127.0.0.0/8 is this machine; this one is no trusted proxy.
STRANGER = "127.0.0.2"
# The lines that the configuration requires in nginx.conf.
ROOM = "".join(re.findall(r"^#   (.+\n)", CONFIGURATION.read_text(), re.MULTILINE))
# All that a test needs of nginx.conf. Without `user` the workers would run as nginx's default user.
MAIN = """
daemon off; pid {folder}/pid; worker_processes 2; user root; error_log stderr warn;
{room}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
  include {folder}/linedesk.conf;
}}
"""


class Nginx:
    """A context manager; it listens on its own port, and forwards to `upstream`.

    With `second` it is the configuration for two front desks.
    """

    def __init__(
        self, folder: Path, pair: Pair, trusted: Path, *, upstream: int, second: int | None = None
    ) -> None:
        self.port = free_port()
        self.context = ssl.create_default_context(cafile=str(trusted))
        self._folder = folder
        text = (CONFIGURATION if second is None else TWO_HOSTS).read_text()
        one = [
            ("127.0.0.1:8000", f"127.0.0.1:{upstream}"),
            ("proxy_read_timeout 10s;", f"proxy_read_timeout {PATIENCE_SECONDS:.0f}s;"),
        ]
        two = [("10.0.0.1:8000", f"127.0.0.1:{upstream}"), ("10.0.0.2:8000", f"127.0.0.1:{second}")]
        for old, new in (
            *(one if second is None else two),
            ("listen 443 ssl;", f"listen 127.0.0.1:{self.port} ssl;"),
            ("listen [::]:443 ssl;", ""),
            ("/etc/linedesk/tls/fullchain.pem", str(pair.certificate)),
            ("/etc/linedesk/tls/privkey.pem", str(pair.key)),
        ):
            assert old in text
            text = text.replace(old, new)
        (folder / "linedesk.conf").write_text(text)
        (folder / "nginx.conf").write_text(MAIN.format(folder=folder, room=ROOM))

    def __enter__(self) -> Nginx:
        # Debian's folder for it is not on the PATH of other users than root.
        nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
        if nginx is None:
            missing("nginx is not installed")
        assert nginx is not None
        self._process = subprocess.Popen(
            [nginx, "-e", "stderr", "-p", self._folder, "-c", self._folder / "nginx.conf"]
        )
        eventually(self._answers)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait(10)

    def connection(self, *, source: str = "127.0.0.1") -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            "localhost",
            self.port,
            timeout=PATIENCE_SECONDS,
            context=self.context,
            source_address=(source, 0),
        )

    def _answers(self) -> bool:
        assert self._process.poll() is None
        try:
            socket.create_connection(("127.0.0.1", self.port), timeout=5).close()
        except OSError:
            return False
        return True


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.issue(serial=100)


@pytest.fixture(scope="module")
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=512) as listener:
        yield listener


@pytest.fixture(scope="module")
def nginx(
    listener: socket.socket,
    authority: Authority,
    pair: Pair,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Nginx]:
    folder, upstream = tmp_path_factory.mktemp("nginx"), listener.getsockname()[1]
    with Nginx(folder, pair, authority.root, upstream=upstream) as nginx:
        yield nginx


@pytest.fixture(scope="module")
def own_database(client: Client) -> Iterator[Db]:
    with one_for_all(client, megabytes=16) as database:
        yield database


@contextmanager
def started(database: Db, uri: str, listener: socket.socket) -> Iterator[DeskProcess]:
    with DeskProcess(uri=uri, database=database.name, listener=listener) as desk:
        yield desk


def test_which_requests_it_passes_on(
    nginx: Nginx, own_database: Db, mongo_uri: str, listener: socket.socket
) -> None:
    with started(own_database, mongo_uri, listener) as desk:
        with closing(nginx.connection(source=STRANGER)) as line:
            spoofed = {"X-Forwarded-For": "6.6.6.6, 127.0.0.1", "X-Forwarded-Proto": "http"}
            assert post(line, "behind", **spoofed) == 200
            assert post(line, "long-head", Padding="x" * 15_000) == 200
        desk.wait_for_line("accepted events=1 duplicates=0 ms=", times=2)
        with closing(http.client.HTTPConnection("127.0.0.1", desk.port, timeout=10)) as direct:
            direct.source_address = (STRANGER, 0)
            assert post(direct, "direct", **spoofed) == 200
        eventually(lambda: desk.log.count(f" client={STRANGER}") == 3)
        assert "6.6.6.6" not in desk.log
        for path in ("/", "/readyz", "/callback/", "/docs"):
            assert asked(nginx, "GET", path) == 404
        assert asked(nginx, "GET", "/callback") == 405
        assert asked(nginx, "POST", "/callback", body=b"x" * (MEGABYTE + 1)) == 413
        assert asked(nginx, "POST", "/callback", Padding="x" * 20_000) == 400
        # Of these only the 405 was asked of the front desk.
        assert "refused status=413" not in desk.log


def test_neither_4000_half_connections_nor_stalled_bodies_cost_line_a_place(
    nginx: Nginx, own_database: Db, mongo_uri: str, listener: socket.socket
) -> None:
    with started(own_database, mongo_uri, listener), ExitStack() as stack:
        address = ("127.0.0.1", nginx.port)
        for number in range(4_000):
            half = stack.enter_context(socket.create_connection(address, timeout=10))
            # nginx waits for the rest of a handshake; it ends connections without any data by
            # itself.
            half.sendall(b"\x16\x03\x01" if number % 2 else b"")
        for _ in range(50):
            stalled = stack.enter_context(closing(nginx.connection()))
            stalled.putrequest("POST", "/callback")
            stalled.putheader("Content-Length", "100")
            stalled.endheaders(b"half")
        for _ in range(10):
            with closing(nginx.connection()) as line:
                assert post(line, uuid.uuid4().hex) == 200


def asked(nginx: Nginx, method: str, path: str, body: bytes = b"", **headers: str) -> int:
    with closing(nginx.connection()) as line:
        line.request(method, path, body or None, headers)
        return line.getresponse().status


def test_neither_a_restart_nor_a_kill_of_the_front_desk_fails_a_request(
    nginx: Nginx, own_database: Db, mongo_uri: str, listener: socket.socket
) -> None:
    desk = partial(started, own_database, mongo_uri, listener)
    with Load(nginx.connection, killed=True) as load:
        for end in (signal.SIGTERM, signal.SIGKILL):
            with desk() as running:
                running.wait_for_line("accepted ", times=50)
                running.stop(end)
        with desk() as running:
            running.wait_for_line("accepted ", times=50)
            load.__exit__()
    print(f"requests={len(load.seconds)} slowest_seconds={max(load.seconds):.3f}")
    assert load.failed == []
    ids = own_database["recvq"].distinct("eventId")
    assert set(load.accepted) <= set(ids)
    assert own_database["recvq"].count_documents({}) == len(ids)


def test_no_webhook_fails_that_one_of_two_front_desks_takes(
    authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        first, second = (stack.enter_context(bot_server()) for _ in range(2))
        ports = {"upstream": first.port, "second": second.port}
        nginx = stack.enter_context(Nginx(tmp_path, pair, authority.root, **ports))

        def posted(name: str) -> tuple[int, int, int]:
            """The status, and how many requests each front desk got for it."""
            before = len(first.received), len(second.received)
            with closing(nginx.connection()) as line:
                status = post(line, name)
            return status, len(first.received) - before[0], len(second.received) - before[1]

        # All to one, which keeps the order of a conversation.
        assert {posted(f"whole-{number}") for number in range(10)} == {(200, 1, 0)}
        first.status = 503
        assert posted("no store left") == (200, 1, 1)
        assert first.last.body == second.last.body
        # Left out for ten seconds, and asked nevertheless where the other one fails.
        assert posted("skipped") == (200, 0, 1)
        first.status, second.status = 200, None
        assert posted("back already") == (200, 1, 1)
        first.status = None
        assert posted("none") == (502, 1, 1)
        second.status = 200
        assert posted("no pause after that") == (200, 0, 1)
