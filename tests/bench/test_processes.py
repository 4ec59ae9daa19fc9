"""Processes and waits that benches share."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest

from bench.processes import child, cpu_seconds, until
from bench.report import BenchFailed


def test_a_process_that_ends_at_once_is_an_error_with_its_last_output(tmp_path: Path) -> None:
    command = ["sh", "-c", "echo no room; exit 1"]
    with (
        pytest.raises(BenchFailed, match=r"it did not start: no room"),
        child("it", command, ready=lambda: False, log=tmp_path / "log"),
    ):
        pass


def test_a_process_lives_until_the_end_of_the_block() -> None:
    with child("it", ["sleep", "60"]) as process:
        assert process.poll() is None
    assert process.returncode == -15


def test_a_wait_fails_at_its_deadline_and_when_its_process_has_ended() -> None:
    with pytest.raises(BenchFailed, match="not within 0 s: it rains"):
        until(lambda: False, "it rains", seconds=0.0)
    with (
        child("it", ["sh", "-c", "exit 3"]) as process,
        pytest.raises(BenchFailed, match="ended with 3 before: it rains"),
    ):
        until(lambda: False, "it rains", seconds=60.0, process=process)


def test_the_processor_time_of_children_counts_while_they_run_and_afterwards() -> None:
    words = f"{sys.executable} -c 'sum(range(10 ** 7))'; exec sleep 60"
    with child("it", ["sh", "-c", words]) as process:
        used = partial(cpu_seconds, process.pid, children=True)
        until(lambda: used() > 0.05, "it computes", seconds=60.0)
        command = Path(f"/proc/{process.pid}/cmdline")
        until(lambda: command.read_bytes().startswith(b"sleep"), "it has ended", seconds=60.0)
        assert used() > 0.05
        assert cpu_seconds(process.pid) < 0.05
