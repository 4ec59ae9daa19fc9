"""README's way to run a bot of one's own: that very block, in a folder outside this checkout.

Beside the bot lie files with the names of linedesk's own packages, which must not get in its way;
and the commands find what `linedesk up` runs without being told.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import requests

from linedesk.compose.private_mongod import MongodNotFound, find_mongod, free_port
from tests.conftest import missing
from tests.linedesk.processes import child_of
from tests.waiting import eventually

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PACKAGES = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
PLANTED = "raise RuntimeError('imported in place of ours')\n"


def block(page: str, kind: str, word: str) -> str:
    """The page's one block of a kind that has this word."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    (one,) = [block for block in found if word in block]
    return str(one)


class Trial:
    """A person's folder with the README's bot, and the README's commands at work in it."""

    def __init__(self, home: Path) -> None:
        self.home, self.folder, self._log = home, home / "my bots", home / "log"
        self.folder.mkdir()
        # As the page says, ~/linedesk is where the checkout lies.
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

    def ctrl_c(self) -> None:
        up = child_of(self._shell.pid, "linedesk up")
        assert up is not None
        os.kill(up, signal.SIGINT)
        self._shell.wait(60)

    def says(self, text: str) -> str:
        """What the bot answers somebody new."""
        user = self._post("users", {"name": "花子", "friend": True})["userId"]
        self._post("deliveries", {"acts": [{"user": user, "act": "text", "text": text}]})
        (call,) = eventually(self._replies, seconds=60)
        return str(call["body"]["messages"][0]["text"])

    def linedesk(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in a second terminal, in which only the block's exports were typed."""
        exports = [line for line in self._lines.splitlines() if re.match("source|export", line)]
        return subprocess.run(
            ["bash", "-c", "\n".join([*exports, f"linedesk {' '.join(words)}"])],
            cwd=self.folder,
            env=self._environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

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


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    try:
        find_mongod()
    except MongodNotFound as error:
        missing(str(error))
    with Trial(tmp_path_factory.mktemp("home")) as trial:
        trial.wait_until_ready()
        yield trial


def test_the_block_runs_the_bot_in_a_folder_of_ones_own(trial: Trial) -> None:
    assert trial.says("おはよう") == "花子さん、1回目の「おはよう」ですね。"
    assert (trial.home / ".local/state/linedesk/spool.db").exists()


def test_both_languages_show_the_same_block() -> None:
    for kind, word in (("console", "linedesk sim &"), ("python", "def count")):
        assert block("README.md", kind, word) == block("README.ja.md", kind, word)


def test_doctor_and_status_find_what_up_runs(trial: Trial) -> None:
    told = trial.linedesk("doctor", "--no-line", "--json")
    checks = {one["name"]: one for one in json.loads(told.stdout)["checks"]}
    states = {name: checks[name]["state"] for name in ("MongoDB", "recvq", "spool disk", "spool")}
    assert set(states.values()) == {"ok"}, told.stdout
    told = trial.linedesk("status", "--json")
    assert told.returncode == 0, told.stderr
    assert json.loads(told.stdout)["processes"]


def test_ctrl_c_ends_up_and_kill_ends_the_simulator(trial: Trial) -> None:
    """The last one: nothing runs afterwards."""
    trial.ctrl_c()
    assert "up=0" in trial.log
    assert "restarting" not in trial.log
