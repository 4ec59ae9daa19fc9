#!/usr/bin/env python3
"""Reports sentences whose subject is nobody, somebody, whoever, who, what or he.

It reads the tracked pages, docstrings, comments, texts in code, templates, units and scripts. A
sentence needs a part of the system, the operator or the bot author as its subject. Questions and
headings may begin with "What" and "Who". Exit code 1 where anything is found.

Usage: python scripts/plain_english.py [FILE...]
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARKED = {".md", ".html"}
COMMENTED = {"", ".sh", ".bash", ".service", ".socket", ".timer", ".target", ".toml", ".conf"}
COMMENTED |= {".yml", ".yaml", ".js", ".mjs", ".css", ".cfg"}
# Texts of others, and generated files.
LEFT_OUT = re.compile(r"^(LICENSE|tests/line-openapi/|requirements/|docs/ja/|README\.ja\.md)")

ANYWHERE = re.compile(r"\b(nobody|somebody|whoever)\b(?!:)", re.IGNORECASE)
# After the start of a text, or after the end of a sentence.
FIRST = re.compile(
    r"(?:^|[.!?;:]['\"”)]*\s+)((?:Who|What|He|His)|(?<=[;:] )(?:who|what|he))\s[^.!?]*"
)
FENCE = re.compile(r"^ *```.*?^ *```$|<!--.*?-->|<(script|style)\b.*?</\1>", re.M | re.S)
COMMENT = re.compile(r"^\s*(?:#|//|/\*|\*)\s?(.*)$")

Text = tuple[int, str]


def texts_of(path: Path) -> Iterator[Text]:
    """Each text of the file with the number of its first line."""
    source = path.read_text("utf-8")
    if path.suffix == ".py":
        yield from _of_python(source)
    elif path.suffix in MARKED:
        yield from _of_page(source)
    elif path.suffix in COMMENTED:
        yield from _of_comments(source)


def complaints_of(text: str) -> Iterator[str]:
    """The sentences of a text whose subject is not a part of the system or a person."""
    plain = " ".join(re.sub(r"`[^`]*`|\{[{%].*?[%}]\}", "`code`", text).split())
    for found in ANYWHERE.finditer(plain):
        yield plain[max(0, found.start() - 40) : found.end() + 40]
    for found in FIRST.finditer(plain):
        if plain[found.end() : found.end() + 1] != "?":
            yield plain[found.start(1) : found.start(1) + 80]


def _of_python(source: str) -> Iterator[Text]:
    yield from _joined(
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    )
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.lineno, node.name.replace("_", " ")


def _of_page(source: str) -> Iterator[Text]:
    source = FENCE.sub(lambda block: "\n" * block[0].count("\n"), source)
    for number, paragraph in _paragraphs(source):
        if paragraph.lstrip().startswith("#"):
            continue
        yield from ((number, cell) for cell in re.split(r"\||<[^>]+>", paragraph))


def _paragraphs(source: str) -> Iterator[Text]:
    """Paragraphs, items of lists, rows of tables and headings."""
    first, lines = 1, list[str]()
    for number, line in enumerate([*source.splitlines(), ""], 1):
        if not line.strip() or re.match(r"\s*([-*|#]|\d+\.)", line):
            if lines:
                yield first, re.sub(r"^\s*([-*]|\d+\.)\s+", "", " ".join(lines))
            first, lines = number, []
        lines.append(line)


def _of_comments(source: str) -> Iterator[Text]:
    yield from _joined(
        (number, found[1])
        for number, line in enumerate(source.splitlines(), 1)
        if (found := COMMENT.match(line)) is not None
    )


def _joined(lines: Iterator[Text]) -> Iterator[Text]:
    """Comments on neighbouring lines as one text."""
    first, last, parts = 0, -1, list[str]()
    for number, text in lines:
        if number != last + 1 and parts:
            yield first, " ".join(parts)
            parts = []
        first, last = (number if not parts else first), number
        parts.append(text)
    if parts:
        yield first, " ".join(parts)


def tracked() -> list[Path]:
    """The files of the project that have texts."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.split("\0") if name and not LEFT_OUT.match(name)]
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def main() -> int:
    """The exit code."""
    paths = [Path(name).resolve() for name in sys.argv[1:]] or tracked()
    count = 0
    for path in paths:
        if path == Path(__file__).resolve() or path.suffix not in MARKED | COMMENTED | {".py"}:
            continue
        for number, text in texts_of(path):
            for complaint in complaints_of(text):
                print(f"{path.relative_to(ROOT)}:{number}: {complaint}")  # noqa: T201
                count += 1
    if count:
        print(f"{count} sentences have no part of the system as their subject", file=sys.stderr)  # noqa: T201
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
