"""Commands in the tests' process, and on a real pseudo-terminal."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from click.testing import CliRunner, Result

from linedesk.launch import main
from tests.waiting import eventually

COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


Run = Callable[..., Result]


def typed(environ: dict[str, str], *group: str) -> Run:
    """Runs commands of the group; each has to end with its code."""

    def run(*arguments: str, code: int = 0) -> Result:
        answer = CliRunner().invoke(main.linedesk, [*group, *arguments], env=environ)
        assert answer.exit_code == code, answer.output
        return answer

    return run


@contextmanager
def terminal(
    environ: dict[str, str], *arguments: str, columns: int = 80
) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """A command on a terminal of so many columns and 24 lines: its other end, and the process."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    # A test's own process may have them set, and they go before the terminal's size.
    inherited = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "linedesk", *arguments],
        cwd=Path(__file__).parents[3],
        env=inherited | environ | {"TERM": "xterm"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        # So that Ctrl-C on this terminal reaches it.
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )
    os.close(slave)
    try:
        yield master, process
    finally:
        os.close(master)
        process.kill()
        process.wait(30)


def until(master: int, words: str) -> str:
    """The output up to these words."""
    shown = b""
    while words.encode() not in shown:
        shown += os.read(master, 65536)
    # A read may end amid a character.
    return shown.decode(errors="replace")


def until_asked(master: int, process: subprocess.Popen[bytes], words: str) -> str:
    """The output up to this question, when the process waits for the answer.

    A Ctrl-C just before would only take effect at the next key: Python's `input` has checked for
    signals, but does not wait yet.
    """
    shown = until(master, words)
    stat = Path(f"/proc/{process.pid}/stat")
    eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
    return shown


def to_the_end(master: int) -> str:
    """All that is shown until the last process of the terminal has ended."""
    shown = b""
    # Linux reports the end of the last process as an error.
    with suppress(OSError):
        while piece := os.read(master, 65536):
            shown += piece
    return shown.decode(errors="replace")


def shown_on(environ: dict[str, str], *arguments: str, columns: int) -> tuple[list[str], int]:
    """The lines of a command that ends by itself, without colours, and its exit code."""
    with terminal(environ, *arguments, columns=columns) as (master, process):
        shown = to_the_end(master)
        code = process.wait(30)
    return [COLOUR.sub("", one).rstrip() for one in shown.splitlines()], code
