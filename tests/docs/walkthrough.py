"""A learner who follows a page: types its blocks, and compares the outputs that it shows.

A `console` block is typed as it stands. A `python` or `toml` block becomes the file that its first
line names. A `text` block is an output or a chat on the simulator's page.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import requests

from linedesk.setup.private_mongod import free_port
from tests.linedesk.processes import children_of
from tests.waiting import eventually, ran

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^( *)```(\w+)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
# The first line of a block: its file, and where in the file it belongs unless it is all of it.
NAMED = re.compile(r"# ([\w./-]+\.(?:py|toml))(?:, (in place of|before) (.*))?\n")
SPAN_SECONDS = {"+1分": 60, "+10分": 600, "+1時間": 3600, "+1日": 24 * 3600}
ENVIRONMENT = ("PATH", "LANG", "TMPDIR")


class Block(NamedTuple):
    kind: str
    text: str


def blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, given by its path in the checkout."""
    found = BLOCK.findall((ROOT / page).read_text("utf-8"))
    return [Block(kind, textwrap.dedent(text)) for _, kind, text in found]


def put(block: Block, folder: Path) -> None:
    """Write the block into the file that its first line names, as the page tells."""
    named = NAMED.match(block.text)
    assert named is not None, f"a block that names no file: {block.text[:60]}"
    name, place, line = named.groups()
    path, new = folder / name, block.text
    if place is not None:
        text, new = path.read_text("utf-8"), block.text.partition("\n")[2]
        assert text.count(line) == 1, f"not once in {name}: {line}"
        at = text.index(line) if place == "in place of" else text.rindex("\n", 0, text.index(line))
        end = text.index(line) + len(line) if place == "in place of" else at + 1
        at = at if place == "in place of" else at + 1
        new = text[:at] + (new.rstrip("\n") if place == "in place of" else new) + text[end:]
    path.write_text(new, "utf-8")


class Walk:
    """Takes the blocks of a page in their order, so that no block is left out."""

    def __init__(self, page: str) -> None:
        self._blocks = iter(blocks(page))

    def next(self, kind: str, beginning: str = "") -> Block:
        """Return the next block, which must be of this kind and begin with these words."""
        block = next(self._blocks)
        assert block.kind == kind, f"{block.kind} in place of {kind}: {block.text[:60]}"
        assert block.text.startswith(beginning), block.text[:60]
        return block

    def end(self) -> None:
        left = next(self._blocks, None)
        assert left is None, f"a block that no test runs: {left}"


