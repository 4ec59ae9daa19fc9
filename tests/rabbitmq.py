"""A RabbitMQ of the tests' own: nodes on loopback with their files in a temporary folder."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pika

from jobworker.remote.amqp import EXCHANGE
from tests.waiting import eventually, ran

if TYPE_CHECKING:
    from tests.frontdesk.authority import Pair

# Debian's package; its wrapper in /usr/sbin would change the user.
PROGRAMS = Path("/usr/lib/rabbitmq/bin")
START_SECONDS = 90.0
# Below Linux's range for connections: a client of a stopped node must not get its port, or connect
# to itself.
PORTS = range(20_000, 32_000)
STARTS = 3


class Died(Exception):
    """The node ended while it started; the text is the end of its output."""


class RabbitMQ:
    """One node. `url` is that of its user guest, which has all rights, from loopback only."""

    def __init__(self, folder: Path, *, cores: int = 1, epmd_port: int | None = None) -> None:
        ports = free_ports(3)
        self.port = ports[0]
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"
        self.name = f"linedesk-{self.port}@localhost"
        self.home = folder
        folder.mkdir(parents=True, exist_ok=True)
        # So that a node on a machine with one disk that is nearly full raises no alarm.
        self._config = folder / "rabbitmq.conf"
        self.configure("disk_free_limit.absolute = 1MB", "log.file.level = error")
        self._environ = os.environ | {
            "HOME": str(folder),
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(ports[1]),
            "ERL_EPMD_PORT": str(epmd_port or ports[2]),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_MNESIA_BASE": str(folder / "db"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "ERL_CRASH_DUMP": os.devnull,
            "RABBITMQ_CONFIG_FILE": str(self._config),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"+S {cores}:{cores} +sbwt none",
        }
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, *lines: str) -> None:
        """Add lines to its configuration, before it starts."""
        with self._config.open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def serve_tls(self, pair: Pair) -> None:
        """Take connections with TLS only, by this certificate; `url` says so."""
        self.configure(
            "listeners.tcp = none",
            f"listeners.ssl.1 = 127.0.0.1:{self.port}",
            f"ssl_options.certfile = {pair.certificate}",
            f"ssl_options.keyfile = {pair.key}",
        )
        self.url = self.url.replace("amqp:", "amqps:")

    def start(self) -> None:
        """Start it, and wait until it takes connections."""
        self.launch()
        eventually(self.answers, seconds=START_SECONDS)

    def launch(self) -> None:
        """Start it."""
        with (self.home / "out.log").open("ab") as output:
            self._process = subprocess.Popen(
                [PROGRAMS / "rabbitmq-server"],
                env=self._environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def answers(self) -> bool:
        """Whether it takes connections. Raises AssertionError where it has ended."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise Died((self.home / "out.log").read_text()[-2000:])
        with suppress(Exception):
            pika.BlockingConnection(pika.URLParameters(self.url)).close()
            return True
        return False

    def control(self, *words: str) -> str:
        """Run `rabbitmqctl` with these arguments; returns its output."""
        command = [PROGRAMS / "rabbitmqctl", "--quiet", *words]
        done = ran(command, env=self._environ)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    @property
    def environ(self) -> dict[str, str]:
        """In which `rabbitmqctl` is found and reaches this node."""
        return {**self._environ, "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}

    def queues(self) -> dict[str, int]:
        """Its queues, each with the number of messages in it."""
        rows = self.control("list_queues", "name", "messages", "--no-table-headers").splitlines()
        return {row.split("\t")[0]: int(row.split("\t")[1]) for row in rows if "\t" in row}

    def on_disk(self) -> bytes:
        """All that its files hold."""
        files = [one for one in self.home.rglob("*") if one.is_file()]
        return b"".join(one.read_bytes() for one in files)

    def freeze(self) -> None:
        """Freeze it, with all its connections open."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Resume it."""
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """It is gone, as by kill -9."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(10)
            self._process = None

    def end_port_mapper(self) -> None:
        """End epmd, by which nodes find each other: the first one starts it, and leaves it."""
        # It refuses while it takes a node for alive.
        eventually(lambda: self._epmd("-kill").returncode == 0 or self._epmd("-names").returncode)

    def _epmd(self, word: str) -> subprocess.CompletedProcess[bytes]:
        command = ["epmd", word]
        return subprocess.run(
            command, env=self._environ, capture_output=True, timeout=60, check=False
        )

    def _signal(self, number: int) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, number)


def is_installed() -> bool:
    """Whether RabbitMQ is on this machine."""
    return (PROGRAMS / "rabbitmq-server").exists()


@contextmanager
def throwaway_rabbitmq() -> Iterator[RabbitMQ]:
    """A node that runs until the end of the block."""
    with _throwaway(lambda folder: [RabbitMQ(folder)]) as (node,):
        yield node


@contextmanager
def throwaway_cluster(pair: Pair, nodes: int = 3) -> Iterator[Sequence[RabbitMQ]]:
    """Nodes of one cluster, with TLS, that run until the end of the block.

    A minority that is disconnected from the majority pauses until it is connected again.
    """

    def made(folder: Path) -> list[RabbitMQ]:
        (epmd_port,) = free_ports(1)
        cluster = [RabbitMQ(folder / str(number), epmd_port=epmd_port) for number in range(nodes)]
        for node in cluster:
            # The cookie by which nodes know each other.
            cookie = node.home / ".erlang.cookie"
            cookie.write_text("linedesk")
            cookie.chmod(0o400)
            node.serve_tls(pair)
            node.configure(
                "cluster_partition_handling = pause_minority",
                "cluster_formation.peer_discovery_backend = classic_config",
                *(
                    f"cluster_formation.classic_config.nodes.{number} = {one.name}"
                    for number, one in enumerate(cluster, 1)
                ),
            )
        return cluster

    with _throwaway(made) as cluster:
        yield cluster


@contextmanager
def _throwaway(make: Callable[[Path], list[RabbitMQ]]) -> Iterator[list[RabbitMQ]]:
    """Nodes, started in their own folder, that run until the end of the block."""
    folder = Path(tempfile.mkdtemp(prefix="linedesk-rabbitmq-"))
    nodes = list[RabbitMQ]()
    try:
        for number in range(1, STARTS + 1):
            nodes = make(folder / str(number))
            try:
                _start(nodes)
                break
            except Died:
                # Another process took one of its ports since it was found free.
                if number == STARTS:
                    raise
                _end(nodes)
        yield nodes
    finally:
        _end(nodes)
        shutil.rmtree(folder, ignore_errors=True)


def _start(nodes: Sequence[RabbitMQ]) -> None:
    """The others join the first."""
    nodes[0].start()
    for node in nodes[1:]:
        node.launch()
    for node in nodes[1:]:
        eventually(node.answers, seconds=START_SECONDS)


def _end(nodes: Sequence[RabbitMQ]) -> None:
    for node in nodes:
        node.thaw()
        node.kill()
    for node in nodes:
        node.end_port_mapper()


def free_ports(number: int) -> list[int]:
    """Ports of loopback that no connection gets by chance."""
    ports: list[int] = []
    while len(ports) < number:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            ports.append(port)
    return ports


def declare(node: RabbitMQ) -> None:
    """Create linedesk's exchange, as its first leader does."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        connection.channel().exchange_declare(EXCHANGE, "fanout", durable=True)
