"""All errors at the border to MongoDB, grouped by the caller's reaction.

* QueueError
  * StoreUnavailable   transient: try again; the outcome of the write is unknown
    * RecvqClosed      nothing was inserted: unread documents would have been overwritten
    * WriteRefused     permanent, for this one document only
  * SpoolUnavailable   transient: the spool refuses it; the message has the reason
    * SpoolDamaged     its file cannot be read and is set aside
  * SetupError         fatal: the operator has to change something; the message names it
    * WrongCollection  recvq is missing, uncapped or without its index
    * NotReplicaSet    the server has no change stream or oplog
    * OtherSchema      another version of linedesk has written the documents
    * AccessRefused    the user's password is wrong, or a right is missing
  * Replaced           fatal: a successor with a higher epoch has taken over; stop at once
  * NotAScope          an operator's text is not a valid scope
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    ExecutionTimeout,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from linedesk.runtime.language import gettext as _
from linedesk.runtime.language import mark
from linedesk.runtime.outage import is_away


class QueueError(Exception):
    """Base of every error that recvq raises."""


class StoreUnavailable(QueueError):
    """MongoDB did not confirm on a majority in time; the write may or may not be stored."""


class RecvqClosed(StoreUnavailable):
    """recvq accepts no inserts: it is full of unread documents, or misconfigured."""


# The cause of a dead letter, or the reason why a conversation waits.
REFUSED_WORDS = "MongoDB refuses the write"
# The limit of a document is 16 MB: BSONObjectTooLarge, and the codes of an update that exceeds it
# slightly (17419; 17420 for an upsert).
TOO_LARGE = frozenset({10334, 17419, 17420})


class WriteRefused(StoreUnavailable):
    """MongoDB refuses one document permanently: it would be too large, has fields of unexpected
    types, or fails a validator.

    Callers that do not give up retry as after an outage; no process ends. `code` is MongoDB's, 0
    where the driver could not encode it.
    """

    def __init__(self, code: int | None) -> None:
        self.code = code or 0
        self.is_too_large = self.code in TOO_LARGE
        self.about = {"tooLarge": True} if self.is_too_large else {"errorCode": self.code}
        """The values of a cause: the document would be too large, or MongoDB's code."""
        why = "the document would be larger than 16 MB" if self.is_too_large else f"code {code}"
        super().__init__(f"{REFUSED_WORDS}: {why}")


class SpoolUnavailable(QueueError):
    """The spool could not store or return a document; the text is safe to show to clients.

    `detail` names the file and SQLite's error; it is only for the log.
    """

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail


class SpoolDamaged(SpoolUnavailable):
    """The spool's file is not a database, or is corrupt."""


class SetupError(QueueError):
    """The server or a collection does not meet linedesk's needs; the message explains the fix."""


class WrongCollection(SetupError):
    """recvq is missing, not capped, or without its unique index on eventId."""


class NotReplicaSet(SetupError):
    """The server is standalone and has no change stream or oplog."""


class OtherSchema(SetupError):
    """Another version of linedesk has written the documents: this one would misread them."""

    def __init__(self, what: str, schema: int, known: int) -> None:
        newer = _(
            "{what} was written by a newer release of linedesk (schema {schema}, this release "
            "supports {known}): run that release or a later one"
        )
        older = _(
            "{what} was written by a development version of linedesk (schema {schema}, this "
            "release supports {known}): `linedesk export` it with that version, then `linedesk "
            "import` the export into an empty database with this release"
        )
        told = newer if schema > known else older
        super().__init__(told.format(what=what, schema=schema, known=known))


AUTHENTICATION_FAILED = 18
UNAUTHORIZED = 13
IN_URI = mark("the user in MONGODB_URI")


