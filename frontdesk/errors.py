"""Everything that can go wrong at the front desk, split by what the caller does about it.

* FrontdeskError
  * Refused        one request gets this status and reason; nothing of it counts as stored
    * BadRequest     400
    * BadSignature   401
    * TooSlow        408
    * TooLarge       413
    * NotStored      503
  * KeysSpooled    not for the sender: the documents queue up behind others of their keys
  * CannotListen   fatal: a person has to change a setting, and the message names it
"""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar


class FrontdeskError(Exception):
    """Base of every error of the front desk."""


class Refused(FrontdeskError):
    """A request that is not accepted; the text is the reason, and goes into answer and log.

    It names neither what the request held nor a host, a secret or an expected signature.
    """

    status: ClassVar[int]
    counted_as: ClassVar[str]
    """One of `frontdesk.metrics.REASONS`."""


class BadRequest(Refused):
    """The body is not what LINE sends, and sending it again would not help."""

    status = 400
    counted_as = "body"


class BadSignature(Refused):
    """The signature is missing, or was made with none of the channel secrets."""

    status = 401
    counted_as = "signature"


class TooSlow(Refused):
    """The body did not arrive while an answer was still worth giving."""

    status = 408
    counted_as = "slow"


class TooLarge(Refused):
    """The body, or what it would take in MongoDB, is over the limit."""

    status = 413
    counted_as = "size"


class NotStored(Refused):
    """No store confirmed in time, or none is known to; sending it again later may help.

    `detail` is for the log alone.
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
