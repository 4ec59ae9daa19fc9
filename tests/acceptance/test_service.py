"""The real processes as systemd runs them: their reports, and their stacks after SIGABRT."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import House
from tests.listener import Manager


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


class Said:
    """All that a process has said so far."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self.messages: list[list[str]] = []

    def has(self, line: str) -> bool:
        self.messages += self._manager.heard()
        return any(line in message for message in self.messages)

    def status(self) -> str:
        """The last one."""
        (line,) = (line for line in self.messages[-1] if line.startswith("STATUS="))
        return line.removeprefix("STATUS=")


def test_the_watchdogs_signal_leaves_every_threads_stack_in_the_log(
    house: House, manager: Manager
) -> None:
    said = Said(manager)
    for _ in range(3):
        process = house.start_dispatcher(
            ready=False, fresh=True, NOTIFY_SOCKET=manager.address, PYTHONFAULTHANDLER="1"
        )
        house.wait_for(lambda: said.has("READY=1"), process)
        assert said.messages[0][0].startswith("EXTEND_TIMEOUT_USEC=")
        said.messages.clear()
        house.wait_for(lambda: said.has("WATCHDOG=1"), process)
        said.messages.clear()
        ended = house.stop(process, signal.SIGABRT)
        # A hanging thread does not move. Python also reads the stacks of running threads, and may
        # crash on one that is just starting.
        if ended != -signal.SIGSEGV:
            break
    assert ended == -signal.SIGABRT
    log = house.log_of(process)
    assert "Fatal Python error: Aborted" in log
    for part in ("process", "lease", "timers"):
        assert f'/dispatcher/{part}.py", line ' in log
