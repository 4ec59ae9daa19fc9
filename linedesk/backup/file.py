"""The file of an export: gzip'ed lines of JSON, readable with zcat.

The first line is the header. Each further line is a document in MongoDB's extended JSON under the
name of its collection. The last line has the number of documents and a checksum, which an import
checks before it reads any document.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

import bson
from bson import json_util
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.json_util import CANONICAL_JSON_OPTIONS
from bson.raw_bson import RawBSONDocument

from linedesk.settings.errors import BackupError
from linedesk.store.client import ANY_DATE, AS_STORED
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

FORMAT = 1
# With this order an import needs one pass to inspect and one to write: existing dead letters come
# before new ones, and outboxes before their rows. An export of an older release has no batches.
COLLECTIONS = (PROGRESS, DEADLETTERS, HELD, BATCHES, CONVERSATIONS, SCHEDULE)

_JSON = CANONICAL_JSON_OPTIONS.with_options(
    tz_aware=True, tzinfo=UTC, datetime_conversion=DatetimeConversion.DATETIME_AUTO
)


@dataclass(frozen=True)
class Header:
    """The metadata of an export."""

    linedesk: str
    database: str
    at: datetime
    """The server's time when the export began."""
    mongodb: str
    schema: int = SCHEMA
    """The schema number of its documents."""
    format: int = FORMAT


class BackupWriter:
    """Writes one export into a stream, which stays open; `counts` has the documents so far."""

    def __init__(self, stream: IO[bytes], header: Header) -> None:
        self._gzip = gzip.GzipFile(filename="", fileobj=stream, mode="wb", compresslevel=6)
        self._sum = hashlib.sha256()
        self.counts: Counter[str] = Counter()
        self._write("header", json_util.dumps(asdict(header), json_options=_JSON))

    def add(self, collection: str, document: RawBSONDocument) -> None:
        """Write a document, exactly as it is stored. Raises OSError."""
        self._write(collection, _as_json(document))
        self.counts[collection] += 1

    def finish(self) -> None:
        """Write the last line; without it a file counts as truncated. Raises OSError."""
        end = {"counts": dict(self.counts), "sha256": self._sum.hexdigest()}
        self._write("trailer", json.dumps(end))
        self._gzip.close()

    def _write(self, name: str, text: str) -> None:
        line = f'{{"{name}": {text}}}\n'.encode()
        self._sum.update(line)
        self._gzip.write(line)


def _as_json(document: RawBSONDocument) -> str:
    """A document as extended JSON that converts back to the same bytes.

    Extended JSON cannot distinguish a bot's own `{"$date": "soon"}` from a date. A document that
    does not convert back exactly is therefore written as bytes.
    """
    try:
        text = json_util.dumps(
            bson.decode(document.raw, ANY_DATE), json_options=_JSON, ensure_ascii=False
        )
        if bson.encode(json_util.loads(text, json_options=_JSON)) == document.raw:
            return text
    except (BSONError, ValueError, TypeError, KeyError, ArithmeticError, RecursionError):
        pass
    return json_util.dumps(document.raw, json_options=_JSON)


def check(path: Path) -> Header:
    """Read the whole file. Raises BackupError unless it is a complete and undamaged export that
    this release can read, OtherSchema.
    """
    sum_ = hashlib.sha256()
    try:
        with gzip.open(path) as lines:
            first = last = next(lines, b"")
            for line in lines:
                sum_.update(last)
                last = line
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise BackupError(f"{path} is damaged or truncated, or not an export: {error}") from error
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror or error}") from error
    if not first.startswith(b'{"header": '):
        raise BackupError(f"{path} is not an export of linedesk")
    if not last.startswith(b'{"trailer": ') or sum_.hexdigest().encode() not in last:
        raise BackupError(f"{path} is damaged or truncated: its checksum is wrong or missing")
    return _readable(json_util.loads(first, json_options=_JSON)["header"])


def _readable(header: Document) -> Header:
    if header["format"] != FORMAT:
        raise BackupError(
            f"the export has format {header['format']} and this linedesk reads {FORMAT}: "
            f"import it with linedesk {header['linedesk']}, which made it"
        )
    # Development versions wrote no schema.
    fields: Document = {"schema": 1, **header}
    found = Header(**fields)
    if found.schema > SCHEMA:
        raise OtherSchema("the export", found.schema, SCHEMA)
    return found


def documents(path: Path) -> Iterator[tuple[str, RawBSONDocument]]:
    """Each document of a checked file with its collection, in the order of COLLECTIONS."""
    with gzip.open(path) as lines:
        for line in lines:
            [(name, content)] = json_util.loads(line, json_options=_JSON).items()
            if name in COLLECTIONS:
                raw = content if isinstance(content, bytes) else bson.encode(content)
                yield name, RawBSONDocument(raw, AS_STORED)
