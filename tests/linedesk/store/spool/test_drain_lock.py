"""The drain's lock: one holder at a time, another after a kill, and another if one is frozen."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from linedesk.store.spool import drain
from linedesk.store.spool.drain import DrainLock
from tests.linedesk.store.spool.test_spool import ROOT
from tests.waiting import eventually

OWNER = """
import sys
from pathlib import Path
from linedesk.store.spool.drain import DrainLock
turn = DrainLock(Path(sys.argv[1]))
for _ in sys.stdin:
    print(turn.taken(), flush=True)
"""


class Owner:
    """A process that reports on request whether it holds the lock."""

    def __init__(self, path: Path) -> None:
        command = [sys.executable, "-c", OWNER, str(path)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)

    def __enter__(self) -> Owner:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate(timeout=10)

    def taken(self) -> bool:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.process.stdout.readline() == "True\n"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turn"


def test_it_passes_on_when_its_owner_is_frozen_and_the_owner_notices(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "STILL_SECONDS", 0.2)
    mine, third = DrainLock(path), DrainLock(path)
    with Owner(path) as owner:
        assert owner.taken()
        owner.process.send_signal(signal.SIGSTOP)
        eventually(mine.taken)
        assert "drain makes no progress" in caplog.text
        assert not third.taken()
        owner.process.send_signal(signal.SIGCONT)
        assert not owner.taken()
        assert mine.taken()
        mine.end()
        assert owner.taken()
