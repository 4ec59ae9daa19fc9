"""One bench by turns with the product of this tree and with the product of another commit.

Both use the bench/ of this tree, so that only the product differs. Each round of each is a process
of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.report import BenchFailed, Figures, Report, Row, by_turns, number, spread

ROOT = Path(__file__).resolve().parent.parent
PRODUCT = ("frontdesk", "dispatcher", "jobworker", "linedesk", "linemessages", "linesim")
NOW = "now"


@dataclass(frozen=True)
class Comparison:
    """The bench's reports with either product, all rounds together."""

    commit: str
    before: Sequence[Report]
    now: Sequence[Report]

    def pairs(self) -> Iterator[tuple[Report, list[tuple[Row, Row]]]]:
        """Each report with its rows. Raises BenchFailed if their rows differ."""
        if [_names(one) for one in self.before] != [_names(one) for one in self.now]:
            raise BenchFailed(f"the rows of {self.commit} are not those of {NOW}")
        for before, now in zip(self.before, self.now, strict=True):
            yield now, list(zip(before.rows, now.rows, strict=True))

    def rows(self) -> list[dict[str, object]]:
        """For the file: every figure of every row, and its ratios, now by before, in each round."""
        return [
            {
                "title": report.title,
                "variant": now.variant,
                "case": dict(now.case),
                "figure": figure,
                self.commit: before.median(figure),
                NOW: now.median(figure),
                "ratios": ratios(before, now, figure),
            }
            for report, pairs in self.pairs()
            for before, now in pairs
            for figure in now.rounds[0]
        ]

    def tables(self) -> Iterator[Table]:
        """One for each report."""
        for report, pairs in self.pairs():
            columns = (self.commit, NOW, f"{NOW} / {self.commit} (min to max)")
            table = Table("case", "variant", "figure", title=report.title)
            for column in columns:
                table.add_column(column, justify="right")
            for before, now in pairs:
                case = ", ".join(f"{name} {value}" for name, value in now.case.items())
                for figure in now.rounds[0]:
                    medians = (number(row.median(figure)) for row in (before, now))
                    said = spread(ratios(before, now, figure))
                    table.add_row(case, now.variant, figure, *medians, said)
            yield table


def ratios(before: Row, now: Row, figure: str) -> list[float]:
    """Now by before, within each round."""
    pairs = zip(before.rounds, now.rounds, strict=True)
    return [b[figure] / a[figure] for a, b in pairs if a[figure]]


def _names(report: Report) -> list[tuple[str, dict[str, float | str], list[str]]]:
    return [(row.variant, dict(row.case), list(row.rounds[0])) for row in report.rows]


def joined(rounds: Sequence[Sequence[Report]]) -> list[Report]:
    """The reports of several runs as one run's. Raises BenchFailed where their rows differ."""
    if any([_names(r) for r in one] != [_names(r) for r in rounds[0]] for one in rounds):
        raise BenchFailed("the rows differ from one round to the other")
    return [
        replace(
            together[0],
            rows=[
                replace(rows[0], rounds=[figures for row in rows for figures in row.rounds])
                for rows in zip(*(report.rows for report in together), strict=True)
            ],
        )
        for together in zip(*rounds, strict=True)
    ]


def compared(
    bench: str, commit: str, arguments: Sequence[str], *, rounds: int, console: Console
) -> Comparison:
    """Run the bench once a round with each product. Raises BenchFailed, which names the step."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="linedesk-bench-")))
        name, other = stack.enter_context(worktree(commit, folder / "product"))
        before, now = (_Product(folder / side, root) for side, root in (("a", other), ("b", ROOT)))
        found: dict[str, list[list[Report]]] = {name: [], NOW: []}

        def once(side: str, product: _Product) -> Figures:
            found[side].append(product.run(bench, arguments))
            return {}

        by_turns({name: lambda: once(name, before), NOW: lambda: once(NOW, now)}, rounds, console)
    return Comparison(name, joined(found[name]), joined(found[NOW]))


@contextmanager
def worktree(commit: str, folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of a commit until the end of the block, and its short name."""
    name = _git("rev-parse", "--short", "--verify", f"{commit}^{{commit}}")
    _git("worktree", "add", "--detach", "--force", str(folder), name)
    try:
        yield name, folder
    finally:
        _git("worktree", "remove", "--force", str(folder))


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    if done.returncode:
        raise BenchFailed(f"git {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout.strip()


class _Product:
    """A folder with a copy of this tree's bench/ and the product of another tree."""

    def __init__(self, folder: Path, root: Path) -> None:
        self._folder, self._root = folder, root
        shutil.copytree(
            ROOT / "bench", folder / "bench", ignore=shutil.ignore_patterns("__pycache__")
        )
        path = os.pathsep.join((str(folder), str(root)))
        self._environ = {**os.environ, "PYTHONPATH": path}
        self._require_product()

    def run(self, bench: str, arguments: Sequence[str]) -> list[Report]:
        """One round, in a process of its own."""
        words = ["run", bench, *arguments, "--rounds", "1", "--output", "."]
        done = self._python("-m", "bench", *words)
        if done.returncode:
            raise BenchFailed(f"python -m bench {' '.join(words)}:\n{done.stdout}{done.stderr}")
        content = json.loads((self._folder / f"{bench}.json").read_text("utf-8"))
        return [report_of(one) for one in content["reports"]]

    def _require_product(self) -> None:
        says = f"import {', '.join(PRODUCT)}; print({', '.join(f'{n}.__file__' for n in PRODUCT)})"
        done = self._python("-c", says)
        if done.returncode:
            raise BenchFailed(f"importing the product of {self._root}:\n{done.stderr}")
        for file in done.stdout.split():
            if not Path(file).is_relative_to(self._root):
                raise BenchFailed(f"{file} was imported, which is not of {self._root}")

    def _python(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *words],
            env=self._environ,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
        )


def report_of(content: Mapping[str, object]) -> Report:
    """A report as its JSON has it."""
    fields = dict(content)
    rows = fields.pop("rows")
    assert isinstance(rows, list)
    return Report(rows=[Row(**row) for row in rows], **fields)  # type: ignore[arg-type]
