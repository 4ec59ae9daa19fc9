"""deploy/tls/linedesk-certbot-hook, as certbot runs it, into a folder of the test's own."""

import os
import stat
from pathlib import Path

import pytest

from tests.waiting import Ended, ran

HOOK = Path(__file__).parents[2] / "deploy" / "tls" / "linedesk-certbot-hook"
FILES = ("fullchain.pem", "privkey.pem")


class Machine:
    """Where the hook runs: certbot's lineage, a target, and a systemctl that notes its calls."""

    def __init__(self, folder: Path) -> None:
        self.lineage, self.target = folder / "live", folder / "tls"
        self._calls, bin_ = folder / "calls", folder / "bin"
        self.lineage.mkdir()
        for name in FILES:
            # certbot's own are symbolic links.
            (folder / f"{name}.1").write_text(f"{name} 1")
            (self.lineage / name).symlink_to(folder / f"{name}.1")
        bin_.mkdir()
        (bin_ / "systemctl").write_text(f'#!/bin/sh\necho "$*" >>{self._calls}\n')
        (bin_ / "systemctl").chmod(0o755)
        self._environ = {
            "PATH": f"{bin_}:{os.environ['PATH']}",
            "RENEWED_LINEAGE": str(self.lineage),
            "LINEDESK_TLS_DIR": str(self.target),
            "LINEDESK_TLS_OWNER": f"{os.getuid()}:{os.getgid()}",
        }

    def run(self, **environ: str) -> Ended:
        return ran([HOOK], env=self._environ | environ)

    @property
    def laid(self) -> dict[str, str]:
        """The files in the target, by name."""
        return {path.name: path.read_text() for path in self.target.iterdir()}

    @property
    def acts(self) -> list[str]:
        calls = self._calls.read_text().splitlines() if self._calls.exists() else []
        return [call for call in calls if not call.startswith("is-active ")]


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_it_lays_both_files_readable_for_the_group_and_has_them_read(machine: Machine) -> None:
    assert machine.run().returncode == 0
    assert machine.laid == {name: f"{name} 1" for name in FILES}
    for name in FILES:
        assert stat.S_IMODE((machine.target / name).lstat().st_mode) == 0o640
    assert machine.acts == ["restart linedesk-frontdesk", "reload nginx"]


def test_a_renewal_puts_new_files_in_place_of_the_old_ones(machine: Machine) -> None:
    machine.run()
    before = {name: (machine.target / name).stat().st_ino for name in FILES}
    with (machine.target / FILES[0]).open() as still_read:
        for name in FILES:
            (machine.lineage / name).unlink()
            (machine.lineage / name).write_text(f"{name} 2")
        assert machine.run().returncode == 0
        # An open reader reads the old file to its end.
        assert still_read.read() == "fullchain.pem 1"
    assert machine.laid == {name: f"{name} 2" for name in FILES}
    assert all((machine.target / name).stat().st_ino != before[name] for name in FILES)


def test_half_a_lineage_changes_nothing(machine: Machine) -> None:
    machine.run()
    (machine.lineage / "fullchain.pem").unlink()
    (machine.lineage / "fullchain.pem").write_text("new")
    (machine.lineage / "privkey.pem").unlink()
    answer = machine.run()
    assert answer.returncode == 1
    assert "privkey.pem" in answer.stderr
    assert machine.laid == {name: f"{name} 1" for name in FILES}
