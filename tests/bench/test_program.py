"""`python -m bench` as a person calls it: the list, its exit codes, a comparison's arithmetic."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

import bench
from bench import __main__ as program
from bench.compare import Comparison, joined
from bench.guard import Kept, check
from bench.report import BenchFailed, Figures, Report, Row, by_turns

FOLDER = Path(bench.__file__).parent


def a_bench(*measured: Figures) -> ModuleType:
    """A bench with these rounds; with none it fails."""
    module = ModuleType("bench.small", "A small bench.")

    def run(options: Namespace, console: Console) -> list[Report]:
        rows = by_turns({"one step": lambda: measured[0]}, 1, console)
        return [Report("small", rows)]

    def add_options(parser: ArgumentParser) -> None:
        """None."""

    module.__dict__.update(run=run, add_options=add_options)
    return module


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program has two benches: `small` works, `broken` does not."""
    for name, module in {"small": a_bench({"events/s": 5.0}), "broken": a_bench()}.items():
        monkeypatch.setitem(sys.modules, f"bench.{name}", module)
    monkeypatch.setattr(program, "BENCHES", ("small", "broken"))


def test_the_list_forgets_no_bench(capsys: pytest.CaptureFixture[str]) -> None:
    found = {
        path.stem for path in FOLDER.glob("*.py") if "\ndef add_options(" in path.read_text("utf-8")
    }
    assert found == set(program.BENCHES)
    assert program.main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()[1:]
    assert {line.split()[0] for line in lines} == found
    assert all(len(line.split()) > 2 for line in lines)


@pytest.mark.usefixtures("small")
def test_a_run_writes_its_file_and_a_failure_is_exit_code_1_with_the_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--output", str(tmp_path)]
    assert program.main(["run", "small", *words]) == 0
    content = json.loads((tmp_path / "small.json").read_text("utf-8"))
    assert content["reports"][0]["rows"][0]["rounds"] == [{"events/s": 5.0}]
    capsys.readouterr()
    assert program.main(["run", "broken", *words]) == 1
    assert "one step: IndexError" in capsys.readouterr().out
    assert not (tmp_path / "broken.json").exists()


def rounds(*values: float) -> list[list[Report]]:
    """The reports of as many runs, a round each."""
    return [[Report("small", [Row("one", [{"events/s": one}], {"n": 1})])] for one in values]


def test_a_comparison_takes_its_ratios_within_a_round() -> None:
    comparison = Comparison("abc", joined(rounds(100, 10)), joined(rounds(150, 20)))
    [row] = comparison.rows()
    assert row["ratios"] == [1.5, 2.0]
    assert (row["abc"], row["now"]) == (55, 85)
    assert [table.row_count for table in comparison.tables()] == [1]


def kept(*ratios: float, cost: str = "") -> Sequence[Kept]:
    """A guard of 0.4 that sees these."""
    rows = [
        Row("base", [{"events/s": 100.0} for _ in ratios]),
        Row("ours", [{"events/s": 100 * ratio} for ratio in ratios]),
    ]
    return [Kept("accept", lambda console: Report("small", rows, "base"), "ours", 0.4, cost)]


def test_the_guard_fails_below_half_or_above_a_cost_and_its_best_round_decides() -> None:
    quiet = Console(quiet=True)
    check(quiet, kept(0.25, 0.15, 0.1))
    with pytest.raises(BenchFailed, match=r"accept: ours at 0\.15 .* of base"):
        check(quiet, kept(0.19, 0.15, 0.1))
    check(quiet, kept(0.5, 0.39, cost="events/s"))
    with pytest.raises(BenchFailed, match=r"accept: ours at 0\.55 .* of base, at most 0\.40"):
        check(quiet, kept(0.6, 0.5, cost="events/s"))
