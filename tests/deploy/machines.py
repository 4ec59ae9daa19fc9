"""Machines as network namespaces on one bridge: each has an address and can go off as a whole.

A machine that goes off loses its link first, so the others see silence and no closed connection.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest
import yaml

from linedesk.setup import children
from tests.conftest import missing
from tests.fork_server import nursery
from tests.waiting import ran

several_machines = pytest.mark.skipif(
    os.environ.get("LINEDESK_MACHINES") != "1", reason="run by scripts/test-machines"
)

# For measuring networks (RFC 2544): no real machine has such an address.
NETWORK = f"198.18.{os.getpid() % 250}"
STOP_SECONDS = 20.0


class Running(Protocol):
    """A process of a machine, from the nursery or not."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def terminate(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int: ...


class Machine:
    """A network namespace with an address on the bridge, and the processes in it."""

    def __init__(self, bridge: str, number: int, folder: Path) -> None:
        self.address = f"{NETWORK}.{number}"
        self.folder = folder / f"machine-{number}"
        self.folder.mkdir()
        self._name = f"{bridge}-{number}"
        self._link = f"{bridge}-{number}"
        self._bridge = bridge
        self._processes: dict[str, Running] = {}
        self._starts = 0

    def make(self) -> None:
        """Make the namespace and its link. Raises subprocess.CalledProcessError."""
        ip("netns", "add", self._name)
        peer = ("peer", "name", "eth0", "netns", self._name)
        ip("link", "add", self._link, "type", "veth", *peer)
        ip("link", "set", self._link, "master", self._bridge, "up")
        ip("-n", self._name, "link", "set", "lo", "up")
        ip("-n", self._name, "address", "add", f"{self.address}/24", "dev", "eth0")
        ip("-n", self._name, "link", "set", "eth0", "up")

    def remove(self) -> None:
        """End its processes and remove the namespace, and the link with it."""
        self._kill_all()
        # Otherwise the link would remain while the kernel retransmits packets of killed processes.
        for part in (("link", "del", self._link), ("netns", "del", self._name)):
            subprocess.run(["ip", *part], check=False, capture_output=True)

    def run(self, name: str, command: list[str]) -> None:
        """Start a program; its output goes to a log of that name."""
        with self._log(name).open("ab") as log:
            self._processes[name] = children.start(
                ["ip", "netns", "exec", self._name, *command], stdout=log, stderr=log
            )

    def run_module(self, name: str, *arguments: str, env: Mapping[str, str]) -> None:
        """Start one of our modules, from the nursery."""
        with self._log(name).open("ab") as log:
            self._processes[name] = nursery.start(
                *("tests.deploy.in_namespace", self._name, name, *arguments),
                env={**os.environ, **env},
                stdout=log.fileno(),
                stderr=log.fileno(),
            )

    def ran_module(self, *arguments: str, env: Mapping[str, str]) -> str:
        """The output of one of our commands, which has to succeed."""
        module = ("tests.deploy.in_namespace", self._name, *arguments)
        done = nursery.run(*module, env={**os.environ, **env}, timeout=90)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def go_off(self) -> None:
        """Cut its link, then kill all that runs on it."""
        ip("link", "set", self._link, "down")
        self._kill_all()

    def come_back(self) -> None:
        """Bring its link up. Nothing runs yet."""
        ip("link", "set", self._link, "up")

    def pid_of(self, name: str) -> int:
        """The PID of the process with this name."""
        return self._processes[name].pid

    def log_of(self, name: str) -> str:
        """The output of a process since the machine was last switched on."""
        path = self._log(name)
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def begin_logs(self) -> None:
        """From now on the processes write into new logs."""
        self._starts += 1

    def _kill_all(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait(STOP_SECONDS)
        self._processes.clear()
        # Children of theirs, such as nginx's workers, which keep a removed namespace alive.
        told = ran(["ip", "netns", "pids", self._name])
        for pid in map(int, told.stdout.split()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _log(self, name: str) -> Path:
        return self.folder / f"{name}-{self._starts}.log"


def mongod_conf(address: str) -> dict[str, Any]:
    """deploy/mongod.conf as three machines have it: it listens on the machine's address, too."""
    shipped = (Path(__file__).parents[2] / "deploy" / "mongod.conf").read_text("utf-8")
    conf: dict[str, Any] = yaml.safe_load(shipped)
    conf["net"]["bindIp"] += f",{address}"
    return conf


def ip(*arguments: str) -> str:
    """Run iproute2's `ip`. Raises subprocess.CalledProcessError."""
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    return done.stdout


@contextmanager
def machines(count: int, folder: Path) -> Iterator[tuple[str, list[Machine]]]:
    """This machine's own address on the bridge, and the running machines."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        missing("network namespaces need root and iproute2")
    bridge = f"ld{os.getpid()}"
    made = [Machine(bridge, number, folder) for number in range(1, count + 1)]
    own = f"{NETWORK}.254"
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("address", "add", f"{own}/24", "dev", bridge)
            ip("link", "set", bridge, "up")
            for machine in made:
                machine.make()
        except subprocess.CalledProcessError as error:
            missing(f"network namespaces cannot be made here: {error.stderr.strip()}")
        yield own, made
    finally:
        for machine in made:
            machine.remove()
        subprocess.run(["ip", "link", "del", bridge], check=False, capture_output=True)
