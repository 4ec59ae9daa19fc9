"""Stored values as JSON: every value from outside is valid, or a ValueError."""

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import bson
import pytest

from jobworker.remote.values import from_json, from_line, to_json, to_line

FORMS = ["$date", "$oid", "$numberLong", "$binary", "$regularExpression", "$timestamp"]
VALUES: list[Any] = [
    *(None, True, 1, -1, 1e308, "x", "", [], [1], {}, {"a": 1}),
    *({"t": -1, "i": "x"}, {"base64": 1, "subType": "zz"}, {"base64": "!!", "subType": "00"}),
    *({"pattern": 1, "options": 2}, {"pattern": "(", "options": "z"}, {"$oid": "z"}),
    *({"$numberLong": "9" * 30}, {"$numberLong": "9" * 17}, {"$ref": 1, "$id": 2}),
]


@pytest.mark.parametrize("form", FORMS)
def test_a_broken_form_is_a_value_error(form: str) -> None:
    for value in VALUES:
        for other in (None, "$options", "$id", "$scope", "$type"):
            with suppress(ValueError):
                from_json({form: value} if other is None else {form: value, other: value})


@pytest.mark.parametrize(
    "value",
    [
        *(2**53, 2**53 + 1, -(2**63), 0.5, 2.0, "😀", "\ud800", b"\x00", True, None),
        "a\u2028b\u2029c",
        datetime(2026, 11, 23, 1, 2, 3, 456_000, tzinfo=UTC),
        bson.ObjectId("0123456789abcdef01234567"),
        bson.Decimal128("1.10"),
        float("inf"),
        {"a": [{"b": 1}], "$odd": 1},
    ],
)
def test_a_stored_value_comes_back(value: Any) -> None:
    found = from_json(from_line(to_line({"x": to_json(value)}))["x"])
    assert found == value
    assert isinstance(found, type(value))


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b"1", b'{"x": NaN}', b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_object_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        from_line(line)
