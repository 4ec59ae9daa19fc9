"""Prints findings: a table on a terminal, lines in a pipe, JSON for programs.

The levels ok, warn, bad and skip in a pipe are English in every language, as in JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linedesk.doctor.finding import FindingLevel, skip
from linedesk.doctor.round import Result
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext

NAME_WIDTH = 19
SYMBOLS: Mapping[FindingLevel, tuple[str, str]] = {
    FindingLevel.OK: ("✓", "green"),
    FindingLevel.WARN: ("!", "yellow"),
    FindingLevel.BAD: ("✗", "bold red"),
    FindingLevel.SKIP: ("-", "dim"),
}

Show = Callable[[Result], None]


@contextmanager
def showing(*, as_json: bool) -> Iterator[tuple[Callable[[str], None], Show]]:
    """Return what to call before each check, with its name, and after it, with its result.

    A terminal shows the name of the running check. With `as_json` both do nothing.
    """
    if as_json or not sys.stdout.isatty():
        yield _nothing, _nothing if as_json else _echo
        return
    console = Console()
    with console.status("") as status:
        yield (
            lambda name: status.update(_("checking {name}").format(name=_(name))),
            lambda result: console.print(row(result)),
        )


def merged(results: Iterable[Result]) -> Iterator[Result]:
    """Yield each result as it comes, but consecutive skips for the same reason as one."""
    for found, group in groupby(results, key=lambda one: one.finding):
        if found.state is not FindingLevel.SKIP:
            yield from group
            continue
        names = [_(one.name) for one in group]
        if len(names) == 1:
            yield Result(names[0], found)
        else:
            saw = f"{found.saw} ({', '.join(names)})"
            yield Result(_("{count} checks").format(count=len(names)), skip(saw, found.do))


def conclude(results: Sequence[Result], *, as_json: bool) -> None:
    """Print the summary."""
    told = summary(results)
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    count = told["counts"]
    line = ngettext(
        "{bad} bad, {warn} warning, {ok} ok, {skip} skipped",
        "{bad} bad, {warn} warnings, {ok} ok, {skip} skipped",
        count["warn"],
    )
    click.echo(line.format(**count))


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """The findings for programs."""
    states = [one.finding.state for one in results]
    return {
        "counts": {state.value: states.count(state) for state in FindingLevel},
        "checks": [
            {
                "name": one.name,
                "state": one.finding.state.value,
                "saw": one.finding.saw,
                "do": one.finding.do,
            }
            for one in results
        ],
    }


def row(result: Result) -> Table:
    """One finding of the table on a terminal, folded to its width."""
    finding = result.finding
    symbol, style = SYMBOLS[finding.state]
    text = Text(finding.saw)
    if finding.do:
        text.append(f"\n→ {finding.do}", style="" if finding.state is FindingLevel.SKIP else "bold")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=NAME_WIDTH)
    table.add_column(overflow="fold")
    table.add_row(Text(symbol, style=style), Text(_(result.name)), text)
    return table


def _echo(result: Result) -> None:
    finding = result.finding
    name = _(result.name)
    name += " " * (NAME_WIDTH - cell_len(name))
    click.echo(f"{finding.state.value:<4} {name} {finding.saw}")
    if finding.do:
        click.echo(f"{'':<4} {'':<{NAME_WIDTH}} -> {finding.do}")


def _nothing(_: object) -> None:
    """Print nothing."""
