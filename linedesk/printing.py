"""What commands print: JSON for programs, tabs for a pipe, labelled lines for people.

What people wrote goes to no terminal as it is: that would obey the control characters in it.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

LABEL_WIDTH = 13
# They turn the rest of a line round: embeddings, overrides, isolates.
TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def echo_json(told: Mapping[str, Any]) -> None:
    """One JSON object on one line."""
    click.echo(json.dumps(told, ensure_ascii=False, default=plain))


def plain(value: Any) -> str:
    """What JSON has no form for: times with this machine's zone, ids as their text."""
    return value.astimezone().isoformat() if isinstance(value, datetime) else str(value)


def visible(text: str) -> str:
    """Without control characters, which a terminal would obey."""
    return "".join(
        f"\\x{ord(c):02x}"
        if c in TURNING or (unicodedata.category(c) == "Cc" and c not in "\n\t")
        else c
        for c in text
    )


def one_line(value: object) -> str:
    """The same of whatever it is, on one line and without a tab."""
    return visible(str(value)).replace("\t", " ").replace("\n", " ")


def tabbed(cells: Iterable[object]) -> str:
    """One row for a pipe."""
    return "\t".join(one_line(cell) for cell in cells)


def show_page(told: Iterable[tuple[str, Iterable[str]]]) -> None:
    """Labels and their lines, folded to the width of a terminal, and not at all in a pipe."""
    lines_of = [(label, list(lines)) for label, lines in told]
    if not sys.stdout.isatty():
        for label, lines in lines_of:
            for n, line in enumerate(lines):
                click.echo(f"{'' if n else label:<{LABEL_WIDTH}} {visible(line)}".rstrip())
        return
    table = Table.grid(padding=(0, 1))
    table.add_column(width=LABEL_WIDTH)
    table.add_column(overflow="fold")
    for label, lines in lines_of:
        table.add_row(Text(label, style="bold"), Text(visible("\n".join(lines))))
    Console().print(table)
