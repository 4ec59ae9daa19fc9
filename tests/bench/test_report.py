"""The results of a bench's rounds: ratios, files, and a step that fails."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from rich.console import Console

from bench.report import BenchFailed, Report, Row, by_turns, percentiles, table_of, write_json

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


def test_a_ratio_can_be_that_of_another_figure() -> None:
    rows = [
        Row("base", [{"events/s": 100.0, "ms": 2.0}]),
        Row("ours", [{"events/s": 50.0, "ms": 3.0}]),
    ]
    assert Report("both", rows, "base").ratios(rows[1], "ms") == [1.5]


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


def test_the_file_holds_machine_packages_and_rows(tmp_path: Path) -> None:
    rows = [Row("ours", [{"events/s": 50.0}], {"connections": 1})]
    report = Report("one", rows, lacks={"ours": "sleep"}, versions={"MongoDB": "6.0.5"})
    write_json([report], tmp_path / "one.json", {"seconds": 3.0})
    content = json.loads((tmp_path / "one.json").read_text("utf-8"))
    assert content["options"] == {"seconds": 3.0}
    assert {"processor", "cores", "memory_gib", "python", "system"} <= content["machine"].keys()
    assert content["packages"]["pymongo"]
    [written] = content["reports"]
    assert written["versions"] == {"MongoDB": "6.0.5"}
    assert written["rows"] == [
        {"variant": "ours", "rounds": [{"events/s": 50.0}], "case": {"connections": 1}}
    ]


def test_the_table_has_what_a_variant_does_not_promise() -> None:
    rows = [Row(name, [{"events/s": 2.0}]) for name in ("base", "ours")]
    console = Console(record=True, width=200, file=io.StringIO())
    console.print(table_of(Report("one", rows, "base", lacks={"base": "any storing"})))
    text = console.export_text()
    assert "any storing" in text
    assert "1.00 (1.00 to 1.00)" in text


def test_too_few_times_are_no_percentiles() -> None:
    with pytest.raises(BenchFailed, match="too few"):
        percentiles([1.0])
    figures = percentiles([float(n) for n in range(1, 101)])
    assert figures["max ms"] == 100
    assert 50 <= figures["p50 ms"] <= 51
