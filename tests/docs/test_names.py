"""Each file, and each name in a file, that a page cites exists; so does what a page links to.

A failure names page and line. Mend the page: the citation follows the code.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = ("frontdesk", "dispatcher", "jobworker", "linedesk", "linemessages", "linesim")
FOLDERS = (*TOP, "deploy", "scripts", "bench", "docs", "tests", "requirements")
BESIDE = ("README.md", "README.ja.md", "CONTRIBUTING.md", "tests/README.md")
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in BESIDE)])
FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CITED = re.compile(r"`(?P<path>[\w./*-]+/[\w./*-]+|[\w-]+\.py)?(?:::(?P<name>[\w.]+))?`")
LINK = re.compile(r"\]\(([\w./-]+)[#)]")


@cache
def names_of(path: Path) -> frozenset[str]:
    """The names that a module defines, methods as `Class.method`."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        name = getattr(node, "name", None)
        inner = [
            f"{name}.{each.name}" for each in getattr(node, "body", ()) if hasattr(each, "name")
        ]
        assigned = ast.walk(node) if isinstance(node, ast.Assign | ast.AnnAssign) else ()
        found |= {name, *inner, *(one.id for one in assigned if isinstance(one, ast.Name))}
    return frozenset(found - {None})


def wrong(page: Path) -> Iterator[str]:
    """The citations outside blocks of code that lead nowhere; `::name` goes by the last file."""
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"))
    for number, line in enumerate(text.splitlines(), 1):
        file = ""
        for cited in CITED.finditer(line):
            path, name = cited["path"], cited["name"]
            file = path or file
            places = [ROOT / file, ROOT / "tests" / file]
            is_ours = "/" in file and (file.partition("/")[0] in FOLDERS or file.endswith(".py"))
            if (
                path
                and is_ours
                and not any(any(ROOT.glob(f"{top}{path}")) for top in ("", "tests/"))
            ):
                yield f"{page.relative_to(ROOT)}:{number}: no file {path}"
            module = next((one for one in places if one.is_file()), None)
            if name and (not file or (module and name not in names_of(module))):
                yield f"{page.relative_to(ROOT)}:{number}: {file} has no {name}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_cites_and_links_to_exists(page: Path) -> None:
    assert list(wrong(page)) == []
    links = set(LINK.findall(FENCE.sub("", page.read_text("utf-8"))))
    assert [link for link in links if not (page.parent / link).exists()] == []
