"""Removes a guard from a copy of this tree, and expects the tests of its race to fail.

A guard is the clause that prevents a race of docs/explanation/reliability.md. A comment marks it:

    # guard: name                 in a line of its own: the next statement goes, with its body
    ...,  # guard: name           at a line's end: the argument, entry or operand in that line goes
    # guard: name -> body         the next statement's body stays, and runs in any case
    # guard: name -> never        the next statement's condition is false
    # guard: name -> if other:    the next statement gets this head
    # guard: name -> other        the next statement becomes this one
    # guard: name ->              the next statement becomes the lines that follow, each of which
    #     other                   has four spaces more than the anchor

The list of races names each guard before its tests. Without names the model of an
answered message goes through its large sizes as well.
"""

import argparse
import ast
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RACES = ROOT / "docs" / "explanation" / "reliability.md"
# The tests of one entry take a few seconds; a thread without its guard may wait for ever.
TEST_SECONDS = 60
ROW_SECONDS = 400

# Its small sizes, and each of its guards, are tests (`test_commit_model.py`).
LARGE_MODEL = [sys.executable, "-m", "tests.dispatcher.commit.commit_model"]

ANCHOR = re.compile(r"(?P<before>.*?)#\s*guard: (?P<name>[a-z0-9-]+)(?P<arrow> ->)?(?P<code>.*)")
CODE = re.compile(r"`([^`]+)`")
# - Race (danger): what prevents it. `guard`, or why there is none: `tests`
ENTRY = re.compile(
    r"- (?P<title>.+?) \((?P<danger>.+?)\): (?P<prevents>.+)\. (?P<guards>[^:]+): (?P<tests>`.+)"
)


@dataclass(frozen=True)
class Race:
    """One entry of the list: its title, its tests, and its guards."""

    title: str
    tests: tuple[str, ...]
    guards: tuple[str, ...]
    untried: str
    """Why there is no guard to take out; empty where there is."""


@dataclass(frozen=True)
class Anchor:
    """The place of a guard, by line number from 0, and the replacement of its clause."""

    name: str
    path: Path
    line: int
    becomes: tuple[str, ...]
    is_trailing: bool


class Ended(Enum):
    """How the tests of an entry ended."""

    PASSED = "PASSED"
    FAILED = "FAILED"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True)
class Verdict:
    """How a trial ended."""

    guard: str
    words: str
    is_good: bool
    seconds: float


def races(page: str) -> list[Race]:
    """The entries of the page's list of races."""
    section = page.split("\n## The races\n")[1].split("\n## ")[0]
    return [_race(line) for line in section.splitlines() if line.startswith("- ")]


def _race(line: str) -> Race:
    found = ENTRY.fullmatch(line)
    assert found is not None, line
    names = tuple(CODE.findall(found["guards"]))
    untried = "" if names else found["guards"]
    return Race(found["title"], tuple(_tests(found["tests"])), names, untried)


def _tests(cell: str) -> Iterator[str]:
    """Node ids; `::test` stands for the file before it."""
    file = ""
    for code in CODE.findall(cell):
        path, _, test = code.partition("::")
        file = path or file
        yield f"tests/{file}::{test}"


def anchors(root: Path) -> list[Anchor]:
    """All anchors in the product's code."""
    found = []
    for path in _sources(root):
        text = path.read_text("utf-8")
        if "# guard: " in text:
            found.extend(anchors_in(path, text.splitlines()))
    return found


def _files(root: Path) -> list[Path]:
    """The files of git and the untracked ones, in their present state."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    names = filter(None, listed.stdout.split("\0"))
    return [Path(name) for name in sorted(names) if (root / name).exists()]


def _sources(root: Path) -> list[Path]:
    product = (path for path in _files(root) if path.parts[0] not in ("tests", "bench"))
    return [root / path for path in product if path.suffix == ".py"]


def anchors_in(path: Path, lines: Sequence[str]) -> Iterator[Anchor]:
    """The anchors of one module, by its lines."""
    for number, line in enumerate(lines):
        found = ANCHOR.fullmatch(line)
        if found is None:
            continue
        code, before = found["code"].strip(), found["before"]
        becomes = [code] if code else []
        if found["arrow"] and not code:
            start = f"{before}#     "
            after = iter(lines[number + 1 :])
            for further in after:
                if not further.startswith(start):
                    break
                becomes.append(further.removeprefix(start))
        yield Anchor(found["name"], path, number, tuple(becomes), bool(before.strip()))


def without(text: str, anchor: Anchor) -> str:
    """The module's text with the guard taken out."""
    lines = text.splitlines()
    if anchor.is_trailing:
        _take_part_out(lines, anchor.line)
    else:
        _change_statement(text, lines, anchor)
    changed = "\n".join(lines) + "\n"
    compile(changed, str(anchor.path), "exec")
    return changed


def _take_part_out(lines: list[str], number: int) -> None:
    """An argument, an entry or an operand has its line to itself."""
    code = lines[number].split("# guard: ")[0].rstrip()
    following = lines[number + 1].lstrip()
    first = re.match(r"(and|or) ", following)
    if first is not None and not code.endswith(","):
        lines[number + 1] = following[first.end() :]
    elif not code.endswith(",") and not re.match(r"\s*(and|or) ", code):
        raise SystemExit(f"guards: neither an entry nor an operand: {code.strip()}")
    del lines[number]


