"""The fork server: its processes behave like separately started ones."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.fork_server import Child, Nursery, Written, nursery
from tests.linedesk.processes import is_alive
from tests.waiting import eventually

ENVIRON = {"PATH": os.environ["PATH"]}
CHILD = "tests.fork_server_child"


@pytest.fixture
def written() -> Iterator[Written]:
    with Written() as written:
        yield written


def start(written: Written, *words: str, by: Nursery = nursery, **environ: str) -> Child:
    return by.start(CHILD, *words, env=ENVIRON | environ, stdout=written.fd, stderr=written.fd)


def waiting(written: Written, by: Nursery = nursery) -> Child:
    """A process that reports its start and does nothing more."""
    child = start(written, "wait", by=by)
    eventually(lambda: "waiting" in written.text)
    return child


def test_it_has_its_own_environment_group_arguments_and_exit_code() -> None:
    told = nursery.run(CHILD, "tell", env=ENVIRON | {"WHAT": "日本語"})
    assert told.returncode == 3
    seen = json.loads(told.stdout)
    assert seen.pop("pid") == seen.pop("group") != os.getpid()
    assert seen == {
        "environ": ENVIRON | {"WHAT": "日本語"},
        "arguments": ["tell"],
        "name": "__main__",
        "descriptors": [0, 1, 2],
        "stdin": "",
    }
    assert told.stderr == "to stderr\nat exit\n"


def test_one_that_raises_ends_with_its_traceback() -> None:
    told = nursery.run(CHILD, "raise", env=ENVIRON)
    assert told.returncode == 1
    assert told.stderr.endswith("ValueError: planted\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGABRT])
def test_a_signal_ends_it_and_is_its_status(written: Written, number: signal.Signals) -> None:
    child = waiting(written)
    assert child.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        child.wait(0.01)
    child.send_signal(number)
    assert child.wait(10) == -number
    assert (child.poll(), child.returncode) == (-number, -number)
    assert not is_alive(child.pid)
    child.kill()


def test_when_the_tests_end_no_process_is_left(written: Written) -> None:
    other = Nursery()
    child = waiting(written, by=other)
    other.close()
    with pytest.raises(RuntimeError, match="the nursery has ended"):
        child.wait(10)
    eventually(lambda: not is_alive(child.pid))
