"""The servers that hold the peers' jobs, each a throwaway instance on loopback, and their packages.

Programs come from the system, or from apt-get where the bench runs as root; the peers' Python
packages come from requirements/bench.txt. Instances have temporary folders and their own ports,
independent of other instances on the machine.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from importlib import metadata
from pathlib import Path

from bench import packages
from bench.peers.names import PEERS
from bench.processes import child, to_its_end
from bench.report import BenchFailed
from bench.waiting import listens
from linedesk.compose.private_mongod import free_port
from tests.rabbitmq import RabbitMQ

ROOT = Path(__file__).resolve().parent.parent.parent
ELSEWHERE = ["/usr/sbin", "/usr/lib/rabbitmq/bin"]
"""Where Debian has servers beside PATH. PostgreSQL's folders are named by version."""

SYSTEM_PACKAGES = {
    "redis": ("redis-server", ["redis-server"]),
    "postgresql": ("postgresql", ["initdb", "postgres"]),
    "rabbitmq": ("rabbitmq-server", ["rabbitmq-server"]),
}
"""By server: Debian's package and the programs needed of it."""


def find(program: str) -> Path | None:
    """A program of the system; of PostgreSQL's several versions the newest."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name)
    )
    folders = [*map(str, reversed(versions)), os.environ.get("PATH", ""), *ELSEWHERE]
    found = shutil.which(program, path=os.pathsep.join(folders))
    return Path(found) if found else None


def install_servers(servers: Collection[str]) -> None:
    """Install the servers that are missing, by apt-get. Raises BenchFailed where that cannot be."""
    missing = [
        package
        for package, programs in (SYSTEM_PACKAGES[server] for server in sorted(servers))
        if not all(find(program) for program in programs)
    ]
    if not missing:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *missing]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchFailed(f"{', '.join(missing)} not found; install them: {' '.join(command)}")
    print(f"installing {', '.join(missing)}")
    # Debian starts the servers it installs, and makes a PostgreSQL cluster. The bench does not use
    # them.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    to_its_end(["apt-get", "update"], "apt-get update", env=quiet)
    to_its_end(command, " ".join(command), env=quiet)


@contextmanager
def running(servers: Collection[str]) -> Iterator[dict[str, str]]:
    """These servers, installed if missing; yields the URL of each."""
    packages.ensure(*(name for peer in PEERS.values() for name in peer.packages))
    install_servers(servers)
    makers = {"redis": redis, "postgresql": postgresql, "rabbitmq": rabbitmq}
    with ExitStack() as stack:
        yield {server: stack.enter_context(makers[server]()) for server in servers}


@contextmanager
def redis() -> Iterator[str]:
    """Redis with its append-only file, which it syncs once a second by default.

    https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/
    """
    with _folder("redis") as folder:
        port = free_port()
        command = [str(find("redis-server")), "--bind", "127.0.0.1", "--port", str(port)]
        command += ["--appendonly", "yes", "--dir", str(folder)]
        log = folder / "out.log"
        with child("redis-server", command, ready=lambda: listens(port), log=log):
            yield f"redis://127.0.0.1:{port}"


@contextmanager
def postgresql() -> Iterator[str]:
    """PostgreSQL with its defaults: fsync and synchronous_commit are on."""
    # It refuses to run as root.
    user = _user() if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    with _folder("postgresql") as folder:
        os.chown(folder, user.pw_uid, user.pw_gid)
        data, port = folder / "data", free_port()
        who = {"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {}
        initdb = [str(find("initdb")), "--pgdata", str(data), "--username", "bench"]
        done = subprocess.run(
            [*initdb, "--auth", "trust", "--encoding", "UTF8", "--locale", "C"],
            capture_output=True,
            text=True,
            check=False,
            cwd=folder,
            **who,  # type: ignore[call-overload]
        )
        if done.returncode:
            raise BenchFailed(f"initdb: {done.stderr[-1000:]}")
        command = [str(find("postgres")), "-D", str(data), "-p", str(port)]
        command += ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="]
        ready = data / "postmaster.pid"
        with child(
            "postgres",
            command,
            ready=lambda: ready.exists() and "ready" in ready.read_text(),
            log=folder / "out.log",
            # SIGTERM would wait until all clients have gone.
            stop=signal.SIGINT,
            cwd=folder,
            **who,
        ):
            yield f"postgresql://bench@127.0.0.1:{port}"


def _user() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise BenchFailed("PostgreSQL does not run as root: make a user postgres")


@contextmanager
def rabbitmq() -> Iterator[str]:
    """RabbitMQ with its defaults, on all cores."""
    with _folder("rabbitmq") as folder:
        node = RabbitMQ(folder / "node", cores=os.cpu_count() or 1)
        try:
            try:
                node.start()
            except Exception as error:
                raise BenchFailed(f"rabbitmq-server did not start: {error}") from error
            yield node.url
        finally:
            node.kill()
            node.end_port_mapper()


def versions() -> dict[str, str]:
    """Of the peers' packages and of the servers, for reports."""
    packages = {package for peer in PEERS.values() for package in peer.packages}
    found = {package: metadata.version(package) for package in sorted(packages)}
    for name, command in (
        ("Redis", ["redis-server", "--version"]),
        ("PostgreSQL", ["postgres", "--version"]),
        ("RabbitMQ", ["dpkg-query", "--show", "--showformat", "${Version}", "rabbitmq-server"]),
    ):
        program = find(command[0])
        if program:
            done = subprocess.run(
                [program, *command[1:]], capture_output=True, text=True, check=False
            )
            found[name] = done.stdout.strip()
    return found


@contextmanager
def _folder(name: str) -> Iterator[Path]:
    """Not within a bench's own folder, which a server's user may not enter."""
    folder = Path(tempfile.mkdtemp(prefix=f"linedesk-bench-{name}-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
