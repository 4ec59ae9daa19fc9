"""The output of commands: lists and pages that wrap at the terminal's width.

A line breaks between two cells, and within one only if it is wider than the terminal: no figure and
no id is cut. Without a terminal a line has WIDTH columns. Programs take --json.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from linedesk.operate.format import echo_json, one_line

GAP = "  "
WIDTH = 200

Columns = Mapping[str, Callable[[Any], object]]
"""The cell of a row, by the head of its column. The widest column is the last."""


def width() -> int:
    """The columns of a line."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH


def show_rows(
    rows: Sequence[Any], columns: Columns, *, nothing: str, as_json: bool = False
) -> None:
    """Print a heading and the rows, or a line of JSON each; without rows `nothing`, on stderr."""
    for row in rows if as_json else ():
        echo_json(row)
    if not rows:
        click.echo(nothing, err=True)
    if as_json or not rows:
        return
    heads = [Text(head, "bold") for head in columns]
    lines = [heads, *([_text(cell(row)) for cell in columns.values()] for row in rows)]
    widths = [max(cell.cell_len for cell in cells) for cells in zip(*lines, strict=True)]
    for line in lines:
        show(flowed([*map(_padded, line[:-1], widths), line[-1]], width()))


def show_page(told: Iterable[tuple[str, Iterable[object]]]) -> None:
    """Print labels with their lines."""
    show(page_lines(told, width()))


def page_lines(told: Iterable[tuple[str, Iterable[object]]], columns: int) -> Iterator[Text]:
    """The labels, with their lines beside them."""
    lines_of = [(Text(label, "bold"), [*map(_text, lines)]) for label, lines in told]
    beside = max(label.cell_len for label, _ in lines_of)
    for label, lines in lines_of:
        room = columns - beside - len(GAP)
        parts = [part for line in lines for part in flowed(line.split(GAP), room)]
        for n, part in enumerate(parts or [Text()]):
            yield Text(GAP).join([_padded(Text() if n else label, beside), part])


def flowed(cells: Iterable[Text], columns: int) -> list[Text]:
    """The cells on as few lines as they need; all lines but the first are indented."""
    lines: list[Text] = []
    for cell in cells:
        if lines and lines[-1].cell_len + len(GAP) + cell.cell_len <= columns:
            lines[-1] = Text(GAP).join([lines[-1], cell])
            continue
        for part in cell.wrap(Console(), columns - len(GAP)):
            lines.append(Text.assemble(GAP, part) if lines else part)
    return lines


def show(lines: Iterable[Text]) -> None:
    """Print lines, with colours on a terminal."""
    console = Console()
    for line in lines:
        line.rstrip()
        console.print(line, soft_wrap=True)


def _text(cell: object) -> Text:
    return cell if isinstance(cell, Text) else Text(one_line(cell))


def _padded(cell: Text, columns: int) -> Text:
    """The cell with spaces up to this width; a Japanese character takes two columns."""
    cell.pad_right(columns - cell.cell_len)
    return cell


def who(row: Mapping[str, Any]) -> str:
    """The conversation of a row with channel, key and name: its name in LINE and its id."""
    if not row.get("key"):
        return "-"
    id_ = "/".join(str(row[part]) for part in ("channel", "key") if row.get(part))
    return " ".join(filter(None, (row.get("name"), id_)))


def endpoint_words(endpoint: object) -> str:
    """An endpoint of LINE without the common prefix: `reply`, `push`, `profile/{}`."""
    return str(endpoint or "-").removeprefix("/v2/bot/").removeprefix("message/")
