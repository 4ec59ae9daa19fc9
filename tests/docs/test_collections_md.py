"""docs/reference/collections.md has each collection, and each field that the processes write."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from linedesk.store import documents
from linedesk.store.records import calls, conversations, history, letters, timers

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "collections.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))
COLLECTIONS = {
    value
    for name, value in vars(documents).items()
    if name.isupper() and isinstance(value, str) and value == name.lower()
}
RECORDS = {
    "calls": calls,
    "conversations": conversations,
    "deadletters": letters,
    "history": history,
    "schedule": timers,
}


def test_it_has_each_collection_and_no_other() -> None:
    assert len(COLLECTIONS) > 10
    assert set(SECTIONS) == COLLECTIONS


@pytest.mark.parametrize("name", RECORDS)
def test_a_section_has_each_field_of_the_records_module(name: str) -> None:
    fields = {
        value
        for constant, value in vars(RECORDS[name]).items()
        if constant.isupper() and isinstance(value, str) and re.fullmatch(r"[a-z]\w+", value)
    }
    cells = set(re.findall(r"`([\w.]+)`", SECTIONS[name]))
    assert len(fields) >= 2
    # The types of an effect and of a replay's event, which a records module names as well, are no
    # fields, nor are codes of causes, which have a table of their own.
    assert fields - {"deadletter", "replay"} - set(re.findall(r"`(\w+)`", PAGE)) <= cells
