"""The bot and the steps to production of README.md are run as written, in both languages the same.

The bot runs in a folder outside this checkout. Files with the names of linedesk's own packages lie
beside it and must not be imported. Commands find the database of `linedesk up` by themselves.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

import requests

from linedesk.setup.private_mongod import free_port
from tests.conftest import need_mongod
from tests.deploy.box import Box
from tests.docs.walkthrough import blocks
from tests.waiting import Ended, eventually, ran

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PLANTED = "raise RuntimeError('imported in place of ours')\n"


def block(page: str, kind: str, word: str) -> str:
    """Return the one block of a page that is of this kind and has this word."""
    (one,) = (found for found in blocks(page) if found.kind == kind and word in found.text)
    return one.text


class Trial:
    """A user's folder with the README's bot, in which the README's commands run."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self._log = home, home / "my bots", home / "log"
        self.folder.mkdir()
        # The page's name for the checkout.
        (home / "linedesk").symlink_to(ROOT)
        (self.folder / "mybot.py").write_text(block("README.md", "python", "def count"), "utf-8")
        for name in PACKAGES:
            (self.folder / f"{name}.py").write_text(PLANTED)
        self._sim, self._desk = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        told = {name: os.environ[name] for name in ("PATH", "LANG", "TMPDIR") if name in os.environ}
        port = self._desk.rpartition(":")[2]
        self._environ = told | {"HOME": str(home), "FRONTDESK_PORT": port}
        self._lines = block("README.md", "console", "linedesk sim &").replace(
            "http://127.0.0.1:9000", self._sim
        )
        self._lines = self._lines.replace("sim &", f"sim --port {self._sim.rpartition(':')[2]} &")

    def __enter__(self) -> Trial:
        with self._log.open("ab") as log:
            self._shell = subprocess.Popen(
                ["bash", "-c", f"{self._lines}\necho up=$?\nkill %1"],
                cwd=self.folder,
                env=self._environ,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait(60)

    @property
    def log(self) -> str:
        return self._log.read_text("utf-8")

    def wait_until_ready(self) -> None:
        eventually(self._is_ready, seconds=100)

    def says(self, text: str) -> str:
        """Send a text as a new user, and return the bot's answer."""
        user = self._post("users", {"name": "花子", "friend": True})["userId"]
        self._post("deliveries", {"acts": [{"user": user, "act": "text", "text": text}]})
        (call,) = eventually(self._replies, seconds=60)
        return str(call["body"]["messages"][0]["text"])

    def linedesk(self, *words: str) -> Ended:
        """Type a command in a second terminal, after the block's exports only."""
        exports = [line for line in self._lines.splitlines() if re.match("source|export", line)]
        return ran(
            ["bash", "-c", "\n".join([*exports, f"linedesk {' '.join(words)}"])],
            cwd=self.folder,
            env=self._environ,
        )

    def healthy_status(self) -> str:
        """What `linedesk status` prints; empty while it sees a critical problem."""
        told = self.linedesk("status", "--json")
        return told.stdout if told.returncode == 0 else ""

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        answer = requests.post(f"{self._sim}/sim/{path}", json=body, timeout=10)
        answer.raise_for_status()
        return answer.json()

    def _replies(self) -> list[Any]:
        calls = requests.get(f"{self._sim}/sim/calls", timeout=10).json()
        return [call for call in calls if call["endpoint"] == "reply"]

    def _is_ready(self) -> bool:
        assert self._shell.poll() is None, self.log
        assert "restarting" not in self.log, self.log
        if "INFO dispatcher ready" not in self.log:
            return False
        with suppress(requests.ConnectionError):
            return requests.get(f"{self._desk}/readyz", timeout=5).ok
        return False


def test_the_block_runs_the_bot_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    need_mongod()
    with Trial(tmp_path) as trial:
        trial.wait_until_ready()
        assert trial.says("おはよう") == "1回目の「おはよう」ですね。"
        assert (trial.home / ".local/state/linedesk/spool.db").exists()
        # A busy machine may renew the lease late for a moment.
        told = eventually(trial.healthy_status, seconds=60)
        assert json.loads(told)["processes"]


def test_the_steps_to_production_install_and_check_a_box(tmp_path: Path) -> None:
    """On a folder as the root of a machine; tests/booted runs the same commands on a real one."""
    box = Box(tmp_path)
    secrets = {"LINE_CHANNEL_SECRET": "0" * 32, "LINE_CHANNEL_ACCESS_TOKEN": "token"}
    environ = box.environ() | secrets
    environ["PATH"] += f":{box.path('usr/local/bin')}"
    for word in ("deploy/install.sh", "linedesk doctor"):
        done = ran(
            ["bash", "-e", "-c", block("README.md", "console", word)], cwd=box.checkout, env=environ
        )
        assert done.returncode == 0, done.stdout + done.stderr
    assert box.releases == [box.current]
    assert box.calls("linedesk doctor")


def test_both_languages_show_the_same_blocks() -> None:
    assert blocks("README.md") == blocks("README.ja.md")
