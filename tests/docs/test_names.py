"""Each file, test, class and function that a page cites exists, and no page names a private one.

A failure names page and line, what is cited, and what is wrong with it. Mend the page: the citation
follows the code.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOP = ("frontdesk", "dispatcher", "jobworker", "linedesk", "linesim")
FOLDERS = (*TOP, "deploy", "scripts", "bench", "docs", "tests", "requirements")
BESIDE = ("README.md", "README.ja.md", "CONTRIBUTING.md", "tests/README.md")
PAGES = sorted([*ROOT.glob("docs/**/*.md"), *(ROOT / name for name in BESIDE)])
# Not ours, although something of ours has that name: MongoDB's, the SDK's, Prometheus's.
FOREIGN = {"_id", "_headers", "_request_timeout", "_total"}
# Names with these endings are files or units, not modules.
SUFFIXES = ("py", "toml", "target", "service", "socket", "timer", "json", "conf", "mjs", "go")

FENCE = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`([^`]+)`")
LINK = re.compile(r"\]\(([\w./-]+)[#)]")
CITED = re.compile(r"(?P<path>[\w./-]+\.py)?(?:::(?P<name>[\w.]+))?")
PRIVATE = re.compile(r"(?<![\w$*])_[a-z]\w*")
DOTTED = re.compile(rf"({'|'.join(TOP)})(\.\w+)+")
METHOD = re.compile(r"[A-Z]\w*\.\w+")


@dataclass(frozen=True)
class Names:
    """The names that a module defines, and those of each class."""

    own: frozenset[str]
    classes: Mapping[str, frozenset[str]]

    def has(self, name: str) -> bool:
        """Whether `name` is one of them: `function`, `Class` or `Class.method`."""
        first, _, second = name.partition(".")
        return first in self.own and (not second or second in self.classes.get(first, ()))


@cache
def names_of(path: Path) -> Names:
    """The names of a module, private ones too."""
    tree = ast.parse(path.read_text("utf-8"))
    classes = {
        node.name: frozenset(_defined(node.body)) | frozenset(_set_on_self(node))
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
    return Names(frozenset(_defined(tree.body)), classes)


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (one.id for one in targets if isinstance(one, ast.Name))
        elif isinstance(node, ast.ImportFrom):
            yield from (alias.asname or alias.name for alias in node.names)


def _set_on_self(node: ast.ClassDef) -> Iterator[str]:
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Attribute)
            and isinstance(inner.ctx, ast.Store)
            and isinstance(inner.value, ast.Name)
            and inner.value.id == "self"
        ):
            yield inner.attr


@cache
def classes() -> Mapping[str, list[Names]]:
    """The modules of each class of ours."""
    found: dict[str, list[Names]] = {}
    for top in TOP:
        for path in (ROOT / top).rglob("*.py"):
            for name in names_of(path).classes:
                found.setdefault(name, []).append(names_of(path))
    return found


@cache
def private_names() -> frozenset[str]:
    """Each name of ours that begins with one underscore."""
    every = [names_of(path) for top in TOP for path in (ROOT / top).rglob("*.py")]
    found = {name for names in every for name in names.own}
    found |= {name for names in every for inner in names.classes.values() for name in inner}
    return frozenset(name for name in found if name[0] == "_" and name[:2] != "__")


@dataclass(frozen=True)
class Citation:
    """A piece of `code` on a page, and the file that was cited last before it in its line."""

    where: str
    code: str
    file: str | None


def citations(page: Path) -> Iterator[Citation]:
    """The citations of a page outside its blocks of code, in order."""
    text = FENCE.sub(lambda block: "\n" * block[0].count("\n"), page.read_text("utf-8"))
    for number, line in enumerate(text.splitlines(), 1):
        file = None
        for code in CODE.findall(line):
            if (cited := CITED.fullmatch(code)) is not None and cited["path"] is not None:
                file = cited["path"]
            yield Citation(f"{page.relative_to(ROOT)}:{number}", code, file)


def found(file: str) -> Path | None:
    """The file of that name; tests are cited from `tests/` on."""
    return next((path for path in (ROOT / file, ROOT / "tests" / file) if path.is_file()), None)


def wrong_file(one: Citation) -> str | None:
    """Return the fault of a cited file or folder.

    A name without a folder is an example's, but one of ours in tests/README.md.
    """
    path = one.code.partition("::")[0].partition(" ")[0]
    if one.where.startswith("tests/") and re.fullmatch(r"test_\w+\.py", path):
        return None if any((ROOT / "tests").rglob(path)) else "no such test file"
    if "/" not in path or not re.fullmatch(r"[\w./*-]+", path):
        return None
    is_ours = path.partition("/")[0] in FOLDERS or re.fullmatch(r"\w.*\.(py|yml)", path)
    exists = any(any(folder.glob(path)) for folder in (ROOT, ROOT / "tests") if path[0] != "/")
    return "no such file" if is_ours and not exists else None


def wrong_name(one: Citation) -> str | None:
    """Return the fault of a name cited as `file.py::name`, or as `::name` behind a file."""
    cited = CITED.fullmatch(one.code)
    if cited is None or cited["name"] is None:
        return None
    if one.file is None:
        return "no file is cited before it in this line"
    path = found(one.file)
    if path is not None and not names_of(path).has(cited["name"]):
        return f"{one.file} has no {cited['name']}"
    return None


def wrong_module(one: Citation) -> str | None:
    """Return the fault of `package.module.Name`."""
    if not DOTTED.fullmatch(one.code) or one.code.rpartition(".")[2] in SUFFIXES:
        return None
    parts = one.code.split(".")
    for count in range(len(parts), 0, -1):
        folder = ROOT.joinpath(*parts[:count])
        module = folder.with_suffix(".py") if folder.with_suffix(".py").is_file() else None
        module = module or (folder / "__init__.py" if (folder / "__init__.py").is_file() else None)
        if module is not None:
            rest = ".".join(parts[count:])
            known = not rest or names_of(module).has(rest) or _is_in_the_api(parts)
            return None if known else f"{'.'.join(parts[:count])} has no {rest}"
    return "no such module"


def _is_in_the_api(parts: list[str]) -> bool:
    """Whether it is imported lazily by `linedesk`, or a function of the mongo shell's."""
    import linedesk

    shell = (ROOT / "scripts" / "inspect.js").read_text("utf-8")
    return parts[0] == "linedesk" and (
        parts[1] in linedesk.__all__ or re.search(rf"\b{parts[1]}\b", shell) is not None
    )


