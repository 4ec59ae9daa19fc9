"""How much fits, and for how long: the oplog, recvq and the disk below them, in figures only.

What the figures mean for an operator is judged elsewhere. Reads by find, collStats and dbStats.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from bson import ObjectId
from pymongo.collection import Collection
from pymongo.database import Database

from recvq.connect import Client
from recvq.documents import RECVQ

SIZES: list[Mapping[str, Any]] = [
    {"$collStats": {"storageStats": {}}},
    {"$project": {"size": "$storageStats.size", "maxSize": "$storageStats.maxSize"}},
]


@dataclass(frozen=True)
class Span:
    """What a capped collection holds: since when, how much, and how much it may."""

    seconds: float
    """From its oldest entry to now."""
    bytes: int
    most_bytes: int

    @property
    def bytes_per_second(self) -> float:
        """The mean rate at which it was written since its oldest entry."""
        return self.bytes / self.seconds if self.seconds > 0 else 0.0

    @property
    def keeps_seconds(self) -> float:
        """After how long an entry is overwritten at that rate; infinite where nothing comes."""
        rate = self.bytes_per_second
        return self.most_bytes / rate if rate > 0 else math.inf


@dataclass(frozen=True)
class Disk:
    """The file system of MongoDB's data, in bytes."""

    free_bytes: int
    total_bytes: int


def oplog_span(client: Client) -> Span | None:
    """The oplog of the server; None where it has none. Raises what the driver raises."""
    oplog = client.local["oplog.rs"]
    oldest, newest = (_end(oplog, order) for order in (1, -1))
    if oldest is None or newest is None:
        return None
    # In steps of a second, as its times are: an oplog of one moment has no rate yet.
    return _span(oplog, float(newest["ts"].time - oldest["ts"].time))


def recvq_span(database: Database[Any], *, now: datetime) -> Span | None:
    """recvq up to `now`; None while it is empty. Raises what the driver raises."""
    recvq = database[RECVQ]
    oldest = _end(recvq, 1)
    if oldest is None:
        return None
    return _span(recvq, max(0.0, (now - accepted_at(oldest)).total_seconds()))


def read_disk(database: Database[Any]) -> Disk:
    """The disk that the database is on, by the server's own count."""
    stats = database.command("dbStats")
    total, used = int(stats["fsTotalSize"]), int(stats["fsUsedSize"])
    return Disk(free_bytes=total - used, total_bytes=total)


def accepted_at(document: Mapping[str, Any]) -> datetime:
    """When a document of recvq arrived; one made by hand may lack the time, so its `_id` tells."""
    at, id_ = document.get("acceptTime"), document["_id"]
    if isinstance(at, datetime):
        return at
    return id_.generation_time if isinstance(id_, ObjectId) else datetime.now(UTC)


def _end(collection: Collection[Any], order: int) -> Mapping[str, Any] | None:
    shown = {"ts": 1, "acceptTime": 1}
    found: Mapping[str, Any] | None = collection.find_one({}, shown, sort=[("$natural", order)])
    return found


def _span(collection: Collection[Any], seconds: float) -> Span:
    [stats] = collection.aggregate(SIZES)
    return Span(seconds, int(stats["size"]), int(stats.get("maxSize") or 0))
