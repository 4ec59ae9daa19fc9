"""Lists and pages for operators: a table as wide as the terminal, and tabs in a pipe.

On a terminal an id is never cut or folded: other columns fold, and the least important are left
out. A pipe gets every column in full.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import click
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from linedesk.operate.format import one_line, tabbed, visible

GAP = 1
LABEL_WIDTH = 13
# A terminal of fewer columns gets the columns `narrow`.
NARROW_BELOW = 100


@dataclass(frozen=True)
class Column:
    """One column: its head, and its cell of a row."""

    head: str
    cell: Callable[[Any], object]
    fold: int = 0
    """The least width to which it may be folded; 0: it is never folded."""
    left_out: int = 0
    """On a narrow terminal columns with the highest number are left out first; 0: it stays."""
    style: Callable[[Any], str] = lambda row: ""


def show_rows(
    rows: Sequence[Any],
    *,
    screen: Sequence[Column],
    narrow: Sequence[Column] = (),
    pipe: Sequence[Column],
    nothing: str,
) -> None:
    """Print one line for each row, with the columns for a terminal or those for a pipe.

    A narrow terminal gets the columns `narrow`, if there are any. Without rows `nothing` is printed
    to stderr, and a terminal gets no heading.
    """
    if not rows:
        click.echo(nothing, err=True)
    if not sys.stdout.isatty():
        click.echo(tabbed(column.head for column in pipe))
        for row in rows:
            click.echo(tabbed(column.cell(row) for column in pipe))
        return
    if not rows:
        return
    console = Console()
    columns = narrow if narrow and console.width < NARROW_BELOW else screen
    table, width = _table(rows, columns, console.width)
    # A table that is too wide is folded by the terminal: an id is not cut.
    Console(width=max(width, console.width)).print(table)


def show_page(told: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Print labels and their lines, folded to the width of a terminal; a pipe gets whole lines."""
    lines_of = [(label, list(lines)) for label, lines in told]
    if not sys.stdout.isatty():
        for label, lines in lines_of:
            for n, line in enumerate(lines):
                click.echo(f"{padded('' if n else label, LABEL_WIDTH)} {visible(line)}".rstrip())
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL_WIDTH)
    table.add_column(overflow="fold")
    for label, lines in lines_of:
        table.add_row(Text(label, style="bold"), Text(visible("\n".join(lines))))
    Console().print(table)


def padded(text: str, width: int) -> str:
    """The text with spaces up to this width; a Japanese character takes two columns."""
    return text + " " * max(0, width - cell_len(text))


def _table(rows: Sequence[Any], columns: Sequence[Column], width: int) -> tuple[Table, int]:
    """Return the table and its width."""
    cells = {column.head: [one_line(column.cell(row)) for row in rows] for column in columns}
    natural = {
        head: max(map(cell_len, [head, *column_cells])) for head, column_cells in cells.items()
    }
    shown = _that_fit(columns, natural, width)
    widths = _widths(shown, natural, width)
    table = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
    for column in shown:
        table.add_column(column.head, width=widths[column.head], overflow="fold")
    for n, row in enumerate(rows):
        table.add_row(*(Text(cells[one.head][n], style=one.style(row)) for one in shown))
    return table, _sum(widths.values())


def _that_fit(columns: Sequence[Column], natural: dict[str, int], width: int) -> Sequence[Column]:
    shown = list(columns)
    while _sum(_least(one, natural) for one in shown) > width:
        first = max(shown, key=lambda one: one.left_out)
        if not first.left_out:
            break
        shown.remove(first)
    return shown


def _least(column: Column, natural: dict[str, int]) -> int:
    return min(column.fold or natural[column.head], natural[column.head])


def _widths(shown: Sequence[Column], natural: dict[str, int], width: int) -> dict[str, int]:
    """Give the rest of the width to the columns that would fold, from left to right."""
    widths = {one.head: _least(one, natural) for one in shown}
    left = width - _sum(widths.values())
    for head in widths:
        more = min(max(0, left), natural[head] - widths[head])
        widths[head] += more
        left -= more
    return widths


def _sum(widths: Iterable[int]) -> int:
    found = list(widths)
    return sum(found) + GAP * (len(found) - 1)


def moment(at: datetime | None) -> str:
    """Day and time in this machine's zone, which the column's head names."""
    return at.astimezone().strftime("%m-%d %H:%M:%S") if at is not None else "-"


def lately(at: datetime | None) -> str:
    """The same for a narrow terminal: today's moments without the day, others without seconds."""
    if at is None:
        return "-"
    own = at.astimezone()
    is_today = own.date() == datetime.now(own.tzinfo).date()
    return own.strftime("%H:%M:%S" if is_today else "%m-%d %H:%M")


def zoned(head: str) -> str:
    """The head of a column of moments, with the zone."""
    return f"{head} ({datetime.now().astimezone().tzname()})"