def _change_statement(text: str, lines: list[str], anchor: Anchor) -> None:
    statement = _statement_after(text, anchor)
    first, last = statement.lineno - 1, statement.end_lineno or 0
    indent = " " * statement.col_offset
    becomes = list(anchor.becomes) or ["pass"]
    body = getattr(statement, "body", None)
    word = becomes[0]
    if word == "body":
        assert body is not None, f"{anchor.name}: no body to keep"
        lines[first:last] = _indented(lines[_head_end(body) : body[-1].end_lineno], indent)
    elif word == "never" or (word.endswith(":") and len(becomes) == 1):
        assert body is not None, f"{anchor.name}: no head to replace"
        head = "if False:" if word == "never" else word
        prefix = "el" if lines[first].lstrip().startswith("elif") else ""
        lines[first : _head_end(body)] = [indent + prefix + head]
    else:
        lines[first:last] = _indented(becomes, indent)


def _statement_after(text: str, anchor: Anchor) -> ast.stmt:
    statements = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    after = [one for one in statements if one.lineno - 1 > anchor.line]
    return min(after, key=lambda one: (one.lineno, one.col_offset))


def _head_end(body: Sequence[ast.stmt]) -> int:
    """The index of the body's first line."""
    return body[0].lineno - 1


def _indented(lines: Sequence[str], indent: str) -> list[str]:
    return textwrap.indent(textwrap.dedent("\n".join(lines)), indent).splitlines()


class Trials:
    """Tries guards in copies of the tree, several at once."""

    def __init__(self, home: Path, *, at_once: int) -> None:
        self._copies: queue.Queue[Path] = queue.Queue()
        for number in range(at_once):
            self._copies.put(_copy_of(ROOT, home / f"copy{number}"))

    def run(self, anchor: Anchor, tests: Sequence[str]) -> Verdict:
        """The tests have to pass with the guard, and one of them to fail without it."""
        began = time.monotonic()
        copy = self._copies.get()
        try:
            words, is_good = self._run(copy, anchor, tests)
        finally:
            self._copies.put(copy)
        return Verdict(anchor.name, words, is_good, time.monotonic() - began)

    def _run(self, copy: Path, anchor: Anchor, tests: Sequence[str]) -> tuple[str, bool]:
        ended, words = _pytest(copy, tests)
        if ended is not Ended.PASSED:
            return f"{ended.value} WITH THE GUARD: {words}", False
        path = copy / anchor.path.relative_to(ROOT)
        text = path.read_text("utf-8")
        path.write_text(without(text, replace(anchor, path=path)), "utf-8")
        try:
            ended, words = _pytest(copy, tests)
        finally:
            path.write_text(text, "utf-8")
        if ended is Ended.FAILED:
            return f"noticed: {words}", True
        return f"NOT NOTICED, {ended.value}: {words}", False


def _copy_of(root: Path, copy: Path) -> Path:
    for path in _files(root):
        (copy / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / path, copy / path)
    (copy / ".venv").symlink_to(root / ".venv")
    return copy


def _pytest(copy: Path, tests: Sequence[str]) -> tuple[Ended, str]:
    """How the tests ended, with details."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", f"--timeout={TEST_SECONDS}"]
    # What scripts/test runs has to notice it.
    options += ["-m", "not long"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=copy,
        env={**os.environ, "PYTHONPATH": str(copy)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=ROW_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return Ended.FAILED, f"no end within {ROW_SECONDS} s"
    summary = output.strip().splitlines()[-1]
    if process.returncode == 1:
        failed = re.search(r"^(?:FAILED|ERROR) \S+?::(\S+)", output, re.MULTILINE)
        return Ended.FAILED, failed[1] if failed else summary
    # Skipped tests and tests that cannot be loaded try nothing.
    is_whole = process.returncode == 0 and "skipped" not in summary
    return Ended.PASSED if is_whole else Ended.NOT_RUN, summary


def main(arguments: Sequence[str]) -> int:
    """Try the named guards, or all; returns 1 if the removal of one is not noticed."""
    parser = argparse.ArgumentParser(prog="scripts/guards", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="name", help="guards to try; all by default")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="2 by default")
    parser.add_argument("--list", action="store_true", help="list guards and tests, try nothing")
    given = parser.parse_args(arguments)
    tests = _tests_by_guard()
    found = {anchor.name: anchor for anchor in anchors(ROOT)}
    names = given.names or list(tests)
    unknown = [name for name in names if name not in tests or name not in found]
    if unknown:
        parser.error(f"no anchor, or no entry in the races: {', '.join(unknown)}")
    if given.list:
        for name in names:
            place = f"{found[name].path.relative_to(ROOT)}:{found[name].line + 1}"
            print(name, place, *tests[name], sep="\n    ")
        return 0
    with tempfile.TemporaryDirectory(prefix="guards-") as home:
        trials = Trials(Path(home), at_once=given.at_once)
        with ThreadPoolExecutor(given.at_once) as pool:
            running = [pool.submit(trials.run, found[name], tests[name]) for name in names]
            verdicts = [_told(one.result()) for one in running]
    bad = [one.guard for one in verdicts if not one.is_good]
    print(f"{len(verdicts) - len(bad)} of {len(verdicts)} guards are noticed", *bad, sep="\n    ")
    model = 0 if given.names else subprocess.run(LARGE_MODEL, cwd=ROOT, check=False).returncode
    return 1 if bad or model else 0


def _tests_by_guard() -> dict[str, list[str]]:
    """The tests of all entries that name a guard, in the page's order."""
    tests: dict[str, list[str]] = {}
    for race in races(RACES.read_text("utf-8")):
        for guard in race.guards:
            known = tests.setdefault(guard, [])
            known.extend(test for test in race.tests if test not in known)
    return tests


def _told(verdict: Verdict) -> Verdict:
    print(f"{verdict.guard:32} {verdict.seconds:4.0f} s  {verdict.words}", flush=True)
    return verdict


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
