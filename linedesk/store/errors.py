"""Everything that can go wrong at the border to MongoDB, split by what the caller does about it.

* QueueError
  * StoreUnavailable   transient: try again; nothing is known to be stored
    * RecvqClosed      nothing was inserted: unread documents would have been overwritten
    * WriteRefused     permanent for the one document that was to be written, and for it alone
  * SpoolUnavailable   transient: the spool does not take it; the message says why
    * SpoolDamaged     its file cannot be read and is set aside
  * SetupError         fatal: a person has to change something, and the message says what
    * WrongCollection  recvq is missing, uncapped or without its index
    * NotReplicaSet    the server cannot be watched
    * NewerSchema      a newer release of linedesk has written the documents
    * AccessRefused    the user's password is wrong, or a right is missing
  * Replaced           fatal: a successor with a higher epoch has taken over; stop at once
  * NotAScope          an operator's word for what to pause names nothing
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bson.errors import BSONError
from pymongo.errors import (
    BulkWriteError,
    ConnectionFailure,
    DocumentTooLarge,
    DuplicateKeyError,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WriteError,
    WTimeoutError,
)


class QueueError(Exception):
    """Base of every error that recvq raises."""


class StoreUnavailable(QueueError):
    """MongoDB did not confirm on a majority, in time; what was sent may or may not be stored."""


class RecvqClosed(StoreUnavailable):
    """recvq takes no inserts: it is full of unread documents, or not as it must be."""


# What a person finds as cause of a dead letter, or as the reason why something waits.
REFUSED_WORDS = "MongoDB refuses the write"
# A document holds 16 MB: BSONObjectTooLarge, and what an update says that ends just above it
# (17419; 17420 for an upsert).
TOO_LARGE = frozenset({10334, 17419, 17420})


class WriteRefused(StoreUnavailable):
    """MongoDB refuses to write one document for as long as it is as it is: it would be too large,
    has fields of other types than ours, or a validator does not allow it.

    What is not given up for it is tried again as after an outage, so it ends no process. `code` is
    MongoDB's, 0 where the driver could not encode it.
    """

    def __init__(self, code: int | None) -> None:
        self.code = code or 0
        self.is_too_large = self.code in TOO_LARGE
        why = "the document would be larger than 16 MB" if self.is_too_large else f"code {code}"
        super().__init__(f"{REFUSED_WORDS}: {why}")


class SpoolUnavailable(QueueError):
    """The spool did not store or give what was asked; the text may be shown to anybody.

    `detail` names the file and SQLite's error, and is for the log alone.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail


class SpoolDamaged(SpoolUnavailable):
    """The spool's file is no database, or its pages contradict each other."""


class SetupError(QueueError):
    """The server or a collection is not as linedesk needs it; the message says what to do."""


class WrongCollection(SetupError):
    """recvq is missing, not capped, or without its unique index on eventId."""


class NotReplicaSet(SetupError):
    """The server is standalone, so it has neither a change stream nor an oplog."""


class NewerSchema(SetupError):
    """A newer release of linedesk has written the documents: this one would misread them."""

    def __init__(self, what: str, schema: int, known: int) -> None:
        super().__init__(
            f"{what} was written by a newer release of linedesk (schema {schema}, this release "
            f"knows {known}): run that release or a later one"
        )


AUTHENTICATION_FAILED = 18
UNAUTHORIZED = 13


class AccessRefused(SetupError):
    """MongoDB knows no such user and password (code 18), or the user may not do this (code 13).

    `user` is his name, empty where MONGODB_URI has none. The text is never the server's, which
    quotes what was to be written. A new start may mend it, since that reads a password that was
    replaced meanwhile.
    """

    def __init__(self, code: int, user: str | None = None) -> None:
        super().__init__(code, user)
        self.code = code
        self.user = user

    def __str__(self) -> str:
        who = f"the user {self.user}" if self.user else "the user in MONGODB_URI"
        if self.user == "":
            who = "nobody in particular (MONGODB_URI names no user)"
        if self.code == AUTHENTICATION_FAILED:
            return (
                f"MongoDB refuses {who}: wrong name or password. If the password was replaced, "
                "restart this process; else `linedesk init --users` makes user and password anew"
            )
        return (
            f"MongoDB does not allow {who} what this process does: `linedesk init --users` gives "
            "each user the rights it needs"
        )


class Replaced(QueueError):
    """A write met a higher epoch: another process has taken over, so this one must stop."""


class NotAScope(QueueError):
    """Not a conversation, a channel or everything: the text may be shown to anybody."""

    def __init__(self, words: str) -> None:
        super().__init__(
            f"{words} names neither a channel (main), a conversation (main/U…) nor all"
        )


# Codes of MongoDB's error_codes.yml that a repetition can mend although the driver does not
# label them: interrupted, shutting down, not primary, step-down, exceeded time, majority lost, a
# database that is just being dropped, a storage engine whose cache is full of others' writes
# (TransactionTooLargeForCache), and a cursor that is gone (CursorNotFound, QueryPlanKilled,
# CursorKilled, RetryChangeStream).
TRANSIENT_CODES = frozenset(
    {6, 7, 50, 63, 64, 79, 89, 91, 100, 112, 133, 134, 189, 202, 215, 246, 262, 290, 317, 358, 388}
    | {9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436}
    | {43, 175, 234, 237}
)


def is_transient(error: PyMongoError) -> bool:
    """Whether the same operation may succeed later without anybody changing anything."""
    if isinstance(error, BulkWriteError):
        return False
    if isinstance(error, (ConnectionFailure, ExecutionTimeout, WTimeoutError)) or error.timeout:
        return True
    if isinstance(error, OperationFailure):
        return error.code in TRANSIENT_CODES or error.has_error_label("RetryableWriteError")
    return False


def translate(error: PyMongoError) -> Exception:
    """StoreUnavailable for what a repetition may mend, AccessRefused where the user's rights end;
    the error itself for all else.
    """
    if isinstance(error, OperationFailure) and error.code in (AUTHENTICATION_FAILED, UNAUTHORIZED):
        return AccessRefused(error.code)
    if not is_transient(error):
        return error
    unavailable = StoreUnavailable(type(error).__name__)
    unavailable.__cause__ = error
    return unavailable


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into those of `translate`; let all others through."""
    try:
        yield
    except PyMongoError as error:
        raise translate(error)  # noqa: B904  # the cause is set, or it is the error itself


# What findAndModify, whose errors are no WriteError, says of the one document that it would make:
# BadValue, TypeMismatch, Overflow, PathNotViable, DollarPrefixedFieldName, NotSingleValueField,
# EmptyFieldName, DottedFieldName, ImmutableField, DocumentValidationFailure.
OF_ONE_DOCUMENT = TOO_LARGE | {2, 14, 15, 28, 52, 54, 56, 57, 66, 121}


@contextmanager
def writing_one() -> Iterator[None]:
    """As `translated`, around the write of one document: WriteRefused where MongoDB refuses it
    because of what it is. A duplicate key is let through.
    """
    try:
        with translated():
            yield
    except DuplicateKeyError:
        raise
    except OperationFailure as error:
        if isinstance(error, WriteError) or error.code in OF_ONE_DOCUMENT:
            raise WriteRefused(error.code) from error
        raise
    except BSONError as error:
        raise WriteRefused(10334 if isinstance(error, DocumentTooLarge) else 0) from error
