"""Each promise of docs/explanation/reliability.md has tests that `scripts/test` runs, and each race
tests and guards, each with one anchor.

Whether the tests notice that a guard is missing, `scripts/guards` tries.
"""

import ast
import builtins
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.guards import RACES, ROOT, Anchor, Race, anchors, races, without

LISTED = races(RACES.read_text("utf-8"))
ANCHORS = anchors(ROOT)
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def names_of_tests_in(path: Path) -> set[str]:
    """The names of a file's test functions."""
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, FUNCTIONS)}


def names_in(tree: ast.Module) -> set[str]:
    """All names, attributes and arguments by name."""
    found = set[str]()
    for node in ast.walk(tree):
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str):
                found.add(name)
    return found


def promises() -> dict[str, list[str]]:
    """The tests of one process, or of a model, beside each promise, as file::name."""
    found = {}
    for part in re.split("^### ", RACES.read_text("utf-8"), flags=re.MULTILINE):
        if (name := re.match(r"(G\d+): ", part)) is not None:
            (line,) = re.findall(r"^Tests: (.*)$", part, re.MULTILINE)
            files = [""]
            for path, test in re.findall(r"`([\w/]*(?:\.py)?)::(\w+)`", line):
                files.append(path or files[-1])
                found.setdefault(name[1], []).append(f"{files[-1]}::{test}")
    return found


@pytest.mark.parametrize(("promise", "named"), promises().items())
def test_a_promise_names_tests_of_the_fast_set(promise: str, named: list[str]) -> None:
    for path, _, name in (one.partition("::") for one in named):
        text = (ROOT / "tests" / path).read_text("utf-8")
        (test,) = (
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, FUNCTIONS) and node.name == name
        )
        marks = [ast.unparse(one) for one in test.decorator_list]
        assert "pytest.mark.long" not in marks
        assert "pytestmark = pytest.mark.long" not in text


def test_each_promise_has_tests() -> None:
    assert list(promises()) == [f"G{number}" for number in range(1, 14)]


@pytest.mark.parametrize("race", LISTED, ids=lambda race: race.title)
def test_a_race_names_tests_that_exist_and_guards_or_why_there_is_none(race: Race) -> None:
    assert race.tests
    missing = [
        node
        for node in race.tests
        if node.split("::")[1] not in names_of_tests_in(ROOT / node.split("::")[0])
    ]
    assert missing == []
    assert bool(race.guards) != bool(race.untried)


def test_each_guard_of_the_list_has_one_anchor_and_each_anchor_an_entry() -> None:
    in_code = Counter(anchor.name for anchor in ANCHORS)
    listed = {guard for race in LISTED for guard in race.guards}
    assert in_code == Counter(dict.fromkeys(listed, 1))


@pytest.mark.parametrize("anchor", ANCHORS, ids=lambda anchor: anchor.name)
def test_a_guard_can_be_taken_out(anchor: Anchor) -> None:
    """The replacement uses names of the module only, or the trial would fail because of a name."""
    text = anchor.path.read_text("utf-8")
    before, after = ast.parse(text), ast.parse(without(text, anchor))
    assert ast.dump(after) != ast.dump(before)
    assigned = {
        node.id
        for node in ast.walk(after)
        if isinstance(getattr(node, "ctx", None), ast.Store) and isinstance(node, ast.Name)
    }
    assert names_in(after) - assigned - names_in(before) - set(dir(builtins)) == set()
