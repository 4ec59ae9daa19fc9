"""Runs each command of the tutorial's page 4 as written, on a booted Debian without linedesk.

Run it as root: `python -m tests.booted.tutorial`. The machine has no network, so the programs in
STAND_INS play apt-get, curl and certbot, and ssh and scp reach the booted machine. The simulator is
LINE. pip takes its packages from a folder, and the secrets come by the environment instead of the
terminal.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import linesim
from linedesk.setup.private_mongod import find_mongod
from linesim.model.deliveries import HEADER, sign
from linesim.model.world import User
from tests.booted.machine import ENVIRON, Machine, Nspawn
from tests.booted.root import PROJECT, Missing, checkout, copied, prepare
from tests.docs.walkthrough import Block, blocks, put
from tests.waiting import eventually, ran

PAGE = "docs/tutorial/4-production.md"
MOST_SECONDS = 600
SIM_PORT = 9000
ANSWER_SECONDS = 60.0
MESSAGES = 20
PAUSE_SECONDS = 0.2
UNITS = ("linedesk-frontdesk.service", "linedesk-dispatcher.service")
# They need a network. The key and the certificate lie where the real programs put them.
STAND_INS = {
    "apt-get": "exit 0",
    "curl": 'while [ "$1" != -o ]; do shift; done; echo key >"$2"',
    "certbot": """\
