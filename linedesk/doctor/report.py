"""Prints findings: a table on a terminal, lines in a pipe, JSON for programs.

The levels ok, warn, bad and skip in a pipe are English in every language, as in JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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

Begin = Callable[[str], None]
Show = Callable[[Result], None]


@contextmanager
def showing(*, as_json: bool) -> Iterator[tuple[Begin, Show]]:
    """Return what to call before each check, with its name, and after it, with its result.

    A terminal shows the name of the running check. With `as_json` both do nothing.
    """
    if as_json:
        yield _nothing, _nothing
    elif not sys.stdout.isatty():
        with Gathering(_echo) as gathering:
            yield _nothing, gathering.take
    else:
        console = Console()
        with (
            console.status("") as status,
            Gathering(lambda result: console.print(row(result))) as gathering,
        ):
            yield (
                lambda name: status.update(_("checking {name}").format(name=_(name))),
                gathering.take,
            )


class Gathering:
    """Shows results one by one, but consecutive skips for the same reason as one line."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._skipped: list[Result] = []

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, *unused: object) -> None:
        self._show_skipped()

    def take(self, result: Result) -> None:
        """Show a result, at once or together with the next ones."""
        if self._skipped and self._skipped[0].finding != result.finding:
            self._show_skipped()
        if result.finding.state is FindingLevel.SKIP:
            self._skipped.append(result)
        else:
            self._show(result)

    def _show_skipped(self) -> None:
        if len(self._skipped) == 1:
            self._show(self._skipped[0])
        elif self._skipped:
            names = ", ".join(_(result.name) for result in self._skipped)
            found = self._skipped[0].finding
            merged = skip(f"{found.saw} ({names})", found.do)
            count = _("{count} checks").format(count=len(self._skipped))
            self._show(Result(count, merged))
        self._skipped = []


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
