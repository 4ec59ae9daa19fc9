"""deploy/linedesk, the command for people: which rights it takes for which command."""

import os
import tomllib
from pathlib import Path

import pytest

from linedesk.settings.settings import Settings, load_settings
from tests.waiting import Ended, ran

ROOT = Path(__file__).parents[2]
WITH_METRICS = {"frontdesk": 9101, "dispatcher": 9102, "worker": 9104}
USERS = ("admin", "dispatcher", "operator", "console")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root with a release that says how it was called."""
    program = tmp_path / "opt/linedesk/current/bin/linedesk"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$LINEDESK_CONFIG $CREDENTIALS_DIRECTORY" "$@"\n')
    program.chmod(0o755)
    for user in USERS:
        folder = tmp_path / "etc/linedesk/credentials" / user
        folder.mkdir(parents=True)
        (folder / "MONGODB_URI").touch()
    return tmp_path


def call(root: Path, *arguments: str, **environ: str) -> Ended:
    return ran(
        [ROOT / "deploy" / "linedesk", *arguments],
        env={"PATH": os.environ["PATH"], "LINEDESK_ROOT": str(root)} | environ,
    )


@pytest.mark.parametrize(
    ("command", "user"),
    [
        ("dead list --since 2h", "operator"),
        ("dead replay --cause KeyError", "console"),
        ("pause main/U4af --why trial", "console"),
        ("import backup.gz", "dispatcher"),
        ("init --users /elsewhere", "admin"),
    ],
)
def test_a_command_gets_the_rights_that_it_needs_and_the_settings(
    command: str, user: str, installed: Path
) -> None:
    answer = call(installed, *command.split())
    etc = installed / "etc/linedesk"
    assert answer.stdout == f"{etc}/linedesk.toml {etc}/credentials/{user} {command}\n"
    assert answer.returncode == 0


@pytest.mark.parametrize(
    ("command", "asked"),
    [("init --users", "init"), ("init --capped-mb 2048", "init --capped-mb 2048")],
)
def test_init_sees_to_the_users_of_the_box(command: str, asked: str, installed: Path) -> None:
    answer = call(installed, *command.split())
    etc = installed / "etc/linedesk"
    with_users = f"{asked} --users {etc}/credentials"
    assert answer.stdout == f"{etc}/linedesk.toml {etc}/credentials/admin {with_users}\n"


def test_without_root_it_says_so(installed: Path) -> None:
    # Root can read folders for root only, so the test uses a missing folder instead.
    (installed / "etc/linedesk/credentials").rename(installed / "hidden")
    answer = call(installed, "dead", "list")
    assert answer.returncode == 77
    assert f"run it again as sudo {ROOT}/deploy/linedesk dead list" in answer.stderr


def test_a_missing_user_of_mongodb_is_named(installed: Path) -> None:
    (installed / "etc/linedesk/credentials/operator/MONGODB_URI").unlink()
    answer = call(installed, "doctor")
    assert answer.returncode == 78
    assert "operator/MONGODB_URI is missing" in answer.stderr
    assert call(installed, "doctor", MONGODB_URI="mongodb://127.0.0.1/").returncode == 0


@pytest.mark.parametrize(
    ("service", "instead"),
    [
        ("up", "systemctl start linedesk.target"),
        ("console --verbose", "systemctl enable --now linedesk-console"),
    ],
)
def test_a_service_is_not_run_by_hand_as_root(service: str, instead: str, installed: Path) -> None:
    answer = call(installed, *service.split())
    assert (answer.returncode, answer.stdout) == (2, "")
    assert instead in answer.stderr
    assert call(installed, *service.split(), "--help").returncode == 0


def test_the_shipped_settings_file_shows_the_defaults(tmp_path: Path) -> None:
    """Lines that are commented out can be enabled unchanged, without any effect.

    An installed server has /metrics, which are off by default.
    """
    shipped = ROOT / "deploy" / "linedesk.toml"
    ports = {f"{name}_metrics_port": port for name, port in WITH_METRICS.items()}
    assert load_settings({}, config_path=shipped) == Settings().model_copy(update=ports)
    lines = shipped.read_text("utf-8").splitlines()
    path = tmp_path / "all.toml"
    path.write_text("\n".join(line.removeprefix("# ") for line in lines if is_setting(line)))
    given = tomllib.loads(path.read_text("utf-8"))
    files = {name: given.pop(name) for name in ("FRONTDESK_TLS_CERT", "FRONTDESK_TLS_KEY")}
    assert all(value.startswith("/etc/linedesk/tls/") for value in files.values())
    assert {given.pop(name.upper()) for name in ports} == set(ports.values())
    assert given.pop("bot_settings") == {"timezone": "Asia/Tokyo"}
    for name, value in given.items():
        assert str(getattr(Settings(), name.lower())) == str(value), name


def is_setting(line: str) -> bool:
    return " = " in line or line.startswith("# [")