while [ "$1" != -d ]; do shift; done
live=/etc/letsencrypt/live/$2
mkdir -p "$live"
openssl req -x509 -newkey rsa:2048 -nodes -days 90 -subj "/CN=$2" -addext "subjectAltName=DNS:$2" \\
  -keyout "$live/privkey.pem" -out "$live/fullchain.pem" 2>/dev/null""",
}
# On the learner's own computer.
SSH = """\
shift
[ $# -gt 0 ] || exit 0
exec nsenter -t {pid} -a -- env PATH={path} bash -c "$*"
"""
SCP = """\
exec nsenter -t {pid} -m -- sh -c 'cat >"$1/$2"' sh "${{2#*:}}" "$(basename "$1")" <"$1"
"""
TRIAL = (
    'LINE_API_BASE = "http://127.0.0.1:{port}"\nLINE_API_DATA_BASE = "http://127.0.0.1:{port}"\n'
)


class Step(NamedTuple):
    """A console block: how it begins, where it is typed, and what holds afterwards."""

    beginning: str
    where: str
    then: Callable[[Trial, str], None]


class Trial:
    """The learner's computer and the server, in the network of the booted machine."""

    def __init__(self, machine: Machine, sim: linesim.Sim, work: Path) -> None:
        self.machine = machine
        self.sim = sim
        self.home = work / "home"
        self.user: User | None = None
        self._tools = work / "tools"
        self._prepare_computer(work)
        self._prepare_server()
        self._shell = RootShell(machine.pid, self._environ())

    def types(self, block: Block, where: str) -> str:
        """Type the block there, and return its output."""
        if where == "server":
            return self._shell.types(block.text)
        done = ran(
            ["bash", "-e", "-o", "pipefail", "-c", block.text],
            env={"HOME": str(self.home), "PATH": f"{self._tools}:{os.environ['PATH']}"},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def close(self) -> None:
        self._shell.close()

    def says(self, *texts: str) -> list[str]:
        """Send these messages as one user, and return an answer to each."""
        if self.user is None:
            self.user = self.sim.add_user("花子")
        before = len(self.answers())
        for text in texts:
            delivery = self.sim.say(self.user, text)
            assert delivery.status == 200, str(delivery)
        wanted = before + len(texts)
        eventually(lambda: len(self.answers()) >= wanted, seconds=ANSWER_SECONDS)
        return self.answers()[before:]

    def answers(self) -> list[str]:
        assert self.user is not None
        return [str(bubble.text) for bubble in self.sim.answers(self.user)]

    def _prepare_computer(self, work: Path) -> None:
        (self.home / "salon").mkdir(parents=True)
        (self.home / "linedesk").symlink_to(work / "src")
        for name in ("2-conversation-and-timers", "3-tests"):
            for block in blocks(f"docs/tutorial/{name}.md"):
                if block.kind == "python":
                    put(block, self.home / "salon")
        lay_programs(
            self._tools,
            {
                "ssh": SSH.format(pid=self.machine.pid, path=ENVIRON["PATH"]),
                "scp": SCP.format(pid=self.machine.pid),
            },
        )

    def _prepare_server(self) -> None:
        files = self.machine.files
        lay_programs(files / "usr/local/sbin", STAND_INS)
        settings = files / "etc/linedesk/linedesk.toml"
        settings.parent.mkdir()
        shipped = (PROJECT / "deploy/linedesk.toml").read_text("utf-8")
        settings.write_text(TRIAL.format(port=SIM_PORT) + shipped, "utf-8")

    def _environ(self) -> Mapping[str, str]:
        return {
            **ENVIRON,
            "LINE_CHANNEL_SECRET": self.sim.secret,
            "LINE_CHANNEL_ACCESS_TOKEN": self.sim.token,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": "/wheels",
        }


class RootShell:
    """The shell of `ssh root@…`, which keeps its folder and variables from block to block."""

    END = "end-of-block"

    def __init__(self, pid: int, environ: Mapping[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["nsenter", "-t", str(pid), "-a", "--", "bash"],
            env=dict(environ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._write("trap 'failed=1' ERR\n")

    def types(self, text: str) -> str:
        """Type the text, and return its output; each command of it must succeed."""
        self._write(f"failed=0\n{text}\necho {self.END} $failed\n")
        assert self._shell.stdout is not None
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(self.END):
                output = "".join(lines)
                assert line.split()[1] == "0", output
                return output
            lines.append(line)
        raise AssertionError(f"the shell ended: {''.join(lines)}")

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.wait(30)

    def _write(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()


def lay_programs(folder: Path, programs: Mapping[str, str]) -> None:
    """Write shell programs into a folder."""
    folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        path = folder / name
        path.write_text(f"#!/bin/bash\n{text}\n")
        path.chmod(0o755)


# Checks after each block.


def nothing_more(trial: Trial, output: str) -> None:
    """The block has succeeded, and the next ones need what it did."""


def source_is_there(trial: Trial, output: str) -> None:
    assert (trial.machine.files / "usr/local/src/linedesk/deploy/install.sh").exists()


def repository_is_named(trial: Trial, output: str) -> None:
    files = trial.machine.files
    line = (files / "etc/apt/sources.list.d/mongodb-org-7.0.list").read_text()
    named = re.search(r"signed-by=/(\S+)\]", line)
    assert named, line
    assert (files / named[1]).exists()


def nothing_was_touched(trial: Trial, output: str) -> None:
    assert "dry run: nothing was changed" in output, output
    assert not (trial.machine.files / "opt/linedesk/current").exists()


def services_run(trial: Trial, output: str) -> None:
    for unit in UNITS:
        assert trial.machine.show(unit, "ActiveState") == "active", output


def https_is_served(trial: Trial, output: str) -> None:
    """A webhook without events reaches the front desk through nginx."""
    context = ssl.create_default_context(
        cafile=str(trial.machine.files / "etc/linedesk/tls/fullchain.pem")
    )
    context.check_hostname = False
    body = json.dumps({"destination": "U" + "0" * 32, "events": []}).encode()
    headers = {"content-type": "application/json", HEADER: sign(trial.sim.secret, body)}
    # nginx opens the port a moment after its reload.
    eventually(listens)
    connection = http.client.HTTPSConnection("127.0.0.1", 443, timeout=10, context=context)
    connection.request("POST", "/callback", body, headers)
    assert connection.getresponse().status == 200
    connection.close()


def listens() -> bool:
    try:
        socket.create_connection(("127.0.0.1", 443), timeout=5).close()
    except OSError:
        return False
    return True


def all_is_well(trial: Trial, output: str) -> None:
    assert output.splitlines()[-1].startswith("0 bad"), output
    (answer,) = trial.says("おはよう")
    assert "おはよう" in answer, answer


def salon_answers(trial: Trial, output: str) -> None:
    services_run(trial, output)
    asked, answer = trial.says("予約", "明日15時")
    assert asked.startswith("明日の何時にいらっしゃいますか？"), asked
    assert "でよろしいですか？" in answer or answer.startswith("火曜日は定休日です。"), answer


class Writing:
    """A user who writes a message every moment, in a thread."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._pause = threading.Event()
        self.statuses: list[int | None] = []

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join(120)

    def _write(self) -> None:
        assert self._trial.user is not None
        for number in range(MESSAGES):
            self.statuses.append(self._trial.sim.say(self._trial.user, f"{number}").status)
            self._pause.wait(PAUSE_SECONDS)


def restarted_amid_messages(trial: Trial, output: str) -> None:
    """The restart of the block is under way: messages are written, and restarts go on."""
    before = len(trial.answers())
    writing = Writing(trial)
    writing.start()
    trial.machine.systemctl("restart", "linedesk.target")
    writing.join()
    assert writing.statuses == [200] * MESSAGES, str(writing.statuses)
    wanted = before + MESSAGES
    eventually(lambda: len(trial.answers()) >= wanted, seconds=ANSWER_SECONDS)
    # A second answer would come within a moment.
    threading.Event().wait(1.0)
    assert len(trial.answers()) == wanted
    eventually(lambda: trial.machine.show(UNITS[1], "ActiveState") == "active")


def timer_is_enabled(trial: Trial, output: str) -> None:
    assert trial.machine.systemctl("is-enabled", "linedesk-export.timer") == "enabled"


# Each console block of the page, in its order.
STEPS = (
    Step("tar -C ~/linedesk", "computer", source_is_there),
    Step("ssh root@bot.example.com\n", "computer", nothing_more),
    Step("apt-get update\n", "server", repository_is_named),
    Step("cd /usr/local/src/linedesk\n", "server", nothing_was_touched),
    Step("deploy/install.sh\n", "server", services_run),
    Step("HOST=bot.example.com\n", "server", https_is_served),
    Step("linedesk doctor\n", "server", all_is_well),
    Step("scp ~/salon/salon.py", "computer", nothing_more),
    Step("sed -i ", "server", salon_answers),
    Step("systemctl restart linedesk.target\n", "server", restarted_amid_messages),
    Step("linedesk status\n", "server", nothing_more),
    Step("systemctl enable --now linedesk-export.timer\n", "server", timer_is_enabled),
)


def main() -> int:
    """Boot, type the page, switch off; 1 if a step failed, 77 where it cannot be tried here."""
    if len(sys.argv) > 1 and sys.argv[1] == "inside":
        return type_page(Machine(int(sys.argv[2])), Path(sys.argv[3]))
    if os.geteuid() != 0:
        print("tutorial: booting a machine takes root", file=sys.stderr)
        return 77
    cache = PROJECT / ".venv" / "booted"
    try:
        root, wheels = prepare(cache)
    except Missing as error:
        print(f"tutorial: missing here: {error}", file=sys.stderr)
        return 77
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    work = Path(tempfile.mkdtemp(prefix="tutorial-", dir=cache))
    checkout(work / "src")
    bound = {wheels: "/wheels", find_mongod(): "/usr/bin/mongod"}
    machine = Nspawn(copied(root, work / "machine"), work / "boot.log", read_only=bound)
    try:
        pid = machine.start().pid
        command = ["nsenter", "-t", str(pid), "-n", sys.executable, "-m", "tests.booted.tutorial"]
        command += ["inside", str(pid), str(work)]
        return subprocess.run(command, timeout=MOST_SECONDS, check=False).returncode
    finally:
        machine.stop()
        shutil.rmtree(work, ignore_errors=True)


def type_page(machine: Machine, work: Path) -> int:
    """Type each block of the page, a line for each; the first one that fails ends it."""
    shells = [block for block in blocks(PAGE) if block.kind == "console"]
    with linesim.running(
        port=SIM_PORT, webhook_url="http://127.0.0.1:8000/callback", rate_limits=False
    ) as sim:
        trial = Trial(machine, sim, work)
        try:
            for block, step in zip(shells, STEPS, strict=True):
                began = time.monotonic()
                words = block.text.splitlines()[0]
                assert block.text.startswith(step.beginning), words
                try:
                    step.then(trial, trial.types(block, step.where))
                except (AssertionError, OSError) as error:
                    print(f"✗ {time.monotonic() - began:6.1f} s  {words}: {error}", flush=True)
                    return 1
                print(f"✓ {time.monotonic() - began:6.1f} s  {words}", flush=True)
        finally:
            trial.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
