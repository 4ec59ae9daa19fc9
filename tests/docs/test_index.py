"""docs/index.md and docs/ja/index.md, the indexes by task, link to every page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"
KINDS = ("tutorial", "how-to", "reference", "explanation")


def linked(index: Path) -> set[Path]:
    """Return the files that the index links to."""
    targets = re.findall(r"\]\(([^)#\s]+\.md)", index.read_text("utf-8"))
    return {(index.parent / target).resolve() for target in targets}


def pages(folder: Path) -> set[Path]:
    return {page for kind in KINDS for page in (folder / kind).glob("*.md")}


def test_the_english_index_links_to_every_page() -> None:
    assert pages(DOCS) - linked(DOCS / "index.md") == set()


def test_the_japanese_index_links_to_every_page_and_to_english_ones_without_a_twin() -> None:
    japanese = DOCS / "ja"
    alone = pages(DOCS) - {DOCS / page.relative_to(japanese) for page in pages(japanese)}
    alone = {page for page in alone if page.parent.name in ("reference", "explanation")}
    assert (pages(japanese) | alone) - linked(japanese / "index.md") == set()


@pytest.mark.parametrize("name", ["index.md", "ja/index.md"])
def test_each_page_stands_once_in_a_section(name: str) -> None:
    sections = re.split(r"^## ", (DOCS / name).read_text("utf-8"), flags=re.MULTILINE)
    for section in sections[1:]:
        rows = re.findall(r"^- \[.*\]\(([^)\s]+)\)(?:（英語）)?$", section, re.MULTILINE)
        assert len(rows) > 5
        assert len(rows) == len(set(rows)), section
