"""The log: its lines, colours and masked secrets, and that no value can forge a line."""

import io
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from linedesk.runtime import PACKAGES
from linedesk.runtime.logging import configure_logging

ROOT = Path(__file__).parents[3]
SECRET = "8c570fa6dd201bb328f1c1eac23a96d8"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"


@pytest.fixture(autouse=True)
def logging_put_back() -> Iterator[None]:
    """configure_logging owns the logging of its process; here it borrows pytest's."""
    names = (None, *PACKAGES, "shop", "uvicorn", "uvicorn.error", "uvicorn.access")
    before = {name: _state(logging.getLogger(name)) for name in names}
    yield
    logging.captureWarnings(False)
    for name, (level, handlers, propagate) in before.items():
        logger = logging.getLogger(name)
        logger.level, logger.handlers, logger.propagate = level, handlers, propagate
        logger.setLevel(level)


def _state(logger: logging.Logger) -> tuple[int, list[logging.Handler], bool]:
    return logger.level, list(logger.handlers), logger.propagate


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def test_a_line_is_time_level_package_message(stream: io.StringIO) -> None:
    configure_logging(stream=stream)
    logging.getLogger("frontdesk.app").info("accepted events=%d ms=%.1f", 3, 1.84)
    line = stream.getvalue()
    assert re.fullmatch(rf"{TIME} INFO frontdesk accepted events=3 ms=1\.8\n", line)


@pytest.mark.parametrize(
    ("options", "shows"),
    [({}, False), ({"verbose": True}, True), ({"environ": {"LINEDESK_STARTED_BY": "up"}}, True)],
)
def test_a_handlers_traceback_is_shown_to_an_author_only(
    options: dict[str, Any], shows: bool, stream: io.StringIO
) -> None:
    configure_logging(stream=stream, **options)
    below = "Traceback (most recent call last):\nKeyError: '初診'\n"
    logging.getLogger("jobworker").warning("handler failed", extra={"below": below})
    lines = ["  | Traceback (most recent call last):", "  | KeyError: '初診'"]
    assert stream.getvalue().splitlines()[1:] == (lines if shows else [])


def test_lines_of_uvicorn_are_for_the_verbose(stream: io.StringIO) -> None:
    for verbose in (False, True):
        configure_logging(stream=stream, verbose=verbose)
        logging.getLogger("uvicorn.error").info("Started server process verbose=%s", verbose)
        logging.getLogger("uvicorn.error").warning("Invalid HTTP request received.")
    assert "verbose=False" not in stream.getvalue()
    assert "verbose=True" in stream.getvalue()
    assert stream.getvalue().count("Invalid HTTP request received.") == 2


@pytest.mark.parametrize("breaker", ["\n", "\r", "\u2028"])
def test_a_value_cannot_begin_a_new_line(breaker: str, stream: io.StringIO) -> None:
    configure_logging(stream=stream)
    forged = f"x{breaker}2026-11-21T00:00:00.000Z INFO frontdesk.app accepted"
    logging.getLogger("frontdesk").warning("refused reason=%s", forged)
    assert len(stream.getvalue().splitlines()) == 1
    assert "accepted" in stream.getvalue()


def test_secrets_are_masked_wherever_they_slip_in(stream: io.StringIO) -> None:
    configure_logging(stream=stream, secrets=[SECRET, "", "p%40ss(word"])
    log = logging.getLogger("jobworker")
    log.info("message %s", SECRET)
    log.info(f"in the middle{SECRET}of words p%40ss(word")
    log.info("argument %r", {"Authorization": f"Bearer {SECRET}"})
    try:
        raise RuntimeError(SECRET) from KeyError(SECRET)
    except RuntimeError:
        log.exception("failed")
    assert SECRET not in stream.getvalue()
    assert "p%40ss(word" not in stream.getvalue()
    assert "in the middle***of words ***" in stream.getvalue()


def test_the_longer_of_two_secrets_is_masked_whole(stream: io.StringIO) -> None:
    configure_logging(stream=stream, secrets=["secret", "secret-and-more"])
    logging.getLogger("linedesk.store").info("x=secret-and-more")
    assert stream.getvalue().endswith("x=***\n")


def test_japanese_is_utf8_whatever_the_locale() -> None:
    program = (
        "import logging; from linedesk.runtime.logging import configure_logging\n"
        "configure_logging()\n"
        "logging.getLogger('bots').info('\\u3042\\u3000\\U0001f99c %s', '\\ud800')"
    )
    environ = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    answer = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=os.environ | environ,
        capture_output=True,
        timeout=30,
        check=True,
    )
    assert answer.stderr.decode("utf-8").endswith("INFO bots あ\u3000🦜 \\ud800\n")
