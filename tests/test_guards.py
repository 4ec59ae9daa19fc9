"""The replacement of a clause that `scripts/guards` removes (tests/guards.py)."""

from tests.dispatcher.commit.commit_model import GUARDS
from tests.guards import ROOT, anchors

# Guards of the model of groups that are no single line of the code.
NO_LINE = {
    "found-call-was-tried": "a call that memory does not have as its own is an old one",
    "end-after-the-verdict": "the end is made of LINE's answer",
}


def test_each_guard_of_the_model_is_in_the_code_or_has_a_reason_why_not() -> None:
    in_code = {anchor.name for anchor in anchors(ROOT)}
    assert sorted(set(GUARDS) - in_code) == sorted(NO_LINE)