def wrong_method(one: Citation) -> str | None:
    """Return the fault of `Class.method` of a class of ours."""
    if not METHOD.fullmatch(one.code):
        return None
    owner, _, name = one.code.partition(".")
    owners = classes().get(owner, [])
    if owners and not any(name in names.classes[owner] for names in owners):
        return f"class {owner} has no {name}"
    return None


def named_private(one: Citation) -> str | None:
    """Whether something private of ours is named."""
    private = [
        name
        for name in PRIVATE.findall(one.code)
        if name not in FOREIGN and (name in private_names() or "::" in one.code)
    ]
    return f"{private[0]} is private: name what is public instead" if private else None


CHECKS = (wrong_file, wrong_name, wrong_module, wrong_method, named_private)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_cites_exists_and_is_public(page: Path) -> None:
    problems = [
        f"{one.where}: `{one.code}`: {problem}"
        for one in citations(page)
        for check in CHECKS
        if (problem := check(one)) is not None
    ]
    assert not problems, "\n".join(["mend these lines:", *problems])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_links_to_exists(page: Path) -> None:
    links = set(LINK.findall(FENCE.sub("", page.read_text("utf-8"))))
    assert [link for link in links if not (page.parent / link).exists()] == []


# The way of an event: each line of the lists names a file and where an event enters it.

ARCHITECTURE = ROOT / "docs" / "explanation" / "architecture.md"
STEP = re.compile(r"^\d+\. (.*(?:\n   .*)*)", re.MULTILINE)


def way() -> list[str]:
    """The lines of the way, each with what goes on in the next."""
    section = ARCHITECTURE.read_text("utf-8").partition("\n## The way of an event\n")[2]
    return STEP.findall(section.partition("\n## ")[0])


def missing_in(step: str) -> Iterator[str]:
    """The names in a line that do not exist. A code is a file, or a name in the last file."""
    file, owner = "", ""
    for code in CODE.findall(step):
        cited = CITED.fullmatch(code)
        if cited is not None and cited["path"]:
            file, owner = cited["path"], (cited["name"] or "").partition(".")[0]
            name = cited["name"] or ""
        else:
            name, owner = code, code.partition(".")[0] if "." in code else owner
        path = ROOT / file
        if not path.is_file():
            yield f"no file {file}"
        elif not any(names_of(path).has(one) for one in (name, f"{owner}.{name}") if one):
            yield f"{file} has no {name}"


def test_each_name_in_the_way_of_an_event_exists() -> None:
    steps = way()
    assert len(steps) > 40
    missing = [f"{one}, in: {step}" for step in steps for one in missing_in(step)]
    assert not missing, "\n".join([f"{ARCHITECTURE}, The way of an event:", *missing])
