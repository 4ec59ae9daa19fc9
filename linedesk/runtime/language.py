"""The language of what people read: Japanese where it is asked for, else English.

Texts are written in English in the code, and translated by the catalogue in `linedesk/locale`
(`scripts/texts` extracts and compiles them). Log lines, JSON and stored documents stay English.
"""

from __future__ import annotations

import gettext as catalogues
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

LANGUAGES = ("en", "ja")
DEFAULT = "en"
VARIABLE = "LINEDESK_LANG"
FOLDER = Path(__file__).resolve().parents[1] / "locale"

_language: ContextVar[str] = ContextVar("language", default=DEFAULT)


class UnknownLanguage(ValueError):
    """LINEDESK_LANG names a language that linedesk does not have."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{VARIABLE}: no language {name!r}; use one of {', '.join(LANGUAGES)}")


@cache
def catalogue_of(language: str) -> catalogues.NullTranslations:
    """The texts of a language, one of LANGUAGES; those of English are the code's own."""
    if language == DEFAULT:
        return catalogues.NullTranslations()
    return catalogues.translation("linedesk", FOLDER, [language])


def gettext(message: str) -> str:
    """The text in the language of this context. Fill in values afterwards, by `str.format`.

    An empty text stays empty; gettext would return the catalogue's header.
    """
    return message and catalogue_of(_language.get()).gettext(message)


def ngettext(singular: str, plural: str, count: int) -> str:
    """As `gettext`, for a text that depends on a number."""
    return catalogue_of(_language.get()).ngettext(singular, plural, count)


def mark(message: str) -> str:
    """Marks a constant for the catalogue. It is translated where it is shown, by `gettext`."""
    return message


def language() -> str:
    """The language of this context: `en` or `ja`."""
    return _language.get()


def use(name: str) -> None:
    """Speak this language, one of LANGUAGES, from here on in this context."""
    _language.set(name)


@contextmanager
def speaking(name: str) -> Iterator[None]:
    """Speak this language, one of LANGUAGES, inside the block."""
    token = _language.set(name)
    try:
        yield
    finally:
        _language.reset(token)


def of_environment() -> str | None:
    """The language that LINEDESK_LANG names; None where it is not set. Raises UnknownLanguage."""
    name = os.environ.get(VARIABLE, "").strip().lower()
    if not name:
        return None
    if name not in LANGUAGES:
        raise UnknownLanguage(name)
    return name
