"""docs/reference/settings.md has each setting with its default and its values."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from linedesk.settings.settings import Settings

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "settings.md").read_text("utf-8")
ENTRIES = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", PAGE, re.MULTILINE | re.DOTALL))


def default(value: Any) -> str:
    if value in (None, (), {}):
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


def test_it_has_each_setting_once_and_no_other() -> None:
    headings = re.findall(r"^### (\w+)$", PAGE, re.MULTILINE)
    assert sorted(headings) == sorted(name.upper() for name in Settings.model_fields)


@pytest.mark.parametrize("name", list(Settings.model_fields))
def test_each_setting_has_its_default_and_its_values(name: str) -> None:
    field, entry = Settings.model_fields[name], ENTRIES[name.upper()]
    assert f"- Default: {default(field.default)}\n" in entry
    assert f"- Value: {field.description}\n" in entry
