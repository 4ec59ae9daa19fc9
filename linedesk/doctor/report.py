"""How findings are shown: as they come on a terminal, plain in a pipe, as JSON for programs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linedesk.doctor.finding import FindingLevel, skip
from linedesk.doctor.round import Result

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
    """What is told before a check, by its name, and what after it.

    On a terminal it shows what is looked at; as JSON nothing is told before the end.
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
            yield lambda name: status.update(f"looking at {name}"), gathering.take


class Gathering:
    """Shows results as they come; neighbours that were skipped for the same reason as one.

    So what is bad is not lost between them.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self._skipped: list[Result] = []

    def __enter__(self) -> Gathering:
        return self

    def __exit__(self, *unused: object) -> None:
        self._show_skipped()

    def take(self, result: Result) -> None:
        """Show it, at once or with the next ones."""
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
            names = ", ".join(result.name for result in self._skipped)
            found = self._skipped[0].finding
            merged = skip(f"{found.saw} ({names})", found.do)
            self._show(Result(f"{len(self._skipped)} checks", merged))
        self._skipped = []


def conclude(results: Sequence[Result], *, as_json: bool) -> None:
    """What stands below them all."""
    told = summary(results)
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    count = told["counts"]
    click.echo(
        f"{count['bad']} bad, {count['warn']} warning{'' if count['warn'] == 1 else 's'}, "
        f"{count['ok']} ok, {count['skip']} skipped"
    )


def summary(results: Sequence[Result]) -> dict[str, Any]:
    """The findings for a program."""
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
    """One line of the table on a terminal, folded to its width."""
    finding = result.finding
    symbol, style = SYMBOLS[finding.state]
    text = Text(finding.saw)
    if finding.do:
        text.append(f"\n→ {finding.do}", style="" if finding.state is FindingLevel.SKIP else "bold")
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(width=NAME_WIDTH)
    table.add_column(overflow="fold")
    table.add_row(Text(symbol, style=style), Text(result.name), text)
    return table


def _echo(result: Result) -> None:
    finding = result.finding
    click.echo(f"{finding.state.value:<4} {result.name:<{NAME_WIDTH}} {finding.saw}")
    if finding.do:
        click.echo(f"{'':<4} {'':<{NAME_WIDTH}} -> {finding.do}")


def _nothing(_: object) -> None:
    """In a pipe, nobody watches."""
