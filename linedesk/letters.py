"""How dead letters are shown: a table on a terminal, tabs in a pipe, JSON for programs.

What people wrote shows only where it is asked for: neither message text nor the words of an
error, which may quote it, stand in a list.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from console.letters import Letter, frames, replayed, summary, what
from console.words import local
from linedesk.printing import echo_json, one_line, plain, tabbed, visible

COLUMNS = ("id", "last", "what", "key", "cause", "tries", "replayed")


def show_list(letters: Iterable[Letter], *, as_json: bool) -> None:
    """Print a line a letter to stdout."""
    if as_json:
        for letter in letters:
            echo_json(summary(letter))
    elif sys.stdout.isatty():
        table = Table(*COLUMNS, box=None, pad_edge=False)
        for letter in letters:
            table.add_row(*(Text(one_line(cell), overflow="fold") for cell in _cells(letter)))
        Console().print(table)
    else:
        click.echo("\t".join(COLUMNS))
        for letter in letters:
            click.echo(tabbed(_cells(letter)))


def show_one(letter: Letter, *, text: bool, as_json: bool) -> None:
    """Print all that is known of a letter; what people wrote only with `text`."""
    told = summary(letter)
    if text:
        told |= {name: letter[name] for name in ("document", "effect") if name in letter}
    told["traceback"] = letter.get("traceback") if text else frames(letter.get("traceback"))
    if as_json:
        echo_json(told)
        return
    times = {"firstAt": local(letter.get("firstAt")), "lastAt": local(letter.get("lastAt"))}
    if letter.get("replayedAt"):
        times["replayedAt"] = local(letter["replayedAt"])
    for name, value in (told | times).items():
        for line in _lines(name, value):
            click.echo(visible(line))


def _cells(letter: Letter) -> Sequence[object]:
    return (
        letter["_id"],
        local(letter.get("lastAt")),
        what(letter),
        letter.get("key", "-"),
        letter.get("cause", "-"),
        letter.get("attempts", "-"),
        replayed(letter),
    )


def _lines(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        value = "\n" + json.dumps(value, ensure_ascii=False, indent=2, default=plain)
    elif isinstance(value, str) and "\n" in value:
        value = "\n" + value
    yield f"{name:<11} {'-' if value is None else value}"
