"""A Debian under its own systemd on this machine, in its own namespaces, without a network."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.waiting import Ended, eventually, ran

BOOT_SECONDS = 90.0
OFF_SECONDS = 60.0
COMMAND_SECONDS = 120.0
HAS_SYSTEMD = Path("/run/systemd/system").exists()
ENVIRON = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
    "SYSTEMD_COLORS": "0",
}


class Machine:
    """Reached by the pid of its systemd, from any process of this machine."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def run(
        self,
        *command: str,
        check: bool = True,
        seconds: float = COMMAND_SECONDS,
        environ: Mapping[str, str] = ENVIRON,
    ) -> Ended:
        """Run a command inside, as root."""
        done = ran(
            ["nsenter", "-t", str(self.pid), "-a", "--", *command],
            env={**ENVIRON, **environ},
            seconds=seconds,
        )
        assert not check or done.returncode == 0, (
            f"{' '.join(command)} ended with {done.returncode}: {done.stderr[-2000:]}"
            f"{done.stdout[-2000:]}"
        )
        return done

    def systemctl(self, *arguments: str, check: bool = True) -> str:
        """Its output."""
        return self.run("systemctl", *arguments, check=check).stdout.strip()

    def show(self, unit: str, name: str) -> str:
        """A property of a unit."""
        return self.systemctl("show", "--value", f"--property={name}", unit)

    def journal(self, *arguments: str) -> str:
        """The lines as the processes wrote them."""
        return self.run("journalctl", "--no-pager", "--output=cat", *arguments).stdout

    @property
    def files(self) -> Path:
        """The machine's `/`, seen from outside."""
        return Path(f"/proc/{self.pid}/root")


class Nspawn:
    """Boots a root folder; `stop` leaves no process, mount or cgroup behind."""

    def __init__(self, root: Path, log: Path, *, read_only: Mapping[Path, str]) -> None:
        self._root = root
        self._log = log
        self._read_only = read_only
        # Its own, since there may be other machines.
        self._name = f"linedesk-{os.getpid()}"
        self._cgroups: Sequence[Path] = ()
        self._process: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def start(self) -> Machine:
        """Boot, and wait until systemd has started all that it starts."""
        self._cgroups = _own_cgroups(self._name)
        enter = "; ".join(f"echo $$ >{folder}/cgroup.procs" for folder in self._cgroups)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["sh", "-c", f'{enter or ":"}; exec "$@"', "sh", *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self._booted()

    def reboot(self) -> Machine:
        """Switch it off and on again."""
        self.stop()
        return self.start()

    def _booted(self) -> Machine:
        self._pid = eventually(self._find_systemd, seconds=BOOT_SECONDS)
        machine = Machine(self._pid)
        eventually(lambda: _is_up(machine), seconds=BOOT_SECONDS)
        return machine

    def stop(self) -> None:
        """Switch it off; kill what remains, and with its systemd the whole machine."""
        if self._process is None:
            return
        try:
            if self._pid and self._process.poll() is None:
                # systemd's "halt at once, in good order" (systemd(1), SIGRTMIN+3).
                os.kill(self._pid, signal.SIGRTMIN + 3)
            self._process.wait(OFF_SECONDS)
        except (subprocess.TimeoutExpired, ProcessLookupError):
            if self._pid:
                _kill(self._pid)
            self._process.kill()
            self._process.wait(OFF_SECONDS)
        for folder in self._cgroups:
            _remove_cgroups(folder)

    def _command(self) -> Sequence[str]:
        command = ["systemd-nspawn", "-D", str(self._root), "--register=no"]
        command += [] if HAS_SYSTEMD else ["--keep-unit"]
        command += [f"--machine={self._name}"]
        # mongod locks the memory that has passwords in it.
        command += ["--system-call-filter=@memlock"]
        command += ["--private-network", "--console=read-only", "--resolv-conf=off"]
        command += [f"--bind-ro={source}:{target}" for source, target in self._read_only.items()]
        command += ["--boot"]
        if not Path("/sys/fs/cgroup/cgroup.controllers").exists():
            command += ["systemd.unified_cgroup_hierarchy=0"]
        return command

    def _find_systemd(self) -> int:
        assert self._process is not None
        assert self._process.poll() is None, f"the machine did not boot, see {self._log}"
        pid = self._process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        # Before it there is a child of nspawn's own for a moment.
        return next((int(child) for child in children if _name(child) == "systemd"), 0)


def _own_cgroups(name: str) -> Sequence[Path]:
    """Folders for it, which nspawn asks systemd for where there is one.

    The systemd of a second machine would take the first one's processes for its own.
    """
    if HAS_SYSTEMD:
        return []
    folders = [Path("/sys/fs/cgroup", tree, name) for tree in ("systemd", "unified")]
    folders = [folder for folder in folders if folder.parent.is_dir()]
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return folders


def _remove_cgroups(folder: Path) -> None:
    """Innermost first; the files in them are the kernel's, and go along."""
    for inner in sorted(folder.rglob("*"), reverse=True):
        if inner.is_dir():
            inner.rmdir()
    folder.rmdir()


def _name(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def _is_up(machine: Machine) -> bool:
    state = machine.run("systemctl", "is-system-running", check=False).stdout.strip()
    return state in ("running", "degraded")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
