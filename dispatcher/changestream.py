"""The feed that watches recvq by a change stream: the default."""

from __future__ import annotations

from typing import Any

from bson.timestamp import Timestamp
from pymongo.collection import Collection
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.synchronous.change_stream import ChangeStream

from dispatcher.feed import STEP_SECONDS, HistoryLost, Reading
from recvq.documents import Document
from recvq.errors import translate

# What the stream is not for: each insert into a full capped collection brings a delete, too.
PIPELINE = [{"$match": {"operationType": {"$in": ["insert", "invalidate"]}}}]

# No token will ever work again after these (MongoDB's error_codes.yml): ChangeStreamHistoryLost,
# ChangeStreamFatalError, InvalidResumeToken, BSONObjectTooLarge, and InvalidNamespace-like
# closings of a stream whose collection is gone.
LOST_CODES = frozenset({286, 280, 260, 10334, 40576})


class ChangeStreamFeed:
    """See `dispatcher.feed.Feed`. `collection` belongs to a client of the feed's own."""

    name = "changestream"

    def __init__(self, collection: Collection[Any]) -> None:
        self._collection = collection
        self._stream: ChangeStream[Document] | None = None

    def open(self, token: Any) -> None:
        try:
            self._watch(resume_after=token)
        except OperationFailure as error:
            # All else that the server is asked for never changes, so what it refuses is the token.
            raise HistoryLost(f"token refused, MongoDB error {error.code}") from error

    def open_at(self, time: Timestamp) -> None:
        self._watch(start_at_operation_time=time)

    def read(self) -> Reading | None:
        assert self._stream is not None, "read before open"
        try:
            change = self._stream.try_next()
        except PyMongoError as error:
            raise _sorted_out(error) from error
        if change is None:
            return None
        if change["operationType"] == "invalidate":
            raise HistoryLost("recvq was dropped or renamed")
        return Reading(change["fullDocument"], change["_id"], change["clusterTime"])

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
            self._stream = self._collection.watch(
                PIPELINE, max_await_time_ms=int(STEP_SECONDS * 1000), batch_size=1000, **where
            )
        except PyMongoError as error:
            raise _sorted_out(error) from error


def _sorted_out(error: PyMongoError) -> Exception:
    """HistoryLost where the token is dead; StoreUnavailable where opening again is the way."""
    if isinstance(error, OperationFailure) and error.code in LOST_CODES:
        return HistoryLost(f"MongoDB error {error.code}")
    return translate(error)
