"""The length of a text as LINE counts it (docs, "Character counting in a text"). Pure."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

ZERO_WIDTH_JOINER = "\u200d"
SKIN_TONES = range(0x1F3FB, 0x1F400)
# Two of them form a flag; tags form a region's flag; half-width kana have separate sound marks;
# a Korean syllable may be written as its letters; Thai and Lao have a vowel that is no mark.
FLAG_LETTERS = range(0x1F1E6, 0x1F200)
TAGS = range(0xE0020, 0xE0080)
HALF_WIDTH_MARKS = range(0xFF9E, 0xFFA0)
KOREAN_VOWELS_AND_FINALS = range(0x1160, 0x1200)
SARA_AM = {0xE33, 0xEB3}
NON_JOINER = {0x200C}
JOINING = (SARA_AM, NON_JOINER, SKIN_TONES, TAGS, HALF_WIDTH_MARKS, KOREAN_VOWELS_AND_FINALS)
# So that each cluster fits in a message.
MOST_UNITS_A_CLUSTER = 100


def units(text: str) -> int:
    """Return the number of UTF-16 code units: an emoji outside the BMP has two."""
    return len(text) + sum(1 for character in text if ord(character) > 0xFFFF)


def graphemes(text: str) -> int:
    """Return the number of visible characters: LINE counts labels and template texts so."""
    return sum(1 for _ in clusters(text))


def clusters(text: str) -> Iterator[str]:
    """The visible characters: with combining marks, variation selectors, joined emoji."""
    cluster = ""
    for character in text:
        if cluster and (not _joins(cluster, character) or units(cluster) >= MOST_UNITS_A_CLUSTER):
            yield cluster
            cluster = ""
        cluster += character
    if cluster:
        yield cluster


def _joins(cluster: str, character: str) -> bool:
    return (
        cluster.endswith(ZERO_WIDTH_JOINER)
        or character == ZERO_WIDTH_JOINER
        or (cluster == "\r" and character == "\n")
        or unicodedata.category(character) in ("Mn", "Mc", "Me")
        or any(ord(character) in joining for joining in JOINING)
        or (ord(character) in FLAG_LETTERS and len(cluster) == 1 and ord(cluster) in FLAG_LETTERS)
    )
