"""`linedesk demo` as a person runs it, with everything that it starts."""

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.conftest import need_mongod
from tests.fork_server import nursery
from tests.linedesk.processes import child_of, is_alive
from tests.waiting import eventually

PARTS = ("mongod", "-m frontdesk", "-m dispatcher")
OPERATORS_TOKEN = "the-token-of-the-real-channel"


class Demo:
    """A running demo whose temporary files are all in `folder`."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self._output = folder.with_suffix(".out")
        folder.mkdir()
        operators = {
            "LINE_CHANNEL_ACCESS_TOKEN": OPERATORS_TOKEN,
            "LOG_LEVEL": "error",
            "LINEDESK_CONFIG": "a file that is not there",
        }
        with self._output.open("wb") as output:
            self.process = nursery.start(
                *("linedesk", "demo", *options),
                env=os.environ | operators | {"TMPDIR": str(folder)},
                stdout=output.fileno(),
                stderr=output.fileno(),
            )

    @property
    def pid(self) -> int:
        return self.process.pid

    def output(self) -> str:
        return self._output.read_text("utf-8")

    def parts(self) -> list[int]:
        """The process ids of all its parts, once they run."""
        return eventually(self._all_parts, seconds=40)

    def _all_parts(self) -> list[int]:
        found = [child_of(self.pid, part) for part in PARTS]
        return [pid for pid in found if pid] if all(found) else []

    def page(self) -> str:
        """The address of the chat page, once it is printed."""
        match = eventually(lambda: re.search(r"http://\S+", self.output()), seconds=40)
        assert match
        return match[0]

    def ended(self) -> int:
        return self.process.wait(60)

    def nothing_is_left(self, parts: list[int]) -> bool:
        return not list(self.folder.iterdir()) and not any(is_alive(pid) for pid in parts)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    need_mongod()
    return tmp_path / "tmp"


@pytest.fixture
def running(folder: Path) -> Iterator[Demo]:
    """A demo that waits for a person, with a bot of the person's choice."""
    demo = Demo(folder, "--bot", "timer")
    yield demo
    demo.process.kill()
    demo.process.wait()


def test_once_shows_each_message_with_its_answer_and_leaves_nothing_behind(folder: Path) -> None:
    demo = Demo(folder, "--once")
    parts = demo.parts()
    text = demo.output() if demo.ended() == 0 else pytest.fail(demo.output())
    assert "佐藤花子: こんにちは\n  parrot: 佐藤花子さん、はい、こんにちは、ですね。\n" in text
    assert text.endswith("Each was answered once.\n")
    assert demo.nothing_is_left(parts)


@pytest.mark.long
def test_it_waits_for_a_person_until_ctrl_c(running: Demo) -> None:
    parts = running.parts()
    page = running.page()
    eventually(lambda: "+1分" in running.output())
    assert requests.get(page, timeout=10).headers["content-type"].startswith("text/html")
    assert requests.get(f"{page}sim/state", timeout=10).json()["users"]
    assert_secrets_are_kept(parts[1:])
    os.killpg(running.pid, signal.SIGINT)
    assert running.ended() == 0
    assert running.nothing_is_left(parts)


def assert_secrets_are_kept(pids: list[int]) -> None:
    """They are not in any process list, and none of them is the operator's."""
    for pid in pids:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        given = [line.partition(b"=")[2] for line in environ if line.startswith(b"LINE_CHANNEL_")]
        assert len(given) == 2
        assert not any(secret in command for secret in given)
        assert OPERATORS_TOKEN.encode() not in given


@pytest.mark.long
def test_sigterm_ends_it_in_the_middle_without_a_trace(folder: Path) -> None:
    demo = Demo(folder, "--once")
    parts = demo.parts()
    demo.process.terminate()
    assert demo.ended() == 128 + signal.SIGTERM
    assert demo.nothing_is_left(parts)


@pytest.mark.long
def test_a_part_that_dies_ends_it_and_is_named_with_its_log(running: Demo) -> None:
    parts = running.parts()
    running.page()
    os.kill(parts[PARTS.index("-m frontdesk")], signal.SIGKILL)
    assert running.ended() == 1
    assert "linedesk: demo: frontdesk ended by itself" in running.output()
    assert "listening host=127.0.0.1" in running.output()
    assert "Traceback" not in running.output()
    assert running.nothing_is_left(parts)


@pytest.mark.long
def test_its_parts_do_not_outlive_it_when_it_is_killed(running: Demo) -> None:
    parts = running.parts()
    running.process.kill()
    eventually(lambda: not any(is_alive(pid) for pid in parts), seconds=40)
