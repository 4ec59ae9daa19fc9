"""The feed that watches recvq by a change stream: the default."""

from __future__ import annotations

from typing import Any

from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.synchronous.change_stream import ChangeStream

from dispatcher.feed.feed import (
    OPEN_SECONDS,
    STEP_SECONDS,
    FeedItem,
    PositionLost,
    RecvqGone,
    gone_by_rename,
    patiently,
    sorted_out,
)
from linedesk.store.documents import Document

# Each insert into a full capped collection also causes a delete, which this stream leaves out. The
# server filters in the oplog itself, so no other change can enlarge an event beyond 16 MB.
SHOWN = ["insert", "drop", "rename", "dropDatabase", "invalidate"]
PIPELINE = [{"$match": {"operationType": {"$in": SHOWN}}}]

# After these errors no token ever works again (MongoDB's error_codes.yml): ChangeStreamHistoryLost,
# CappedPositionLost, ChangeStreamFatalError, InvalidResumeToken, BSONObjectTooLarge, and 40576.
# With 40576 older servers report that the resume point is no longer in the oplog.
LOST_CODES = frozenset({286, 136, 280, 260, 10334, 40576})


class ChangeStreamFeed:
    """See `dispatcher.feed.feed.Feed`. `collection` belongs to a client of the feed's own."""

    name = "changestream"

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection
        self._stream: ChangeStream[Document] | None = None

    def open(self, token: Any) -> None:
        try:
            self._watch(resume_after=token)
        except OperationFailure as error:
            # All other options are constant, so a refusal is caused by the token.
            raise PositionLost(f"token refused, MongoDB error {error.code}") from error

    def open_at(self, time: Timestamp) -> None:
        self._watch(start_at_operation_time=time)

    def read(self) -> FeedItem | None:
        assert self._stream is not None, "read before open"
        try:
            change = self._stream.try_next()
        except PyMongoError as error:
            raise sorted_out(error, LOST_CODES) from error
        if change is None:
            return None
        if change["operationType"] == "insert":
            return FeedItem(change["fullDocument"], change["_id"], change["clusterTime"])
        if change["operationType"] == "rename":
            before, after = (f"{one['db']}.{one['coll']}" for one in (change["ns"], change["to"]))
            raise gone_by_rename(before, after, self._collection.full_name)
        raise RecvqGone("dropped")

    @property
    def token(self) -> Any:
        assert self._stream is not None, "token before open"
        return self._stream.resume_token

    def close(self) -> None:
        if self._stream is not None:
            stream, self._stream = self._stream, None
            stream.close()

    def _watch(self, **where: Any) -> None:
        self.close()
        try:
            with patiently(self._collection.database.client, seconds=OPEN_SECONDS):
                self._stream = self._collection.watch(
                    PIPELINE,
                    max_await_time_ms=int(STEP_SECONDS * 1000),
                    batch_size=1000,
                    **where,
                )
        except PyMongoError as error:
            raise sorted_out(error, LOST_CODES) from error