class Learner:
    """A home folder with the checkout in `~/linedesk`, and terminals."""

    def __init__(self, home: Path, sim_port: int, desk_port: int) -> None:
        self.home = home
        (home / "linedesk").symlink_to(ROOT)
        self.sim = f"http://127.0.0.1:{sim_port}"
        self.desk = f"http://127.0.0.1:{desk_port}"
        self._setup = ""
        self._running: list[Running] = []

    @classmethod
    def in_folder(cls, home: Path) -> Learner:
        """Return one whose simulator and front desk have free ports."""
        return cls(home, free_port(), free_port())

    def __enter__(self) -> Learner:
        return self

    def __exit__(self, *_: object) -> None:
        for running in reversed(self._running):
            running.kill()

    def in_each_terminal(self, block: Block) -> None:
        """Type this block first in each terminal from now on."""
        self._setup = block.text

    def types(self, block: Block, *, codes: tuple[int, ...] = (0,)) -> str:
        """Type the block in a terminal, and return its output."""
        done = ran(["bash", "-e", "-c", self._commands(block)], cwd=self.home, env=self._environ())
        output = done.stdout + done.stderr
        assert done.returncode in codes, output
        return output

    def starts(self, block: Block) -> Running:
        """Type a block whose last command runs until Ctrl-C."""
        number = len(self._running)
        log = self.home / f"terminal-{number}.log"
        running = Running(self._commands(block), log, cwd=self.home, environ=self._environ())
        self._running.append(running)
        return running

    def puts(self, block: Block, folder: str) -> None:
        """Write the block's file into a folder of the home."""
        put(Block(block.kind, self.here(block.text)), self.home / folder)

    def here(self, text: str) -> str:
        """The text with the ports of this run."""
        text = text.replace("http://127.0.0.1:9000", self.sim)
        return text.replace("http://127.0.0.1:8000", self.desk)

    def chat(self) -> Chat:
        return Chat(self.sim)

    def _commands(self, block: Block) -> str:
        sim = f"linedesk sim --port {self.sim.rpartition(':')[2]}"
        return f"{self._setup}\n{self.here(block.text).replace('linedesk sim', sim)}"

    def _environ(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
        return kept | {"HOME": str(self.home), "FRONTDESK_PORT": self.desk.rpartition(":")[2]}


class Running:
    """A terminal in which a command runs until Ctrl-C."""

    def __init__(self, commands: str, log: Path, *, cwd: Path, environ: dict[str, str]) -> None:
        self._log = log
        with log.open("wb") as file:
            self._shell = subprocess.Popen(
                ["bash", "-e", "-c", f"{commands}\necho ended=$?"],
                cwd=cwd,
                env=environ,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    @property
    def output(self) -> str:
        return self._log.read_text("utf-8")

    def wait_for(self, *lines: str) -> None:
        """Wait until each of these lines was printed."""
        eventually(lambda: self._has(lines), seconds=60)

    def ctrl_c(self) -> None:
        """Press Ctrl-C, and wait until the command has ended in order."""
        for child in children_of(self._shell.pid):
            os.kill(child, signal.SIGINT)
        self._shell.wait(60)
        assert "ended=0" in self.output, self.output

    def kill(self) -> None:
        """End what may be left of it."""
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait(60)

    def _has(self, lines: tuple[str, ...]) -> bool:
        assert self._shell.poll() is None, self.output
        return all(line in self.output for line in lines)


class Chat:
    """The simulator's page: plays the lines of a dialogue, and compares what the bot says."""

    def __init__(self, sim: str) -> None:
        self._sim = sim
        self._users: dict[str, str] = {}
        self._seen: dict[str, int] = {}
        self._speaker = ""

    def play(self, dialogue: Block) -> None:
        """Play it line by line; dates may differ."""
        for line in dialogue.text.splitlines():
            speaker, _, words = line.partition(": ")
            if speaker == "ボット":
                self._hears(words)
            elif words:
                self._says(speaker, words)
            else:
                self._post("clock", {"advance": SPAN_SECONDS[line.strip("()")]})
        for name, user in self._users.items():
            assert len(self._of_bot(user)) == self._seen[name], f"more messages to {name}"

    def _says(self, name: str, words: str) -> None:
        self._speaker = name
        if name not in self._users:
            self._users[name] = self._post("users", {"name": name, "friend": False})["userId"]
            self._seen[name] = 0
        user = self._users[name]
        act = {"act": "text", "text": words}
        act = {"act": "follow"} if words == "(友だち追加)" else act
        delivery = self._post("deliveries", {"acts": [{"user": user, **act}]})
        assert delivery["status"] == 200, delivery

    def _hears(self, words: str) -> None:
        user, number = self._users[self._speaker], self._seen[self._speaker]
        said = eventually(lambda: self._of_bot(user)[number:], seconds=30)
        assert undated(said[0]) == undated(words)
        self._seen[self._speaker] += 1

    def _of_bot(self, user: str) -> list[str]:
        bubbles = requests.get(f"{self._sim}/sim/chats/{user}", timeout=10).json()
        return [each["message"]["text"] for each in bubbles if each["speaker"] == "bot"]

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = requests.post(f"{self._sim}/sim/{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json()


def undated(text: str) -> str:
    """The text without what differs from day to day."""
    text = re.sub(r"\d{1,2}月\d{1,2}日", "M月D日", text)
    return re.sub(r"\d{4}-\d\d-\d\d", "YYYY-MM-DD", text)


def lines_of(block: Block) -> Iterator[str]:
    """The lines of an output that a page shows."""
    yield from (undated(line.strip()) for line in block.text.splitlines() if line.strip())
