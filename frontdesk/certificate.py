"""The certificate that the front desk shows, and the renewed one that takes its place.

A renewal writes two files, so for a moment they belong to different certificates: only a pair
that fits is ever taken, and what was in use stays until then.
"""

from __future__ import annotations

import logging
import ssl
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from frontdesk.errors import CannotListen
from frontdesk.figures import clock_time

log = logging.getLogger(__name__)

# Let's Encrypt's own clients renew a month before the end.
LATE_SECONDS = 14 * 86_400.0
REMIND_SECONDS = 86_400.0

Print = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class _Taken:
    """A pair that fits: `until` is of time.time(); `invalid` says why nobody will accept it."""

    context: ssl.SSLContext
    until: float | None
    invalid: str | None


class Certificate:
    """The pair of files that is in use. `look` and `reread` may be called on any one thread."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises CannotListen where the pair cannot be used."""
        self._files = certificate, key
        self._seen = _print(self._files)
        self._unfit: Print | None = None
        self._told: Print | None = None
        self._reminded = float("-inf")
        try:
            self._taken = _take(*self._files)
        except OSError as error:
            raise CannotListen(
                f"FRONTDESK_TLS_CERT {certificate} and FRONTDESK_TLS_KEY {key} "
                f"cannot be used: {error}"
            ) from error
        self._say()

    @property
    def context(self) -> ssl.SSLContext:
        """What new handshakes are made with."""
        return self._taken.context

    def look(self) -> None:
        """Take what was renewed since the last look, if it fits.

        What does not fit is told once, at the second look: amid a renewal it mends itself.
        """
        now = _print(self._files)
        if now != self._seen:
            self._replace(now, patient=self._unfit != now)
        self._remind()

    def reread(self) -> None:
        """Take what is there now, if it fits; says so if it does not."""
        self._told = None
        self._replace(_print(self._files), patient=False)

    def _replace(self, now: Print, *, patient: bool) -> None:
        try:
            self._taken = _take(*self._files)
        except OSError as error:
            self._unfit = now
            if not patient and self._told != now:
                self._told = now
                log.error(  # noqa: TRY400 - the reason is all there is to know
                    'certificate cannot be used, the one before stays reason="%s"', error
                )
            return
        # Taken before the files were read, so a change meanwhile shows at the next look.
        self._seen, self._unfit, self._told = now, None, None
        self._reminded = float("-inf")
        self._say()

    def _say(self) -> None:
        taken = self._taken
        if taken.invalid is not None:
            log.error('certificate will not be accepted by LINE reason="%s"', taken.invalid)
        elif taken.until is not None:
            log.info('certificate taken until="%s"', clock_time(taken.until))

    def _remind(self) -> None:
        """A renewal that never comes must not stay unseen until LINE calls in vain."""
        until, now = self._taken.until, time.time()
        if until is None or until - now > LATE_SECONDS or now - self._reminded < REMIND_SECONDS:
            return
        self._reminded = now
        log.error('certificate is not renewed until="%s"', clock_time(until))


def _print(files: tuple[Path, Path]) -> Print:
    """What changes with each renewal; the empty one where a file is missing."""
    found = []
    for path in files:
        with suppress(OSError):
            at = path.stat()
            found.append((at.st_ino, at.st_mtime_ns, at.st_size))
    return tuple(found) if len(found) == len(files) else ()


def _take(certificate: Path, key: Path) -> _Taken:
    """Load and try them; raises OSError (ssl.SSLError is one) where they do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without one OpenSSL would ask a terminal for the key's password, and wait.
    context.load_cert_chain(certificate, key, password="")
    try:
        return _Taken(context, _valid_until(context, certificate), None)
    except ssl.SSLCertVerificationError as error:
        return _Taken(context, None, error.verify_message)


def _valid_until(context: ssl.SSLContext, certificate: Path) -> float:
    """Shake hands with ourselves, which shows what a client will say of the certificate.

    Raises ssl.SSLCertVerificationError where it has expired, or is not one for a server.
    """
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname = False
    trusting.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    trusting.load_verify_locations(certificate)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusting.wrap_bio(to_client, to_server)
    server = context.wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client, server):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()
    shown = client.getpeercert()
    assert shown is not None
    return ssl.cert_time_to_seconds(str(shown["notAfter"]))
