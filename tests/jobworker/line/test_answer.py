"""The meaning of LINE's answers, by their words."""

import json
import time
from typing import Any

import pytest

from jobworker.line.answer import LineAnswer, masked, named_in, reason_of
from linedesk.store.records.calls import LineReason

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
        (refused(403, message=TOLD.format("to[1]")), [], []),
        (refused(whole=False, message=TOLD.format("to[1]")), [], []),
        (LineAnswer(400, "<html>"), [], []),
    ],
)
def test_the_parts_that_a_400_names(answer: LineAnswer, messages: list[int], to: list[int]) -> None:
    assert (named_in(answer, "messages"), named_in(answer, "to")) == (messages, to)


def reason_told(body: object, status: int = 400, **more: Any) -> LineReason | None:
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return reason_of(LineAnswer(status, text, **more))


def test_the_reason_is_the_message_and_what_it_says_of_each_property() -> None:
    details = [{"message": "May not be empty", "property": "messages[0].text"}, {"message": "Bad"}]
    found = reason_told({"message": "The request body has 2 error(s)", "details": details})
    assert found == LineReason("The request body has 2 error(s)", details)
    assert found.words == (
        "The request body has 2 error(s): messages[0].text May not be empty; Bad"
    )
    assert LineReason.from_document(found.to_document()) == found


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ("User U4af4980629f5d2a1b3c4d5e6f7081920 is gone", "User *** is gone"),
        ('"happy birthday" is no URL', "*** is no URL"),
        ("Unknown value 'happy birthday'", "Unknown value ***"),
        ("Unknown value お誕生日おめでとう", "Unknown value ***"),
        ("https://shop.example/?q=cats is no image", "*** is no image"),
        ("messages[0].template.actions[0].label", "messages[0].template.actions[0].label"),
        ("'it's my address' is wrong", "*** is wrong"),
        ('bad "half of a text', "bad ***"),
        ("\x1b[31mred", "***[31mred"),
    ],
)
def test_line_s_quotations_of_the_request_are_masked(told: str, kept: str) -> None:
    found = reason_told({"message": "no", "details": [{"message": told}]})
    assert found is not None
    assert (masked(told), found.details) == (kept, [{"message": kept}])


def test_an_answer_that_is_no_refusal_by_line_has_no_reason() -> None:
    assert reason_told({"message": "ok"}, 200) is None
    assert reason_told({"message": "cut"}, whole=False) is None
    for body in ("<html>", "[]", "", {"message": 3}, {"error": "x"}, "[" * 100_000):
        assert reason_told(body) is None, body


def test_a_hostile_body_is_masked_in_linear_time() -> None:
    for hostile in ("'" + " " * 250_000 + "'x", "' " * 125_000, '"' * 250_001, "a-" * 125_000):
        began = time.process_time()
        assert reason_told({"message": hostile}) is not None
        # Quadratic patterns took half a minute.
        assert time.process_time() - began < 2
