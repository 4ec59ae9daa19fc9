"""Help texts in the reader's language: those of linedesk's commands, and click's own texts.

A command and an option are defined in English: by a docstring, `help` and `epilog`. They are
translated when they are shown. `scripts/texts` finds them by `extract`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, Any

import click

# click's package has no names for its modules.
import click.core
import click.decorators
import click.exceptions
import click.formatting
import click.parser
import click.shell_completion
import click.termui
import click.types
from click import Command as ClickCommand

from linedesk.runtime.exit_codes import Exit
from linedesk.runtime.language import (
    DEFAULT,
    UnknownLanguage,
    gettext,
    mark,
    of_environment,
    speaking,
)

# Characters that a line of Japanese must not begin with, or end with.
NOT_FIRST = "、。，．・：；？！ー々」』）〕］｝〉》】…ぁぃぅぇぉっゃゅょァィゥェォッャュョ"
NOT_LAST = "「『（〔［｛〈《【"
# A place where a line of Japanese may end: beside a wide character.
WIDE = r"[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]"
BREAK = re.compile(rf"(?<=[^{NOT_LAST}])(?:(?<={WIDE})(?=\S)|(?={WIDE}))(?=[^{NOT_FIRST}])")


def cells(text: str) -> int:
    """The width of a text on a terminal: a Japanese character takes two columns.

    Loading rich for its `cell_len` would take a tenth of the time of `--help`.
    """
    return sum(2 if unicodedata.east_asian_width(one) in "WF" else 1 for one in text)


def wrapped(text: str, width: int) -> str:
    """The text in lines of at most `width` columns, for click to show as they are.

    A text of narrow characters stays as it is: click wraps it. Paragraphs after a line `\\b` have
    lines of their own.
    """
    if cells(text) == len(text):
        return text
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(
        one if one.startswith("\b") else "\b\n" + "\n".join(_lines(one, width))
        for one in paragraphs
    )


def _lines(paragraph: str, width: int) -> Iterator[str]:
    line = ""
    for word in re.split(r"(?<=\s)", " ".join(paragraph.split())):
        for part in _parts(word, width):
            if line and cells(line + part.rstrip()) > width:
                yield line.rstrip()
                line = ""
            line += part
    yield line.rstrip()


def _parts(word: str, width: int) -> Iterator[str]:
    """The parts between which a line may end. A part of narrow characters is cut at the width."""
    for part in BREAK.split(word):
        yield from (part[n : n + width] for n in range(0, len(part), width))


class Formatter(click.HelpFormatter):
    """Wraps Japanese, which has no spaces, by the columns of the terminal."""

    def write_text(self, text: str) -> None:
        """Write paragraphs."""
        super().write_text(wrapped(text, self.width - self.current_indent))

    def write_dl(
        self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2
    ) -> None:
        """Write options or commands, each with its text beside it."""
        told = list(rows)
        first = min(max((len(name) for name, _ in told), default=0), col_max) + col_spacing
        width = max(self.width - first - 2, 10)
        super().write_dl(
            [(name, wrapped(text, width)) for name, text in told], col_max, col_spacing
        )


class HelpContext(click.Context):
    """Formats help by `Formatter`."""

    formatter_class = Formatter


class _Translated:
    """The `help` of a command or an option, translated when it is read."""

    _help: str | None = None

    def _translated(self) -> str | None:
        return gettext(inspect.cleandoc(self._help)) if self._help else self._help

    def _set(self, text: str | None) -> None:
        self._help = text

    help = property(_translated, _set)


class HelpOption(_Translated, click.Option):
    """An option with a translated help text."""


option = partial(click.option, cls=HelpOption)


class _Command(_Translated):
    context_class: type[click.Context] = HelpContext
    epilog: str | None

    def main(self, *arguments: Any, **wishes: Any) -> Any:
        """Run the command in the language of LINEDESK_LANG. Exit code 78 for an unknown one."""
        try:
            language = of_environment() or DEFAULT
        except UnknownLanguage as error:
            click.echo(f"linedesk: {error}", err=True)
            sys.exit(Exit.CONFIG)
        with speaking(language):
            return super().main(*arguments, **wishes)  # type: ignore[misc]

    def get_help_option(self, ctx: click.Context) -> click.Option | None:
        """Return click's `--help`, which keeps the language in which it was made first."""
        found: click.Option | None = super().get_help_option(ctx)  # type: ignore[misc]
        if found is not None:
            found.help = gettext("Show this message and exit.")
        return found

    def get_short_help_str(self, limit: int = 45) -> str:
        """Return the first sentence. click would cut Japanese at its first space."""
        text = self.help or ""
        if cells(text) > len(text):
            return text.partition("\n\n")[0].partition("。")[0]
        short: str = super().get_short_help_str(limit)  # type: ignore[misc]
        return short

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the epilog, translated."""
        if self.epilog:
            formatter.write_paragraph()
            formatter.write_text(inspect.cleandoc(gettext(self.epilog)))


class HelpfulCommand(_Command, ClickCommand):
    """A command whose help is translated. `examples` are its arguments in some examples."""

    def __init__(self, *arguments: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._examples = tuple(examples)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples below the options."""
        super().format_epilog(ctx, formatter)
        if self._examples:
            lines = (f"  linedesk {one}" for one in self._examples)
            formatter.write_paragraph()
            formatter.write_text("\n".join(["\b", gettext("Examples:"), *lines]))


