"""The results of a bench's rounds: ratios, files, and a step that fails."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from rich.console import Console

from bench.report import BenchFailed, Report, Row, by_turns

QUIET = Console(quiet=True)


def test_a_ratio_is_taken_within_its_round_and_its_case() -> None:
    # The machine is ten times as slow in the second round, and with 32 connections.
    rows = [
        Row("base", [{"events/s": 100.0}, {"events/s": 10.0}], {"connections": 1}),
        Row("ours", [{"events/s": 50.0}, {"events/s": 6.0}], {"connections": 1}),
        Row("base", [{"events/s": 10.0}, {"events/s": 1.0}], {"connections": 32}),
        Row("ours", [{"events/s": 2.0}, {"events/s": 0.3}], {"connections": 32}),
    ]
    report = Report("both", rows, "base")
    assert report.ratios(rows[1]) == [0.5, 0.6]
    assert report.ratios(rows[3]) == [0.2, 0.3]
    assert report.ratios(rows[0]) == []


def test_all_variants_run_once_a_round_and_every_other_round_backwards() -> None:
    order: list[str] = []
    numbers: Iterator[int] = count(1)

    def measure(name: str) -> dict[str, float]:
        order.append(name)
        return {"number": next(numbers)}

    rows = by_turns({"a": lambda: measure("a"), "b": lambda: measure("b")}, 3, QUIET)
    assert order == ["a", "b", "b", "a", "a", "b"]
    assert [[one["number"] for one in row.rounds] for row in rows] == [[1, 4, 5], [2, 3, 6]]


def test_a_variant_that_fails_ends_the_bench_and_is_named() -> None:
    def fail() -> dict[str, float]:
        raise ConnectionRefusedError("no one is here")

    variants = {"works": lambda: {"events/s": 1.0}, "its peer": fail}
    with pytest.raises(BenchFailed, match="its peer: ConnectionRefusedError: no one is here"):
        by_turns(variants, 1, QUIET)
