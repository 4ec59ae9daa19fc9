"""What LINE's answers say, by their words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobworker.line.answer import LineAnswer, named_in

TOLD = "The property, {}, in the request body is invalid (line: -, column: -)"


def refused(status: int = 400, *, whole: bool = True, **body: Any) -> LineAnswer:
    return LineAnswer(status, json.dumps(body), whole=whole)


@pytest.mark.parametrize(
    ("answer", "messages", "to"),
    [
        (refused(details=[{"property": "messages[1].text"}]), [1], []),
        (refused(details=[{"property": f"messages[{n}].text"} for n in (3, 0, 3)]), [0, 3], []),
        (refused(details=[{"property": "to[12]"}]), [], [12]),
        # The example of LINE's reference for a multicast.
        (refused(message=TOLD.format("to[1]")), [], [1]),
        (refused(message=TOLD.format("messages[0]"), details=[]), [0], []),
        (refused(message="A text may say to[1], and names nothing"), [], []),
        (refused(message="The request body has 1 error(s)"), [], []),
        (refused(message=["to[1]"], details=[{"property": 1}, "to[1]"]), [], []),
        (refused(details={"property": "to[1]"}), [], []),
        (refused(403, message=TOLD.format("to[1]")), [], []),
        (refused(whole=False, message=TOLD.format("to[1]")), [], []),
        (LineAnswer(400, "<html>"), [], []),
        (LineAnswer(400, "[]"), [], []),
    ],
)
def test_what_a_400_names(answer: LineAnswer, messages: list[int], to: list[int]) -> None:
    assert (named_in(answer, "messages"), named_in(answer, "to")) == (messages, to)
