"""The Ansible role on a box of a folder: the first run installs, the second changes nothing."""

import os
import pwd
import re
import shlex
import shutil
import sys
import tomllib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import missing
from tests.deploy.box import PRETENDED, ROOT, Box
from tests.deploy.machines import mongod_conf, several_machines
from tests.frontdesk.desk import SECRET
from tests.waiting import ran

PLAYBOOK = ROOT / "deploy" / "ansible" / "linedesk.yml"
THREE = ROOT / "deploy" / "ansible" / "three-machines.yml"
EXAMPLE = ROOT / "deploy" / "ansible" / "inventory-three-machines.yml"
BOT = "# 飲んだ？\nbot = 1\n"
KEY = "k3y" * 200


@pytest.fixture(scope="module")
def ansible() -> Path:
    program = Path(sys.executable).with_name("ansible-playbook")
    if not program.exists():
        missing("no ansible-core in this venv")
    return program


def play(ansible: Path, box: Box, folder: Path, *options: str) -> tuple[dict[str, int], str]:
    """Run the playbook against the box; returns its figures (ok, changed) and its output."""
    told = ["-i", "localhost,", "-e", f"@{folder / 'variables.yml'}", *options, str(PLAYBOOK)]
    said = played(ansible, folder, *told, environ=box.environ())
    return {name: int(count) for name, count in re.findall(r"(\w+)=(\d+)", said)}, said


def played(ansible: Path, folder: Path, *options: str, environ: dict[str, str]) -> str:
    """The output of a run of ansible-playbook."""
    answer = ran(
        [ansible, *options],
        env=environ
        | {
            "ANSIBLE_HOME": str(folder / "ansible"),
            "ANSIBLE_PIPELINING": "1",
            "ANSIBLE_NOCOLOR": "1",
            "HOME": str(folder),
            "LC_ALL": "C.UTF-8",
        },
        cwd=folder,
    )
    return answer.stdout + answer.stderr


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


@pytest.mark.long
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


@pytest.mark.long
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


def python_of(box: Box, folder: Path) -> str:
    """A Python that sees the box's programs and no others, as one on that machine would."""
    path = folder / f"python-{box.root.parent.name}"
    named = (f"export {name}={shlex.quote(value)}" for name, value in box.environ().items())
    own = os.path.realpath(sys.executable)
    path.write_text("\n".join(["#!/bin/sh", *named, f'exec {own} "$@"', ""]))
    path.chmod(0o755)
    return str(path)


def three_machines(folder: Path) -> tuple[list[Box], Path]:
    """Folders as the machines of the shipped inventory, nginx's last; and that inventory."""
    told: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text("utf-8"))
    boxes = []
    for group in told.values():
        group["vars"] |= {"ansible_connection": "local", "ansible_become": False}
        for number, name in enumerate(group["hosts"], len(boxes) + 1):
            box = Box(folder / f"box-{number}")
            own = {"linedesk_root": str(box.root), "linedesk_source": str(box.checkout)}
            own["ansible_python_interpreter"] = python_of(box, folder)
            group["hosts"][name] = (group["hosts"][name] or {}) | own
            boxes.append(box)
    (folder / "bot").mkdir()
    told["linedesk"]["vars"] |= {
        "linedesk_channel_secret": SECRET,
        "linedesk_channel_access_token": "t0ken",
        "linedesk_mongodb_key": KEY,
        "linedesk_mongod_owner": pwd.getpwuid(os.getuid()).pw_name,
        "linedesk_bot_folder": str(folder / "bot"),
    }
    (folder / "inventory.yml").write_text(yaml.safe_dump(told), "utf-8")
    return boxes, folder / "inventory.yml"


def changed(said: str) -> list[int]:
    """How much each machine was changed, as the recap has it; none may have failed."""
    found = re.findall(r"^\S+ +: .*changed=(\d+) .*failed=(\d+)", said, re.MULTILINE)
    assert found, said
    assert {failed for _, failed in found} == {"0"}, said
    return [int(count) for count, _ in found]


@several_machines
def test_three_machines_get_one_replica_set_and_nginx_both_front_desks(
    ansible: Path, tmp_path: Path
) -> None:
    boxes, inventory = three_machines(tmp_path)
    shutil.copy(PRETENDED / "any", boxes[3].path("../bin/nginx"))
    run = partial(played, ansible, tmp_path, "-i", str(inventory), str(THREE), environ={})

    said = run()

    assert len(changed(said)) == 4
    assert all(changed(said))
    assert KEY not in said
    addresses = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    uri = "mongodb://10.0.0.1:27017,10.0.0.2:27017,10.0.0.3:27017/?replicaSet=rs0"
    for box, address in zip(boxes, addresses, strict=False):
        assert box.path("etc/mongod.key").read_text() == KEY
        assert box.path("etc/mongod.key").stat().st_mode & 0o777 == 0o400
        conf = yaml.safe_load(box.path("etc/mongod.conf").read_text("utf-8"))
        # Where the data are depends on the package.
        conf["storage"] = mongod_conf(address)["storage"]
        assert conf == mongod_conf(address)
        assert f"uri {uri}, secret none" in box.calls("linedesk init")[0]
        assert box.current.startswith("0.1.0-")
    of_users = ["admin", "console", "dispatcher", "frontdesk", "operator"]
    for name in (f"etc/linedesk/credentials/{user}/MONGODB_URI" for user in of_users):
        texts = {box.path(name).read_text() for box in boxes[:3]}
        assert len(texts) == 1
        assert str(boxes[0].state) in texts.pop()
    sockets = [
        box.path("etc/systemd/system/linedesk-frontdesk.socket.d/address.conf") for box in boxes
    ]
    assert [path.exists() for path in sockets] == [True, True, False, False]
    assert "ListenStream=10.0.0.2:8000\n" in sockets[1].read_text()
    shipped = (ROOT / "deploy" / "nginx" / "linedesk-two-hosts.conf").read_text("utf-8")
    assert boxes[3].path("etc/nginx/conf.d/linedesk.conf").read_text("utf-8") == shipped

    before = [box.files() for box in boxes]
    assert changed(run()) == [0, 0, 0, 0]
    assert [box.files() for box in boxes] == before


def test_the_role_knows_no_variable_that_its_defaults_do_not_explain() -> None:
    role = ROOT / "deploy" / "ansible" / "roles" / "linedesk"
    known = set(yaml.safe_load((role / "defaults" / "main.yml").read_text("utf-8")))
    paths = [*role.glob("tasks/*.yml"), role / "templates" / "linedesk.toml.j2"]
    text = "".join(path.read_text("utf-8") for path in paths)
    made = set(re.findall(r"register: (linedesk_\w+)", text))
    used = set(re.findall(r"\blinedesk_\w+", text)) - made
    assert used - {"linedesk_options", "linedesk_mongodb_uri"} == known
