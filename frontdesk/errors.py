"""Every error of the front desk, split by the caller's reaction.

* FrontdeskError
  * Refused        one request gets this status and reason; none of its events counts as stored
    * BadRequest     400
    * BadSignature   401
    * TooSlow        408
    * TooLarge       413
    * NotStored      503
  * KeysSpooled    internal: the documents queue up behind others of their keys
  * CannotListen   fatal: the operator has to change a setting, and the message names it
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar


class FrontdeskError(Exception):
    """Base of every error of the front desk."""


class Refused(FrontdeskError):
    """A request that is not accepted; the text is the reason for the answer and the log.

    The text never holds the request's content, a host, a secret or an expected signature.
    """

    status: ClassVar[int]
    counted_as: ClassVar[str]
    """One of `frontdesk.metrics.REASONS`."""


class BadRequest(Refused):
    """The body is not a LINE webhook; sending it again would not help."""

    status = 400
    counted_as = "body"


class BadSignature(Refused):
    """The signature is missing, or matches none of the channel secrets."""

    status = 401
    counted_as = "signature"


class TooSlow(Refused):
    """The body did not arrive before LINE's time-out."""

    status = 408
    counted_as = "slow"


class TooLarge(Refused):
    """The body, or its size in MongoDB, is over the limit."""

    status = 413
    counted_as = "size"


class NotStored(Refused):
    """No store confirmed in time; sending it again later may help.

    `detail` is for the log only.
    """

    status = 503
    counted_as = "store"

    def __init__(self, reason: str, *, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail


class KeysSpooled(FrontdeskError):
    """Nothing was stored: the spool holds earlier documents of these keys (channel and key)."""

    def __init__(self, keys: Collection[tuple[str, str]]) -> None:
        super().__init__(f"{len(keys)} keys")
        self.keys = keys


class CannotListen(FrontdeskError):
    """The address or the certificate cannot be used; the message names the setting."""
