"""The fixtures of all tests: a thread that is left fails the test that left it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

LEAVES_A_THREAD = """
import threading

gate, threads = threading.Event(), []


def fail_later():
    gate.wait(60)
    raise ValueError("planted")


def test_that_leaves_a_thread():
    threads.append(threading.Thread(target=fail_later, daemon=True))
    threads[0].start()


def test_in_which_it_fails():
    gate.set()
    threads[0].join()
"""


def test_a_thread_that_is_left_fails_the_test_that_left_it_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(LEAVES_A_THREAD)
    (tmp_path / "conftest.py").write_text(
        "from tests import conftest\n"
        "from tests.conftest import nothing_left\n"
        "conftest.LEFT_SECONDS = 0.01\n"
    )
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"),
            *("-c", ROOT / "pyproject.toml", "--rootdir", ROOT, tmp_path),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "2 passed, 1 error" in ran.stdout
    assert "test_it.py::test_that_leaves_a_thread - AssertionError" in ran.stdout
