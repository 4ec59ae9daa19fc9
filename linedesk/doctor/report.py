"""Prints findings: a line each, which wraps at the terminal's width, or JSON for programs.

The levels ok, warn, bad and skip are English in every language, as in JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import click
from rich.cells import cell_len
from rich.text import Text

from linedesk.commands.listing import show_page
from linedesk.doctor.finding import FindingLevel
from linedesk.doctor.round import Result
from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import ngettext

NAME_WIDTH = 19
STYLES: Mapping[FindingLevel, str] = {
    FindingLevel.OK: "green",
    FindingLevel.WARN: "yellow",
    FindingLevel.BAD: "bold red",
    FindingLevel.SKIP: "dim",
}


def show(result: Result) -> None:
    """Print a finding, with its next step below it."""
    finding = result.finding
    name = _(result.name)
    label = f"{finding.state.value:<4} {name}{' ' * (NAME_WIDTH - cell_len(name))}"
    lines = [Text(finding.saw, STYLES[finding.state])]
    show_page([(label, [*lines, f"-> {finding.do}"] if finding.do else lines)])


def conclude(results: Sequence[Result], *, as_json: bool) -> None:
    """Print the summary: a line, or all findings as JSON."""
    states = [one.finding.state for one in results]
    count = {state.value: states.count(state) for state in FindingLevel}
    if as_json:
        checks = [
            {"name": one.name, **vars(one.finding), "state": one.finding.state.value}
            for one in results
        ]
        told = {"counts": count, "checks": checks}
        click.echo(json.dumps(told, ensure_ascii=False, indent=2))
        return
    line = ngettext(
        "{bad} bad, {warn} warning, {ok} ok, {skip} skipped",
        "{bad} bad, {warn} warnings, {ok} ok, {skip} skipped",
        count["warn"],
    )
    click.echo(line.format(**count))
