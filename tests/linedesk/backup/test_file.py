"""The file of an export: documents are read byte for byte as written, or reported as damaged."""

import gzip
import io
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import bson
import pytest
from bson import Code, Decimal128, Int64, MaxKey, ObjectId, Regex, Timestamp
from bson.datetime_ms import DatetimeMS
from bson.raw_bson import RawBSONDocument

from linedesk.backup.file import BackupWriter, Header, check, documents
from linedesk.settings.errors import BackupError
from linedesk.store.documents import CONVERSATIONS, DEADLETTERS, SCHEDULE

NOW = datetime(2026, 11, 21, 19, 30, 0, 123000, tzinfo=UTC)
HEADER = Header(database="line_bot", at=NOW, linedesk="1.0", mongodb="6.0.5")
Rows = list[tuple[str, RawBSONDocument]]


def raw(**fields: Any) -> RawBSONDocument:
    return RawBSONDocument(bson.encode(fields))


def file_of(*rows: tuple[str, RawBSONDocument], header: Header = HEADER) -> bytes:
    stream = io.BytesIO()
    writer = BackupWriter(stream, header)
    for collection, document in rows:
        writer.add(collection, document)
    writer.finish()
    return stream.getvalue()


def read(content: bytes) -> Rows:
    return [row for row in both(content) if isinstance(row, tuple)]


def both(content: bytes) -> list[Any]:
    """The header, then the documents, of a file with this content."""
    with NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        path = Path(file.name)
        return [check(path), *documents(path)]


def some() -> Rows:
    names = [DEADLETTERS, CONVERSATIONS, SCHEDULE]
    return [
        (name, raw(_id=f"{name}/{n}", text="こんにちは" * n)) for name in names for n in range(9)
    ]


# Values that a bot may store, and values that only a person can put into MongoDB.
ODD: dict[str, Any] = {
    "a date": NOW,
    "a date that Python has not": DatetimeMS(10**16),
    "a long that is small": Int64(5),
    "a double that is whole": [5.0, -0.0, 1e300],
    "no number": float("inf"),
    "keys with dots and dollars": {"a.b": 1, "$inc": {"": 2}, "c$": {"$a.b": 3}},
    "what looks like a date": {"$date": "soon"},
    "what looks like a number": {"$numberInt": "5"},
    "what looks like a reference": {"$ref": "x", "$id": 1, "$more": 2},
    "what looks like bytes": {"$binary": {"base64": "YQ==", "subType": "00"}},
    "bytes": b"\x00\xff",
    "the driver's own": [
        ObjectId(),
        Decimal128("1.50"),
        Timestamp(1, 2),
        Regex("a", "xi"),
        MaxKey(),
    ],
    "code": Code("x", {"y": 1}),
    "Japanese, and a zero": "予約\x00🎉",
    "depth": {"a": {"b": {"c": [[[{"d": None}]]]}}},
}


@pytest.mark.parametrize("name", ODD)
def test_whatever_a_document_holds_comes_back_byte_for_byte(name: str) -> None:
    document = raw(_id="x", data=ODD[name])
    [(collection, found)] = read(file_of((CONVERSATIONS, document)))
    assert (collection, found.raw) == (CONVERSATIONS, document.raw)


def test_text_that_is_no_utf_8_comes_back_byte_for_byte() -> None:
    damaged = RawBSONDocument(raw(_id="x", text="????").raw.replace(b"????", b"\xff\xfe??"))
    [(_, found)] = read(file_of((CONVERSATIONS, damaged)))
    assert found.raw == damaged.raw


def test_a_file_that_is_cut_off_anywhere_is_refused() -> None:
    content = file_of(*some())
    for length in range(len(content)):
        with pytest.raises(BackupError):
            read(content[:length])


def test_a_flipped_bit_is_found_or_changes_nothing() -> None:
    rows = some()
    content = file_of(*rows)
    found = 0
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        try:
            assert [(n, d.raw) for n, d in read(bytes(flipped))] == [(n, d.raw) for n, d in rows]
        except BackupError:
            found += 1
    # But for the ten bytes of gzip's own header, of which some mean nothing.
    assert found > len(content) - 10


def test_a_changed_document_is_found_though_gzip_is_right() -> None:
    content = gzip.decompress(file_of(*some()))
    with pytest.raises(BackupError, match="checksum"):
        read(gzip.compress(content.replace("は".encode(), "わ".encode(), 1)))


NO_EXPORTS = {
    "nothing": (b"", "not an export"),
    "a zip file": (b"PK\x03\x04 something else", "not an export"),
    "nothing in gzip": (gzip.compress(b""), "not an export"),
    "other JSON": (gzip.compress(b'{"what": "else"}\n'), "not an export"),
    "two files in one": (file_of() + gzip.compress(b"more\n"), "damaged"),
}


@pytest.mark.parametrize("name", NO_EXPORTS)
def test_what_is_no_export_is_refused_in_words(name: str) -> None:
    content, words = NO_EXPORTS[name]
    with pytest.raises(BackupError, match=words):
        read(content)


def test_a_newer_format_is_refused_with_the_version_that_can_read_it() -> None:
    with pytest.raises(BackupError, match=r"format 2 .* import it with linedesk 1\.0"):
        read(file_of(header=replace(HEADER, format=2)))
