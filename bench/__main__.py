"""Lists the benches and runs them: `python -m bench list`, `python -m bench run accept`.

`python -m bench compare accept --with v1.2` runs one bench by turns with this tree and with the
product of another commit.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

from rich.console import Console
from rich.table import Table

from bench.report import BenchFailed, Report, table_of, write_json

BENCHES = ("handout", "record")
"""Modules of this package. Each has `add_options(parser)` and `run(options, console)`, which gives
its reports; the first line of its docstring is what the list shows."""


def main(arguments: Sequence[str]) -> int:
    """Do what the command line says; 1 when a step of a bench failed."""
    benches = {name: import_module(f"bench.{name}") for name in BENCHES}
    console = Console()
    options = parser_of(benches).parse_args(arguments)
    if options.command == "list":
        console.print(list_of(benches))
        return 0
    try:
        reports = list(benches[options.bench].run(options, console))
        for report in reports:
            console.print(table_of(report))
        write(reports, options, console)
    except BenchFailed as error:
        console.print(f"[bold red]bench {options.bench} failed:[/] {error}")
        return 1
    return 0


def write(reports: Sequence[Report], options: argparse.Namespace, console: Console) -> None:
    """The files beside the tables."""
    folder: Path = options.output
    folder.mkdir(parents=True, exist_ok=True)
    chosen = {k: v for k, v in vars(options).items() if k not in ("command", "bench", "output")}
    write_json(reports, folder / f"{options.bench}.json", chosen)
    # Here, since only plots need matplotlib.
    from bench.plot import write_svg

    write_svg(reports, folder / f"{options.bench}.svg")
    console.print(f"written: {folder}/{options.bench}.json and .svg")


def list_of(benches: dict[str, ModuleType]) -> Table:
    """Each bench with what it measures."""
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
        one.add_argument("--rounds", type=int, default=5, help="by turns")
        one.add_argument("--output", type=Path, default=Path("bench-results"), help="a folder")
        module.add_options(one)
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
