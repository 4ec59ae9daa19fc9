"""The supervisor with toy programs: order, restarts, signals, and that nothing outlives it."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from linedesk.runtime.exit_codes import Exit
from tests.linedesk.processes import is_alive
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]

# Supervises the toys "first" and "second", each with a given behaviour.
DRIVER = """
import os, sys
from linedesk.runtime.logging import configure_logging
from linedesk.launch.supervisor import Program, Signals, Supervisor, signals_on

_, toy, diary, stop_seconds, *behaviours = sys.argv
configure_logging()
signals = Signals()
programs = [
    Program(name, [sys.executable, toy, name, behaviour, diary], float(stop_seconds))
    for name, behaviour in zip(("first", "second"), behaviours)
]
with signals_on(signals):
    sys.exit(Supervisor(programs, os.environ, signals).run())
"""

TOY = """
import os, signal, sys, threading

_, name, behaviour, diary = sys.argv

def note(word):
    with open(diary, "a") as book:
        book.write(f"{name} {word} {os.getpid()}\\n")

def end(number, frame):
    note(signal.Signals(number).name)
    if behaviour != "deaf":
        sys.exit(0)

signal.signal(signal.SIGTERM, end)
signal.signal(signal.SIGINT, end)
note("started")
if behaviour.isdigit():
    while "first started" not in open(diary).read():
        threading.Event().wait(0.01)
    sys.exit(int(behaviour))
while True:
    signal.pause()
"""


class Supervised:
    """A supervisor in a separate process, and the diary that its toys write."""

    def __init__(self, folder: Path, *behaviours: str, stop_seconds: float = 20.0) -> None:
        self._diary = folder / "diary"
        self._log = folder / "log"
        self._diary.touch()
        (folder / "toy.py").write_text(TOY)
        (folder / "driver.py").write_text(DRIVER)
        arguments = [folder / "toy.py", self._diary, str(stop_seconds), *behaviours]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, folder / "driver.py", *arguments],
                env=os.environ | {"PYTHONPATH": str(ROOT)},
                stderr=log,
                start_new_session=True,
            )

    def wait_until_started(self) -> None:
        eventually(lambda: len(self.pids()) == 2)

    def diary(self) -> list[str]:
        """The toys' events in order, such as `first SIGTERM`."""
        return [line.rpartition(" ")[0] for line in self._diary.read_text().splitlines()]

    def pids(self, name: str = "") -> list[int]:
        """The process ids of all starts, of one toy or of all."""
        lines = self._diary.read_text().splitlines()
        return [
            int(line.split()[2]) for line in lines if line.startswith(name) and "started" in line
        ]

    def log(self) -> str:
        return self._log.read_text()

    def ended(self) -> int:
        return self.process.wait(20)


Start = Callable[..., Supervised]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    made: list[Supervised] = []

    def start(*behaviours: str, stop_seconds: float = 20.0) -> Supervised:
        made.append(Supervised(tmp_path, *behaviours, stop_seconds=stop_seconds))
        made[-1].wait_until_started()
        return made[-1]

    yield start
    for each in made:
        each.process.kill()
        each.process.wait()
        eventually(lambda each=each: not any(is_alive(pid) for pid in each.pids()))


def test_ctrl_c_in_the_terminal_reaches_the_supervisor_alone(start: Start) -> None:
    supervised = start("good", "good")
    os.killpg(supervised.process.pid, signal.SIGINT)
    assert supervised.ended() == 0
    assert supervised.diary()[2:] == ["first SIGTERM", "second SIGTERM"]


def test_a_dead_program_is_started_again_and_the_log_says_so(start: Start) -> None:
    supervised = start("good", "good")
    os.kill(supervised.pids("first")[0], signal.SIGKILL)
    eventually(lambda: len(supervised.pids("first")) == 2)
    assert len(supervised.pids("second")) == 1
    assert "WARNING launch restarting process=first exit=-9" in supervised.log()
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 0
    assert supervised.diary()[-2:] == ["first SIGTERM", "second SIGTERM"]


def test_an_error_that_a_restart_cannot_fix_stops_everything(start: Start) -> None:
    supervised = start("good", str(int(Exit.CONFIG)))
    assert supervised.ended() == Exit.CONFIG
    assert len(supervised.pids("second")) == 1
    assert "first SIGTERM" in supervised.diary()


def test_a_second_signal_ends_everything_at_once(start: Start) -> None:
    supervised = start("deaf", "deaf", stop_seconds=60)
    supervised.process.send_signal(signal.SIGTERM)
    eventually(lambda: "first SIGTERM" in supervised.diary())
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 137
    assert not any(is_alive(pid) for pid in supervised.pids())


def test_a_program_that_does_not_end_in_time_is_killed(start: Start) -> None:
    supervised = start("deaf", "good", stop_seconds=0.2)
    supervised.process.send_signal(signal.SIGTERM)
    assert supervised.ended() == 137
    assert "killing process=first" in supervised.log()
    assert supervised.diary()[-1] == "second SIGTERM"


def test_programs_do_not_outlive_a_supervisor_that_was_killed(start: Start) -> None:
    supervised = start("good", "good")
    supervised.process.kill()
    supervised.ended()
    eventually(lambda: not any(is_alive(pid) for pid in supervised.pids()))
    assert sorted(supervised.diary()[2:]) == ["first SIGTERM", "second SIGTERM"]
