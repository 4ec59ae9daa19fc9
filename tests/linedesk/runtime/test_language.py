"""Each text has its Japanese, with the same values in it, and the reader's language is found."""

import io
import string
import tomllib
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog, Message
from babel.messages.extract import extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from linedesk.page.gatekeeping import of_browser
from linedesk.runtime.language import FOLDER

ROOT = Path(__file__).resolve().parents[3]
PO = FOLDER / "ja" / "LC_MESSAGES" / "linedesk.po"
MAPPINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["babel"]["mappings"]
KEYWORDS = {"gettext": None, "ngettext": (1, 2), "mark": None, "_": None}


def catalogue() -> Catalog:
    with PO.open("rb") as file:
        return read_po(file, locale="ja", domain="linedesk")


def extracted() -> set[str]:
    """The texts that the code and the templates mark."""
    methods = [(one["pattern"], one["method"]) for one in MAPPINGS]
    found = set()
    for package in ("linedesk", "frontdesk", "dispatcher", "jobworker"):
        for _, _, message, _, _ in extract_from_dir(
            ROOT / package, method_map=methods, options_map={}, keywords=KEYWORDS
        ):
            found.add(message[0] if isinstance(message, tuple) else message)
    return found


def places(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


def both(message: Message) -> tuple[str, str]:
    """The English text (its plural, which names the number) and the Japanese one."""
    ours = message.id[-1] if isinstance(message.id, tuple) else message.id
    theirs = message.string[0] if isinstance(message.string, tuple) else message.string
    return ours, theirs


@pytest.mark.long
def test_each_text_has_its_japanese() -> None:
    messages = {
        one.id[0] if isinstance(one.id, tuple) else one.id: one for one in catalogue() if one.id
    }
    assert extracted() - set(messages) == set(), "run scripts/texts, translate, run it again"
    assert set(messages) - extracted() == set(), "run scripts/texts"
    missing = [id_ for id_, one in messages.items() if not both(one)[1] or one.fuzzy]
    assert missing == []


def test_each_japanese_text_has_the_values_of_the_english_one() -> None:
    for message in catalogue():
        if message.id and "python-brace-format" in message.flags:
            ours, theirs = both(message)
            assert places(theirs) == places(ours), theirs


def test_the_compiled_catalogue_is_that_of_the_texts() -> None:
    compiled = io.BytesIO()
    write_mo(compiled, catalogue())
    assert PO.with_suffix(".mo").read_bytes() == compiled.getvalue(), "run scripts/texts"


@pytest.mark.parametrize(
    ("header", "wanted"),
    [("ja-JP,ja;q=0.9,en-US;q=0.8,en;q=0.7", "ja"), ("en-US,en;q=0.9,ja;q=0.8", "en"), ("", "en")],
)
def test_the_browsers_language(header: str, wanted: str) -> None:
    assert of_browser(header) == wanted
