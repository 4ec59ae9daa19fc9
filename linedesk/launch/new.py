"""`linedesk new`: a folder with a bot, its tests, and what runs both."""

from __future__ import annotations

import keyword
import sys
from pathlib import Path

from linedesk.operate.text import NotDone
from linedesk.runtime import PACKAGES

FILES = Path(__file__).with_name("new_bot")
# The name of the bot within the files, and the files that get its name.
SAMPLE = "mybot"


def make_bot(name: str, *, language: str) -> Path:
    """Write the folder into the working directory and return it. Raises NotDone."""
    if not name.isidentifier() or keyword.iskeyword(name) or name != name.lower():
        raise NotDone(f"{name!r} is no name of a Python module: use a-z, 0-9 and _")
    if name in sys.stdlib_module_names or name in (*PACKAGES, "linebot", "pytest"):
        raise NotDone(f"a module {name!r} exists already: choose another name")
    folder = Path(name)
    try:
        folder.mkdir()
    except OSError as error:
        raise NotDone(f"{folder} cannot be made: {error.strerror}") from error
    for source in sorted(FILES.iterdir()):
        target = source.name.removesuffix(".in").replace(SAMPLE, name)
        if target.startswith("README"):
            if target != f"README.{language}.md":
                continue
            target = "README.md"
        text = source.read_text("utf-8").replace(SAMPLE, name)
        (folder / target).write_text(text, "utf-8")
    return folder
