"""The replacement of a clause that `scripts/guards` removes (tests/guards.py)."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from tests.dispatcher.commit.commit_model import GUARDS
from tests.guards import ROOT, anchors, anchors_in, races, without

# Guards of the model of groups that are no single line of the code.
NO_LINE = {
    "found-call-was-tried": "a call that memory does not have as its own is an old one",
    "end-after-the-verdict": "the end is made of LINE's answer",
}


def taken_out(code: str) -> str:
    text = textwrap.dedent(code)
    (anchor,) = anchors_in(Path("some.py"), text.splitlines())
    return "\n".join(line for line in without(text, anchor).splitlines() if "guard:" not in line)


@pytest.mark.parametrize(
    ("directive", "expected"),
    [
        ("", "pass"),
        (" -> body", "return 2"),
        (" -> never", "if False:\n        return 2"),
        (" -> if b:", "if b:\n        return 2"),
        (" -> return 3", "return 3"),
    ],
)
def test_a_statement(directive: str, expected: str) -> None:
    code = f"def f(a, b):\n    # guard: x{directive}\n    if a:\n        return 2\n    return 1\n"
    assert taken_out(code) == f"def f(a, b):\n    {expected}\n    return 1"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["f(", "    a,", "    b,  # guard: x", ")"], "f(\n    a,\n)"),
        (["(", "    a  # guard: x", "    and b", ")"], "(\nb\n)"),
        (["(", "    a", "    and b  # guard: x", ")"], "(\n    a\n)"),
    ],
)
def test_a_part_that_has_its_line_to_itself(lines: list[str], expected: str) -> None:
    assert taken_out("\n".join(lines)) == expected


def test_a_row_names_tests_and_guards() -> None:
    head = "| race | what could go wrong | what prevents it | staged by | guard |\n| --- | --- |\n"
    rows = "| a | b | c | `d/e.py::f`, `::g` | `h`, `i` |\n| j | k | l | `m.py::n` | too slow |\n"
    one, other = races(f"# P\n\n## The races\n\n{head}{rows}\n## Next\n")
    assert one.tests == ("tests/d/e.py::f", "tests/d/e.py::g")
    assert (one.guards, one.untried) == (("h", "i"), "")
    assert (other.guards, other.untried) == ((), "too slow")


def test_each_guard_of_the_model_is_in_the_code_or_has_a_reason_why_not() -> None:
    in_code = {anchor.name for anchor in anchors(ROOT)}
    assert sorted(set(GUARDS) - in_code) == sorted(NO_LINE)
