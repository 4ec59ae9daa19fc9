"""Lists the benches and runs them: `python -m bench list`, `python -m bench run accept`.

`python -m bench compare accept --with v1.2` runs one bench by turns with the product of this tree
and with that of another commit. `python -m bench guard` measures small, and fails where a ratio has
halved or a cost has grown.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench import guard
from bench.compare import compared
from bench.report import BenchFailed, Report, table_of, write_json

BENCHES = ("accept", "latency", "handout", "record", "oplog", "check")
"""Modules of this package. Each has `add_options(parser)` and `run(options, console)`, which
returns its reports; the list shows the first line of its docstring.
"""


def main(arguments: Sequence[str]) -> int:
    """Run the command line; returns 1 if a step of a bench failed."""
    # The others may import what the product of another commit does not have.
    asked = [name for name in BENCHES if name in arguments] or BENCHES
    benches = {name: import_module(f"bench.{name}") for name in asked}
    console = Console(width=None if sys.stdout.isatty() else 160)
    parser = parser_of(benches)
    options, others = parser.parse_known_args(arguments)
    if options.command == "compare":
        # Unknown options of the bench are reported now, not after minutes.
        parser.parse_args(["run", options.bench, *others])
    elif others:
        parser.error(f"unrecognized arguments: {' '.join(others)}")
    commands: dict[str, Callable[[], None]] = {
        "list": lambda: console.print(list_of(benches)),
        "run": lambda: run(benches[options.bench], options, console),
        "compare": lambda: compare(options, others, console),
        "guard": lambda: guard.check(console),
    }
    try:
        commands[options.command]()
    except BenchFailed as error:
        name = getattr(options, "bench", options.command)
        console.print(f"[bold red]bench {name} failed:[/] {escape(str(error))}", soft_wrap=True)
        return 1
    return 0


def run(bench: ModuleType, options: argparse.Namespace, console: Console) -> None:
    """One bench: its tables and its file."""
    reports = list(bench.run(options, console))
    for report in reports:
        console.print(table_of(report))
    chosen = {k: v for k, v in vars(options).items() if k not in ("command", "bench", "output")}
    write(reports, options, console, chosen)


def compare(options: argparse.Namespace, others: Sequence[str], console: Console) -> None:
    """One bench with two products: its tables and its file."""
    comparison = compared(
        options.bench, options.commit, others, rounds=options.rounds, console=console
    )
    for table in comparison.tables():
        console.print(table)
    chosen = {"with": comparison.commit, "rounds": options.rounds, "options": list(others)}
    options.bench = f"{options.bench}-compared"
    write([], options, console, chosen, comparison.rows())


def write(
    reports: Sequence[Report],
    options: argparse.Namespace,
    console: Console,
    chosen: Mapping[str, object],
    compared_rows: Sequence[Mapping[str, object]] | None = None,
) -> None:
    """The file beside the tables."""
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{options.bench}.json"
    write_json(reports, path, chosen, compared=compared_rows)
    console.print(f"written: {path}")


def list_of(benches: dict[str, ModuleType]) -> Table:
    """Each bench with its subject."""
    table = Table("bench", "measures", box=None)
    for name, module in benches.items():
        table.add_row(name, (module.__doc__ or "").partition("\n")[0])
    return table


def parser_of(benches: dict[str, ModuleType]) -> argparse.ArgumentParser:
    """The command line, with each bench's own options."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the benches and what they measure")
    runs = commands.add_parser("run", help="run one of them").add_subparsers(
        dest="bench", required=True
    )
    for name, module in benches.items():
        summary = (module.__doc__ or "").partition("\n")[0]
        one = runs.add_parser(name, help=summary, description=module.__doc__)
        _add_common(one, rounds=5)
        module.add_options(one)
    compares = commands.add_parser(
        "compare",
        allow_abbrev=False,
        help="run one of them with this tree's product and with another commit's",
        description="All further options are those of the bench.",
    )
    compares.add_argument("bench", choices=list(benches))
    compares.add_argument("--with", dest="commit", required=True, help="a commit, tag or branch")
    _add_common(compares, rounds=5)
    commands.add_parser(
        "guard", help="measure small; fail where a ratio or a cost is out of bounds"
    )
    return parser


def _add_common(parser: argparse.ArgumentParser, *, rounds: int) -> None:
    parser.add_argument("--rounds", type=int, default=rounds, help="by turns (%(default)s)")
    parser.add_argument("--output", type=Path, default=Path("bench-results"), help="a folder")


if __name__ == "__main__":
    # So that a bench that is ended stops its servers and removes their files.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
