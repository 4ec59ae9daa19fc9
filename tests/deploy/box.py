"""A box to install on: a folder as its root, and a PATH whose systemctl and pip only pretend.

deploy/install.sh runs completely on it. The calls of the pretended programs are recorded, and files
control their answers; the real programs run in scripts/test-systemd.
"""

import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.frontdesk.desk import SECRET
from tests.waiting import Ended, ran

ROOT = Path(__file__).parents[2]
PRETENDED = Path(__file__).with_name("pretended")
TOOLS = """awk base64 basename bash cat chmod cmp cp cut date dirname env find flock grep head id
install ln md5sum mkdir mktemp mv readlink rm sed sha256sum sleep sort stat tail touch wc xargs"""
PLAYED = """apt-cache apt-get chown dnf dpkg-query getent journalctl mongod systemctl timeout
useradd"""


class Box:
    """The machine, and a checkout on it that can be changed into another version.

    It is new, or, if the folder is a copy of a box's, in that box's state.
    """

    def __init__(self, folder: Path, *, family: str = "debian") -> None:
        self.root = folder / "root"
        self.state = folder / "state"
        self.checkout = folder / "checkout"
        self._bin = folder / "bin"
        self._os_release = folder / "os-release"
        if not self._bin.exists():
            self._make(family)

    def _make(self, family: str) -> None:
        self._copy_checkout()
        for path in (self.root, self._bin, self.state / "active", self.state / "enabled"):
            path.mkdir(parents=True)
        self.path("etc").mkdir()
        ids = {"debian": "ID=debian\n", "centos": 'ID="centos"\nID_LIKE="rhel fedora"\n'}
        self._os_release.write_text(ids.get(family, f"ID={family}\n"))
        self._make_path()

    def _copy_checkout(self) -> None:
        shutil.copytree(ROOT / "deploy", self.checkout / "deploy")
        shutil.copytree(ROOT / "requirements", self.checkout / "requirements")
        shutil.copy(ROOT / "pyproject.toml", self.checkout)
        for name in ("linedesk", "docs", "scripts"):
            (self.checkout / name).mkdir()
        (self.checkout / "scripts" / "inspect.js").write_text("first\n")
        (self.checkout / "linedesk" / "cli.py").write_text("first\n")
        (self.checkout / "docs" / "index.md").write_text("first\n")
        self.next_version("0.1.0")

    def _make_path(self) -> None:
        for tool in TOOLS.split():
            (self._bin / tool).symlink_to(shutil.which(tool) or pytest.fail(f"no {tool} here"))
        for name in PLAYED.split():
            shutil.copy(PRETENDED / "any", self._bin / name)
        shutil.copy(PRETENDED / "python", self._bin)
        shutil.copy(PRETENDED / "linedesk", self.state)

    def without(self, program: str) -> None:
        """Take a program off the PATH."""
        (self._bin / program).unlink()

    def path(self, name: str) -> Path:
        """Where a path of the box is."""
        return self.root / name

    def install(self, *options: str, **environ: str) -> Ended:
        """Run deploy/install.sh as root with a strict umask; there is no terminal."""
        return ran(
            [self.checkout / "deploy" / "install.sh", *options],
            env=self.environ() | environ,
            cwd="/",
            umask=0o077,
        )

    def environ(self) -> dict[str, str]:
        return {
            "PATH": str(self._bin),
            "STATE": str(self.state),
            "PYTHON": str(self._bin / "python"),
            "REAL_PYTHON": sys.executable,
            "LINEDESK_ROOT": str(self.root),
            "LINEDESK_OS_RELEASE": str(self._os_release),
            "LINEDESK_SETTLE_SECONDS": "0",
        }

    def installed(self, **environ: str) -> str:
        """Install with secrets; the name of the release that is then in use."""
        secrets = {"LINE_CHANNEL_SECRET": SECRET, "LINE_CHANNEL_ACCESS_TOKEN": "t0ken"}
        answer = self.install(**secrets, **environ)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return self.current

    def next_version(self, version: str) -> None:
        """Change the checkout into another version."""
        pyproject = self.checkout / "pyproject.toml"
        lines = pyproject.read_text().splitlines()
        lines = [f'version = "{version}"' if at.startswith("version = ") else at for at in lines]
        pyproject.write_text("\n".join(lines))

    @property
    def current(self) -> str:
        """The release in use."""
        return os.path.basename(os.readlink(self.path("opt/linedesk/current")))

    @property
    def releases(self) -> list[str]:
        """The existing ones."""
        return sorted(path.name for path in self.path("opt/linedesk/releases").iterdir())

    def calls(self, beginning: str = "") -> list[str]:
        """The calls of the pretended programs since `forget`."""
        path = self.state / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        return [line for line in lines if line.startswith(beginning)]

    def forget(self) -> None:
        """Forget the calls."""
        (self.state / "calls").unlink(missing_ok=True)

    def say(self, name: str, *lines: str) -> None:
        """Steer the pretended programs: a file by its name."""
        (self.state / name).write_text("".join(f"{line}\n" for line in lines))

    def files(self) -> dict[str, bytes]:
        """Every file of the box, to see that nothing changed."""
        return {
            str(path.relative_to(self.root)): path.read_bytes()
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }
