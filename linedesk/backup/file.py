"""The file of an export: gzip'ed lines of JSON, readable with zcat.

The first line is the header. Each further line is a document in MongoDB's extended JSON under the
name of its collection. The last line has the number of documents and a checksum. An import
therefore detects a truncated or damaged file before it uses any of it.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
import json
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

import bson
from bson import json_util
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.json_util import CANONICAL_JSON_OPTIONS
from bson.raw_bson import RawBSONDocument

from linedesk.settings.errors import BackupError
from linedesk.store.documents import (
    BATCHES,
    CONVERSATIONS,
    DEADLETTERS,
    HELD,
    PROGRESS,
    SCHEDULE,
    SCHEMA,
    Document,
)
from linedesk.store.errors import OtherSchema
from linedesk.store.limits import MOST_INTERNAL_BYTES

FORMAT = 1
# With this order an import needs one pass to inspect and one to write: existing dead letters come
# before new ones, and outboxes before their rows. An export of an older release has no batches.
COLLECTIONS = (PROGRESS, DEADLETTERS, HELD, BATCHES, CONVERSATIONS, SCHEDULE)

HEADER = "header"
TRAILER = "trailer"
# Every document fits into a line of this length when it is written as bytes.
MOST_LINE_BYTES = MOST_INTERNAL_BYTES // 3 * 4 + 1024
# Each value that a line has may cost 250 bytes of memory while it is read.
MOST_PARTS = 1_000_000
# Compressed lines with different ids each take more than this. The memory that an import needs for
# each document (its place, its message's id) therefore stays proportional to the file's size.
FEWEST_PACKED_BYTES = 1
FREE_LINES = 10_000

AS_STORED: CodecOptions[RawBSONDocument] = CodecOptions(
    document_class=RawBSONDocument,
    tz_aware=True,
    # A text that is not UTF-8 must not make the rest unreadable.
    unicode_decode_error_handler="replace",
    datetime_conversion=DatetimeConversion.DATETIME_AUTO,
)
_PLAIN: CodecOptions[Document] = CodecOptions(
    tz_aware=True, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
_JSON = CANONICAL_JSON_OPTIONS.with_options(
    tz_aware=True, tzinfo=UTC, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)
# The errors that the driver raises for invalid BSON or for JSON that is not a document. A decimal
# that is too large is an ArithmeticError.
_UNREADABLE = (BSONError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError)


@dataclass(frozen=True)
class Header:
    """The metadata of an export."""

    database: str
    at: datetime
    """The server's time when the export began."""
    linedesk: str
    mongodb: str
    schema: int = SCHEMA
    """The schema number of its documents."""

    def as_document(self) -> Document:
        """The form for the first line."""
        return {
            "format": FORMAT,
            "linedesk": self.linedesk,
            "database": self.database,
            "at": self.at,
            "mongodb": self.mongodb,
            "schema": self.schema,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Header:
        """Read the form that `as_document` makes. Raises BackupError for another format,
        OtherSchema.
        """
        made_by = document["linedesk"]
        if document["format"] != FORMAT:
            raise BackupError(
                f"the export has format {document['format']} and this linedesk reads {FORMAT}: "
                f"import it with linedesk {made_by}, which made it"
            )
        schema = int(document.get("schema") or 1)
        if schema > SCHEMA:
            raise OtherSchema("the export", schema, SCHEMA)
        return cls(document["database"], document["at"], made_by, document["mongodb"], schema)


class BackupWriter:
    """Writes one export into a stream, which stays open; `counts` has the documents so far."""

    def __init__(self, stream: IO[bytes], header: Header) -> None:
        self._gzip = gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6)
        self._sum = hashlib.sha256()
        self.counts: Counter[str] = Counter()
        self._write(HEADER, json_util.dumps(header.as_document(), json_options=_JSON))

    def add(self, collection: str, document: RawBSONDocument) -> None:
        """Write a document, exactly as it is stored. Raises OSError."""
        text = as_json(document)
        if not _is_within_bounds(_line(collection, text)):
            text = _as_bytes(document)
        self._write(collection, text)
        self.counts[collection] += 1

    def finish(self) -> None:
        """Write the last line; without it a file counts as truncated. Raises OSError."""
        end = {"counts": dict(self.counts), "sha256": self._sum.hexdigest()}
        self._write(TRAILER, json.dumps(end))
        self._gzip.close()

    def _write(self, name: str, text: str) -> None:
        line = _line(name, text)
        self._sum.update(line)
        self._gzip.write(line)


class BackupReader:
    """Reads an export from a stream that can be read again from its start."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def header(self) -> Header:
        """Return the header. Raises BackupError if the file is not an export, or is from a newer
        release.
        """
        with _readable():
            return _header(next(self._lines(), b""))

    def documents(self) -> Iterator[tuple[str, RawBSONDocument]]:
        """Each document with the name of its collection, in the order of COLLECTIONS.

        Raises BackupError where the file is damaged, or at the end if it is incomplete.
        """
        sum_, counts = hashlib.sha256(), Counter[str]()
        lines = self._lines()
        with _readable():
            first = next(lines, b"")
            _header(first)
            sum_.update(first)
            for line in lines:
                name, content = _parsed(line)
                if name == TRAILER:
                    if content != {"counts": dict(counts), "sha256": sum_.hexdigest()}:
                        raise BackupError("the export is damaged: its checksum does not match")
                    if next(lines, None) is not None:
                        raise BackupError("the export is damaged: it has data after its end")
                    return
                if name not in COLLECTIONS:
                    raise BackupError(f"the export is damaged: it has a line {name[:40]!r}")
                sum_.update(line)
                counts[name] += 1
                yield name, _document(content)
        raise BackupError("the export is truncated: its end is missing")

    def _lines(self) -> Iterator[bytes]:
        self._stream.seek(0)
        with gzip.GzipFile(fileobj=self._stream, mode="rb") as lines:
            for number in itertools.count(1):
                # This limits the memory for one line, whatever the file contains.
                line = lines.readline(MOST_LINE_BYTES + 1)
                if not line:
                    return
                if not _is_within_bounds(line):
                    raise BackupError(
                        f"the export is damaged: line {number} is larger than any document"
                    )
                if self._stream.tell() < (number - FREE_LINES) * FEWEST_PACKED_BYTES:
                    raise BackupError(
                        "the export is damaged: it has the same lines again and again"
                    )
                yield line


def as_json(document: RawBSONDocument) -> str:
    """A document as extended JSON that converts back to the same bytes.

    Extended JSON cannot distinguish a bot's own `{"$date": "soon"}` from a date. A document that
    does not convert back exactly is therefore written as bytes.
    """
    try:
        text = json_util.dumps(
            bson.decode(document.raw, _PLAIN), json_options=_JSON, ensure_ascii=False
        )
        if bson.encode(json_util.loads(text, json_options=_JSON)) == document.raw:
            return text
    except _UNREADABLE:
        pass
    return _as_bytes(document)


def _as_bytes(document: RawBSONDocument) -> str:
    return json_util.dumps(document.raw, json_options=_JSON)


def _line(name: str, text: str) -> bytes:
    return f'{{"{name}": {text}}}\n'.encode()


def _is_within_bounds(line: bytes) -> bool:
    """Whether parsing the line takes little memory. Commas and braces in texts count as parts."""
    return len(line) <= MOST_LINE_BYTES and sum(map(line.count, (b"{", b"[", b","))) <= MOST_PARTS


@contextmanager
def _readable() -> Iterator[None]:
    """Turn the errors of damaged bytes into BackupError."""
    try:
        yield
    except gzip.BadGzipFile as error:
        raise BackupError(f"not an export of linedesk, or a damaged one: {error}") from error
    except EOFError as error:
        raise BackupError("the export is truncated: its end is missing") from error
    except (zlib.error, *_UNREADABLE) as error:
        raise BackupError("the export is damaged") from error


def _header(line: bytes) -> Header:
    if not line:
        raise BackupError("not an export of linedesk: it is empty")
    name, content = _parsed(line)
    if name != HEADER:
        raise BackupError("not an export of linedesk: its header is missing")
    return Header.from_document(content)


def _parsed(line: bytes) -> tuple[str, Any]:
    """The name and the content of a line. Raises an error of _UNREADABLE."""
    [(name, content)] = dict(json_util.loads(line.decode(), json_options=_JSON)).items()
    return str(name), content


def _document(content: Any) -> RawBSONDocument:
    if isinstance(content, bytes):
        # A RawBSONDocument detects invalid BSON only when a field is read.
        bson.decode(content, _PLAIN.with_options(unicode_decode_error_handler="replace"))
        raw = content
    else:
        raw = bson.encode(content)
    if len(raw) > MOST_INTERNAL_BYTES:
        raise BackupError("the export is damaged: it has a document that MongoDB cannot hold")
    document = RawBSONDocument(raw, AS_STORED)
    if "_id" not in document:
        raise BackupError("the export is damaged: it has a document without an _id")
    return document
