"""PostgreSQL on loopback for the peers, in a temporary folder and on a port of its own.

Its programs come from the system, or from apt-get where the bench runs as root.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from bench.processes import child, to_its_end
from bench.report import BenchFailed
from linedesk.setup.private_mongod import free_port


def find(program: str) -> Path | None:
    """A program of the newest version, whose folders Debian names by version."""
    versions = Path("/usr/lib/postgresql").glob("*/bin")
    folders = sorted(versions, key=lambda path: int(path.parent.name), reverse=True)
    path = os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")])
    found = shutil.which(program, path=path)
    return Path(found) if found else None


def install() -> None:
    """By apt-get where it is missing. Raises BenchFailed where that cannot be."""
    if find("initdb") and find("postgres"):
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "postgresql"]
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise BenchFailed(f"postgresql not found; install it: {' '.join(command)}")
    print("installing postgresql")
    # Debian starts a cluster of its own, which the bench does not use.
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    to_its_end(["apt-get", "update"], "apt-get update", env=quiet)
    to_its_end(command, " ".join(command), env=quiet)


@contextmanager
def running() -> Iterator[str]:
    """With its defaults, so fsync and synchronous_commit are on; its URL. Raises BenchFailed."""
    install()
    # It refuses to run as root. Nor may its user enter a bench's own folder.
    user = _user() if os.geteuid() == 0 else pwd.getpwuid(os.geteuid())
    who = {"user": user.pw_uid, "group": user.pw_gid} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="linedesk-bench-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        os.chown(folder, user.pw_uid, user.pw_gid)
        data, port = folder / "data", free_port()
        initdb = [str(find("initdb")), "--pgdata", str(data), "--username", "bench"]
        initdb += ["--auth", "trust", "--encoding", "UTF8", "--locale", "C"]
        to_its_end(initdb, "initdb", cwd=folder, **who)
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


def version() -> str:
    """Of its server."""
    done = subprocess.run([str(find("postgres")), "--version"], capture_output=True, check=True)
    return done.stdout.decode().strip()


def new_database(url: str) -> None:
    """The database of this URL, empty."""
    server, _, name = url.rpartition("/")
    with _psycopg().connect(f"{server}/postgres", autocommit=True) as connection:
        connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')
        connection.execute(f'CREATE DATABASE "{name}"')


def number_in(url: str, rows: str) -> int:
    """How many rows there are, by a connection that stays open."""
    return int(_connection(url).execute(f"SELECT count(*) FROM {rows}").fetchone()[0])


def server(url: str) -> int:
    """The process whose children serve the connections."""
    [lines] = _connection(url).execute("SELECT pg_read_file('postmaster.pid')").fetchone()
    return int(lines.split()[0])


@cache
def _connection(url: str) -> Any:
    return _psycopg().connect(url, autocommit=True)


def _psycopg() -> Any:
    # Here, since the bench installs it before it is needed.
    import psycopg

    return psycopg
