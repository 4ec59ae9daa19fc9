"""The Ansible role on a box of a folder: the first run installs, the second changes nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.conftest import missing
from tests.deploy.box import ROOT, Box
from tests.frontdesk.desk import SECRET

PLAYBOOK = ROOT / "deploy" / "ansible" / "linedesk.yml"
BOT = "# 飲んだ？\nbot = 1\n"


@pytest.fixture(scope="module")
def ansible() -> Path:
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        missing("no ansible-core in this venv")
    return program


def play(ansible: Path, box: Box, folder: Path, *options: str) -> tuple[dict[str, int], str]:
    """Run the playbook against the box; its figures (ok, changed, …) and what it said."""
    answer = subprocess.run(
        [ansible, "-i", "localhost,", "-e", f"@{folder / 'variables.yml'}", *options, PLAYBOOK],
        env=box.environ()
        | {
            "ANSIBLE_HOME": str(folder / "ansible"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
        },
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    said = answer.stdout + answer.stderr
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", said)}, said


def variables(box: Box, folder: Path) -> dict[str, object]:
    return {
        "linedesk_hosts": "localhost",
        "ansible_connection": "local",
        "ansible_become": False,
        # Not the venv's, which takes twice as long to start for each task.
        "ansible_python_interpreter": os.path.realpath(sys.executable),
        "linedesk_root": str(box.root),
        "linedesk_source": str(box.checkout),
        "linedesk_channel_secret": SECRET,
        "linedesk_channel_access_token": "t0ken",
        "linedesk_settings": {"BOT": "mybot:bot", "DISPATCHER_THREADS": 4},
        "linedesk_bot_settings": {"greeting": 'こんにちは"🐦"', "loud": True},
        "linedesk_bot_secrets": {"WEATHER_KEY": "w3ather", "OTHER": "b=c#de"},
        "linedesk_bot_folder": str(folder / "bot"),
        "linedesk_capped_mb": 8,
    }


def test_a_second_run_of_the_role_changes_nothing(ansible: Path, tmp_path: Path) -> None:
    box = Box(tmp_path / "box")
    (tmp_path / "bot").mkdir()
    (tmp_path / "bot" / "mybot.py").write_text(BOT, "utf-8")
    (tmp_path / "variables.yml").write_text(yaml.safe_dump(variables(box, tmp_path)), "utf-8")

    first, said = play(ansible, box, tmp_path)

    assert first["changed"] > 0
    assert first["failed"] == 0, said
    assert box.current.startswith("0.1.0-")
    assert "doing      current -> " in said
    assert "--capped-mb 8" in box.calls("linedesk init")[0]
    assert box.path("opt/linedesk/bot/mybot.py").read_text("utf-8") == BOT
    secret = box.path("etc/linedesk/credentials/LINE_CHANNEL_SECRET")
    assert (secret.read_text(), secret.stat().st_mode & 0o777) == (f"{SECRET}\n", 0o600)
    own = box.path("etc/linedesk/credentials/BOT_SECRETS")
    assert own.read_text() == "OTHER=b=c#de\nWEATHER_KEY=w3ather\n"
    assert own.stat().st_mode & 0o777 == 0o600
    assert "w3ather" not in said + "".join(box.calls())
    settings = tomllib.loads(box.path("etc/linedesk/linedesk.toml").read_text("utf-8"))
    assert settings == {
        "BOT": "mybot:bot",
        "DISPATCHER_THREADS": 4,
        "bot_settings": {"greeting": 'こんにちは"🐦"', "loud": True},
    }
    assert SECRET not in said
    assert "t0ken" not in said

    before = box.files()
    box.forget()
    second, said = play(ansible, box, tmp_path)

    assert (second["changed"], second["failed"]) == (0, 0), said
    assert box.files() == before
    assert not box.calls("systemctl restart")


def test_the_role_makes_a_worker_with_its_own_secret_only(ansible: Path, tmp_path: Path) -> None:
    box, url = Box(tmp_path / "box"), "amqp://linedesk-worker:s3cret@10.0.0.5/linedesk"
    own = {"linedesk_worker": True, "linedesk_amqp_url": url, "linedesk_bot_folder": ""}
    given = variables(box, tmp_path) | own
    (tmp_path / "variables.yml").write_text(yaml.safe_dump(given), "utf-8")
    figures, said = play(ansible, box, tmp_path)
    assert figures["failed"] == 0, said
    folder = box.path("etc/linedesk/credentials")
    assert (folder / "worker" / "AMQP_URL").read_text() == f"{url}\n"
    assert not (folder / "LINE_CHANNEL_SECRET").exists()
    assert box.calls("systemctl restart") == ["systemctl restart linedesk-worker.service"]
    assert "s3cret" not in said


def test_the_role_knows_no_variable_that_its_defaults_do_not_explain() -> None:
    role = ROOT / "deploy" / "ansible" / "roles" / "linedesk"
    known = set(yaml.safe_load((role / "defaults" / "main.yml").read_text("utf-8")))
    text = "".join(
        (role / name).read_text("utf-8")
        for name in ("tasks/main.yml", "templates/linedesk.toml.j2")
    )
    used = set(re.findall(r"\blinedesk_\w+", text)) - {"linedesk_install", "linedesk_options"}
    assert used == known