class AccessRefused(SetupError):
    """MongoDB knows no such user and password (code 18), or the user may not do this (code 13).

    `user` is its name, empty if MONGODB_URI has none. The text is never the server's, which quotes
    the document. A restart may fix it, since it reads a replaced password.
    """

    def __init__(self, code: int, user: str | None = None) -> None:
        super().__init__(code, user)
        self.code = code
        self.user = user

    def __str__(self) -> str:
        who = _("the user {user}").format(user=self.user) if self.user else _(IN_URI)
        if self.user == "":
            who = _("clients without a user (MONGODB_URI names none)")
        if self.code == AUTHENTICATION_FAILED:
            told = _(
                "MongoDB refuses {who}: wrong name or password. If the password was replaced, "
                "restart this process; otherwise `linedesk init --users` makes user and password "
                "again"
            )
        else:
            told = _(
                "MongoDB denies {who} an operation of this process: `linedesk init --users` gives "
                "each user the rights it needs"
            )
        return told.format(who=who)


class Replaced(QueueError):
    """A write found a higher epoch: another process has taken over, so this one must stop."""


class NotAScope(QueueError):
    """Not a conversation, a channel or everything; the text is safe to show to clients."""

    def __init__(self, words: str) -> None:
        told = _("{words} is not a channel (main), a conversation (main/U…) or all")
        super().__init__(told.format(words=words))


# Codes of MongoDB's error_codes.yml for which a retry can succeed although the driver does not
# label them: interrupted, shutting down, not primary, step-down, exceeded time, majority lost, a
# database that is being dropped, a storage engine whose cache is full of others' writes
# (TransactionTooLargeForCache), and a lost cursor (CursorNotFound, QueryPlanKilled, CursorKilled,
# RetryChangeStream), and a transaction that MongoDB does not know any more (NoSuchTransaction).
TRANSIENT_CODES = frozenset(
    {6, 7, 50, 63, 64, 79, 89, 91, 100, 112, 133, 134, 189, 202, 215, 246, 251, 262, 290, 317}
    | {358, 388}
    | {9001, 10107, 11600, 11601, 11602, 13388, 13435, 13436}
    | {43, 175, 234, 237}
)


TRANSIENT_LABELS = (
    "RetryableWriteError",
    "TransientTransactionError",
    "UnknownTransactionCommitResult",
)


def is_outage(error: Exception) -> bool:
    """Whether it says that MongoDB is away, and nothing that may stay for good (`Outage`)."""
    stays = isinstance(error, RecvqClosed | WriteRefused)
    return is_away(error) or (isinstance(error, StoreUnavailable) and not stays)


def is_transient(error: PyMongoError) -> bool:
    """Whether the same operation may succeed later without any change by an operator."""
    if isinstance(error, BulkWriteError):
        return False
    # The driver's own check finds the deployment unusable now: no sessions, since the node is
    # neither primary nor secondary, as during a step-down; a too old server; names of a
    # `mongodb+srv` URI that cannot be resolved. None has a code, and an invalid URI has a subtype.
    if type(error) is ConfigurationError:
        return True
    if isinstance(error, (ConnectionFailure, ExecutionTimeout, WTimeoutError)) or error.timeout:
        return True
    if isinstance(error, OperationFailure):
        return error.code in TRANSIENT_CODES or any(map(error.has_error_label, TRANSIENT_LABELS))
    return False


def translate(error: PyMongoError) -> Exception:
    """StoreUnavailable where a retry may help, AccessRefused for missing rights; else the error."""
    if isinstance(error, OperationFailure) and error.code in (AUTHENTICATION_FAILED, UNAUTHORIZED):
        return AccessRefused(error.code)
    if not is_transient(error):
        return error
    told = type(error).__name__
    unavailable = StoreUnavailable(str(error) if told == "ConfigurationError" else told)
    unavailable.__cause__ = error
    return unavailable


@contextmanager
def translated() -> Iterator[None]:
    """Turn the driver's errors into those of `translate`; pass all others on."""
    try:
        yield
    except PyMongoError as error:
        raise translate(error)  # noqa: B904  # the cause is set, or it is the error itself
