"""How every process logs: one line per record on stderr, in UTC, in UTF-8, without secrets.

A record cannot add lines or send control characters to the terminal. A traceback follows below its
record; its lines are indented and cannot look like records. That of a handler may quote a user: it
is `below` in its record, and is shown only with -v and by `linedesk up`.
"""

from __future__ import annotations

import io
import logging
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from linedesk.runtime import PACKAGES
from linedesk.runtime.language import DEFAULT, speaking
from linedesk.runtime.service_manager import STARTED_BY_VARIABLE, UP

MASK = "***"

# Control characters, line and paragraph separators, and marks that change the text direction.
_UNSAFE = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_COLOURS = {
    logging.DEBUG: "2",
    logging.WARNING: "33",
    logging.ERROR: "31",
    logging.CRITICAL: "1;31",
}


class LineFormatter(logging.Formatter):
    """`<UTC time> <LEVEL> <package> <message>`; masks the secrets in its output."""

    shows_handlers = False

    def __init__(self, *, secrets: Iterable[str] = (), coloured: bool = False) -> None:
        super().__init__()
        self._masked = masking(secrets)
        self._coloured = coloured

    def format(self, record: logging.LogRecord) -> str:
        """The text of one record with its traceback, in English whatever the context speaks."""
        with speaking(DEFAULT):
            message = _one_line(record.getMessage())
            line = f"{_utc(record)} {self._level(record)} {_source(record.name)} {message}"
            below = getattr(record, "below", "") if self.shows_handlers else ""
            if record.exc_info:
                below = self.formatException(record.exc_info)
            lines = [line, *(f"  | {_one_line(part)}" for part in below.splitlines())]
        return self._masked("\n".join(lines))

    def _level(self, record: logging.LogRecord) -> str:
        colour = _COLOURS.get(record.levelno)
        if self._coloured and colour:
            return f"\x1b[{colour}m{record.levelname}\x1b[0m"
        return record.levelname


def configure_logging(
    *,
    level: str = "info",
    verbose: bool = False,
    secrets: Iterable[str] = (),
    own: Iterable[str] = (),
    environ: Mapping[str, str] | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send all records of this process to stderr (or `stream`), in linedesk's format.

    `verbose`, or the level debug, enables debug records of our packages and of those in `own` (the
    operator's bot). The libraries stay at info: pymongo's debug records contain whole documents.
    """
    target = _utf8(stream or sys.stderr)
    environ = environ or {}
    # On a terminal, unless NO_COLOR is set (https://no-color.org).
    coloured = target.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
    handler = logging.StreamHandler(target)
    formatter = LineFormatter(secrets=secrets, coloured=coloured)
    formatter.shows_handlers = verbose or environ.get(STARTED_BY_VARIABLE) == UP
    handler.setFormatter(formatter)
    of_libraries = max(logging.INFO, logging.getLevelNamesMapping()[level.upper()])
    logging.basicConfig(handlers=[handler], level=of_libraries, force=True)
    for name in {*PACKAGES, *own}:
        logging.getLogger(name).setLevel(logging.DEBUG if verbose else level.upper())
    of_uvicorn = logging.INFO if verbose else logging.WARNING
    logging.getLogger("uvicorn").setLevel(max(of_uvicorn, of_libraries))
    for name in ("uvicorn", "uvicorn.error", "uvicorn.access"):
        # The handlers that the library gave its logger would log everything twice.
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # It logs each attempt to connect in several lines; `jobworker.remote.amqp` logs each change.
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    logging.captureWarnings(True)


def _utf8(stream: TextIO) -> TextIO:
    """A UTF-8 stream also under LANG=C; lone surrogates raise no errors."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    return stream


def masking(secrets: Iterable[str]) -> Callable[[str], str]:
    """Return a function that replaces each secret in a text by MASK; empty secrets are ignored."""
    longest_first = sorted(set(filter(None, secrets)), key=len, reverse=True)
    pattern = re.compile("|".join(map(re.escape, longest_first)))
    return lambda text: pattern.sub(MASK, text) if longest_first else text


def _source(logger: str) -> str:
    """The linedesk package of a logger (`dispatcher`, `store`); the name of other loggers.

    Modules move between releases, but the names that operators match on do not.
    """
    first, _, rest = logger.partition(".")
    if first == "linedesk" and rest:
        return rest.partition(".")[0]
    return first if first in PACKAGES else logger


def _utc(record: logging.LogRecord) -> str:
    seconds, milliseconds = divmod(int(record.created * 1000), 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{milliseconds:03d}Z"


def _one_line(text: str) -> str:
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
