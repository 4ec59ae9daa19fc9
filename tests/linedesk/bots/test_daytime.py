"""Times of day as people write them."""

from __future__ import annotations

import time

import pytest

from linedesk.bots.daytime import HOUR, MINUTE, answer_to, only_a_time, part_of_time, whole_time


@pytest.mark.parametrize(
    ("text", "hour", "minute"),
    [
        ("8時30分", 8, 30),
        ("８時３０分", 8, 30),
        (" 8 時 30 分　", 8, 30),
        ("08時05分", 8, 5),
        ("毎日8時30分にお願いします。", 8, 30),
        ("0時0分", 0, 0),
        ("8時半", 8, 30),
        ("8:30", 8, 30),
        ("８：０５", 8, 5),
        ("午前8時30分", 8, 30),
        ("午後8時30分", 20, 30),
        ("午後 ８時半", 20, 30),
        ("午後8:30", 20, 30),
        ("夜8時30分", 20, 30),
        ("毎晩、夜の8時半に", 20, 30),
        ("夜12時0分", 0, 0),
        ("夜1時30分", 1, 30),
        ("夕方6時5分", 18, 5),
        ("お昼の12時0分", 12, 0),
        ("昼の1時半", 13, 30),
        ("朝8時30分", 8, 30),
        ("8時ちょうど", 8, 0),
        ("夜8時丁度", 20, 0),
        ("8時30", 8, 30),
        ("8 : 30", 8, 30),
        ("8時30分。", 8, 30),
        ("午前12時0分", 0, 0),
        ("午後12時0分", 12, 0),
        ("午後20時0分", 20, 0),
        ("25時61分", 25, 61),
        ("午後25時0分", 25, 0),
        ("0000000000000000008時30分", 8, 30),
    ],
)
def test_a_whole_time_is_found_as_it_was_said(text: str, hour: int, minute: int) -> None:
    assert whole_time(text) == {"hour": hour, "minute": minute}


@pytest.mark.parametrize(
    "text",
    [
        *("", "8", "8時", "30分", "八時三十分", "8時間30分", "1.5時30分", "時分", "8時と30分"),
        *("会うのは8:30です", "https://example.com:8080", "8時-1分", "8時10分前"),
    ],
)
def test_what_is_no_whole_time(text: str) -> None:
    assert whole_time(text) == {}


def test_thousands_of_digits_are_a_number_out_of_range() -> None:
    assert whole_time(f"{'1' * 5000}時{'9' * 5000}分") == {"hour": 111111111, "minute": 999999999}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("25時", {"hour": 25}),
        ("午後３時", {"hour": 15}),
        ("61分", {"minute": 61}),
        ("8", {}),
        ("夜8時", {"hour": 20}),
        ("8時に会おう", {}),
        ("あと3分", {}),
        ("3時間", {}),
    ],
)
def test_a_part_of_a_time_stands_alone(text: str, parts: dict[str, int]) -> None:
    assert part_of_time(text) == parts


@pytest.mark.parametrize(
    ("asked", "text", "parts"),
    [
        (HOUR, "8", {"hour": 8}),
        (HOUR, "８時", {"hour": 8}),
        (HOUR, "午後8", {"hour": 20}),
        (HOUR, "30分", {"minute": 30}),
        (MINUTE, "30", {"minute": 30}),
        (MINUTE, "３０分", {"minute": 30}),
        (MINUTE, "半", {"minute": 30}),
        (MINUTE, "9時", {"hour": 9}),
        (HOUR, "朝", {}),
        (MINUTE, "-5", {}),
        (MINUTE, "", {}),
    ],
)
def test_a_question_is_answered_by_a_number_or_by_the_other_part(
    asked: str, text: str, parts: dict[str, int]
) -> None:
    assert answer_to(asked, text) == parts


@pytest.mark.parametrize("text", ["a" + " " * 10_000 + "b", "午後" + "\n" * 10_000 + "x"])
def test_a_long_text_is_read_in_no_time(text: str) -> None:
    begun = time.thread_time()
    assert whole_time(text) == part_of_time(text) == answer_to(HOUR, text) == {}
    assert time.thread_time() - begun < 0.5


def test_a_time_among_other_words_is_not_only_a_time() -> None:
    assert only_a_time("夜8時半") == only_a_time("20:30") == {"hour": 20, "minute": 30}
    assert only_a_time("8時35分に飲んだ") == {}