class HelpfulGroup(_Command, click.Group):
    """A group of commands whose help is translated."""


# Texts of click that people meet with our commands.
OF_CLICK = (
    mark("Usage:"),
    mark("Options"),
    mark("Commands"),
    mark("Show this message and exit."),
    mark("Error: {message}"),
    mark("Try '{command} {option}' for help."),
    mark("default: {default}"),
    mark("required"),
    mark("Aborted!"),
    mark("Error: invalid input"),
    mark("Missing command."),
    mark("Missing argument"),
    mark("Missing option"),
    mark("Missing parameter"),
    mark("Missing parameter: {param_name}"),
    mark("No such option {name!r}."),
    mark("No such command {name!r}."),
    mark("Did you mean {possibility}?"),
    mark("(Did you mean one of: {possibilities}?)"),
    mark("Option {name!r} requires an argument."),
    mark("Option {name!r} does not take a value."),
    mark("Got unexpected extra argument ({args})"),
    mark("Got unexpected extra arguments ({args})"),
    mark("Invalid value: {message}"),
    mark("Invalid value for {param_hint}: {message}"),
    mark("{value!r} is not a valid {number_type}."),
    mark("{value} is not in the range {range}."),
    mark("{value!r} is not one of {choices}."),
    mark("Choose from:\n\t{choices}"),
    mark("{name} {filename!r} is a file."),
    mark("{name} {filename!r} is a directory."),
    mark("{name} {filename!r} does not exist."),
    mark("{name} {filename!r} is not readable."),
)


def _ngettext(singular: str, plural: str, count: int) -> str:
    return gettext(singular if count == 1 else plural)


def _have_click_translate() -> None:
    """Make click look up its texts in our catalogue, in place of one of the system's locale."""
    ours: Mapping[str, Any] = {"_": gettext, "ngettext": _ngettext}
    for name, module in list(sys.modules.items()):
        if name.startswith("click."):
            for text, function in ours.items():
                if hasattr(module, text):
                    setattr(module, text, function)


_have_click_translate()


def extract(file: IO[bytes], keywords: Any, tags: Any, options: Any) -> Iterator[Any]:
    """Find texts for Babel: the arguments of `gettext` and `mark`, and help texts.

    A help text is the docstring of a command, which has a decorator with `cls`, or the `help` of a
    function whose name ends with `option`.
    """
    from babel.messages.extract import extract_python

    yield from extract_python(file, keywords, tags, options)
    file.seek(0)
    for node in ast.walk(ast.parse(file.read())):
        text = _help_in(node)
        if text is not None:
            yield getattr(node, "lineno", 1), "gettext", inspect.cleandoc(text), []


def _help_in(node: ast.AST) -> str | None:
    if isinstance(node, ast.FunctionDef) and any(map(_has_class, node.decorator_list)):
        return ast.get_docstring(node)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "").endswith("option"):
        for one in node.keywords:
            if one.arg == "help" and isinstance(one.value, ast.Constant):
                return str(one.value.value)
    return None


def _has_class(decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Call) and any(one.arg == "cls" for one in decorator.keywords)
