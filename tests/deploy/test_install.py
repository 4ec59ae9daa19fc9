"""deploy/install.sh: its files, that a second run changes nothing, upgrades and roll-backs."""

import re
import shutil
from pathlib import Path

import pytest

from linedesk.settings.settings import load_settings
from tests.deploy.box import ROOT, Box
from tests.frontdesk.desk import SECRET

UNITS = "etc/systemd/system"


@pytest.fixture
def box(tmp_path: Path) -> Box:
    """A bare one."""
    return Box(tmp_path)


@pytest.fixture(scope="module")
def installed_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("installed")
    Box(folder).installed()
    return folder


@pytest.fixture
def running(installed_once: Path, tmp_path: Path) -> Box:
    """One on which a first release runs, the test's own."""
    box = Box(shutil.copytree(installed_once, tmp_path / "running", symlinks=True))
    box.forget()
    return box


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_bare_box_gets_everything_and_a_second_run_changes_nothing(box: Box) -> None:
    release = box.installed(MONGODB_URI="mongodb://u:p4ss@127.0.0.1/")

    assert release.startswith("0.1.0-")
    assert box.path("opt/linedesk/current/bin/linedesk").exists()
    assert mode(box.path("opt/linedesk/current/bin")) == 0o755
    assert mode(box.path("opt/linedesk/current/share/linedesk/inspect.js")) == 0o644
    assert mode(box.path("opt/linedesk/bot")) == 0o755
    assert mode(box.path("etc/linedesk/credentials")) == 0o700
    secret = box.path("etc/linedesk/credentials/LINE_CHANNEL_SECRET")
    assert (secret.read_text(), mode(secret)) == (f"{SECRET}\n", 0o600)
    link = box.path("etc/linedesk/credentials/operator/LINE_CHANNEL_ACCESS_TOKEN")
    assert link.read_text() == "t0ken\n"
    own = box.path("etc/linedesk/credentials/BOT_SECRETS")
    assert (load_settings({"BOT_SECRETS": own.read_text()}).bot_secrets, mode(own)) == ({}, 0o600)
    password = box.path("etc/linedesk/credentials/console/CONSOLE_PASSWORD")
    assert (len(password.read_text()), mode(password)) == (25, 0o600)
    assert box.path("etc/linedesk/linedesk.toml").exists()
    assert "dbPath: /var/lib/mongodb\n" in box.path("etc/mongod.conf").read_text()
    assert "SIGUSR1 mongod.service" in box.path("etc/logrotate.d/linedesk-mongod").read_text()
    key = box.path("etc/mongod.key")
    assert (len(key.read_text()), mode(key)) == (1008, 0o400)
    laid = {path.name for path in (ROOT / "deploy/systemd").glob("linedesk*")}
    assert laid <= {path.name for path in box.path(UNITS).iterdir()}
    assert mode(box.path("usr/local/bin/linedesk")) == 0o755
    restarts = box.calls("systemctl restart")
    assert restarts == [
        "systemctl restart linedesk-dispatcher.service",
        "systemctl restart linedesk-frontdesk.service",
    ]
    # No secret in anybody's arguments or environment, but for the URI that `init` is to have.
    everything = "\n".join(box.calls())
    assert SECRET not in everything
    assert "t0ken" not in everything
    assert [call for call in box.calls() if "p4ss" in call] == box.calls("linedesk init")

    before = box.files()
    box.forget()
    again = box.install()

    assert again.returncode == 0, again.stderr
    assert "LINE Developers Console" not in again.stdout
    assert again.stdout.splitlines()[-2:] == [f"nothing changed: {release} runs", "changed: 0"]
    assert box.files() == before
    assert not box.calls("pip")
    asked = {call.split()[1] for call in box.calls("systemctl")}
    assert asked <= {"is-active", "is-enabled", "show"}


URL = "amqp://linedesk-worker:s3cret@10.0.0.5/linedesk"


def test_a_worker_of_its_own_gets_neither_mongodb_nor_lines_secrets(box: Box) -> None:
    box.without("mongod")
    answer = box.install("--worker", AMQP_URL=URL)

    assert answer.returncode == 0, answer.stdout + answer.stderr
    secret = box.path("etc/linedesk/credentials/worker/AMQP_URL")
    assert (secret.read_text(), mode(secret), mode(secret.parent)) == (f"{URL}\n", 0o600, 0o700)
    assert box.path("etc/linedesk/credentials/BOT_SECRETS").exists()
    assert not box.path("etc/linedesk/credentials/operator").exists()
    assert not box.path("etc/mongod.conf").exists()
    assert box.calls("systemctl restart") == ["systemctl restart linedesk-worker.service"]
    assert box.calls("systemctl enable") == ["systemctl enable --quiet linedesk-worker.service"]
    assert not box.calls("linedesk init")
    assert any(call.endswith("/requirements/amqp.txt") for call in box.calls("pip"))
    assert "s3cret" not in "\n".join(box.calls()) + answer.stdout
    first = box.current

    before = box.files()
    box.forget()
    again = box.install()
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[-1] == "changed: 0"
    assert box.files() == before

    box.next_version("0.2.0")
    assert box.install().returncode == 0
    assert box.current != first
    assert box.install("--roll-back").returncode == 0
    assert box.current == first


def test_a_worker_beside_the_dispatcher_is_restarted_with_it(running: Box) -> None:
    running.path("etc/linedesk/linedesk.toml").write_text('DISPATCHER_WORKERS = "amqp"\n')
    (running.state / "enabled" / "linedesk-worker.service").touch()
    running.forget()
    assert running.install().returncode == 0
    assert running.calls("systemctl restart") == [
        f"systemctl restart linedesk-{name}.service"
        for name in ("worker", "dispatcher", "frontdesk")
    ]
    assert running.path("etc/linedesk/credentials/dispatcher/AMQP_URL").read_text() == ""


def test_only_changed_files_of_the_services_cause_a_restart(running: Box) -> None:
    for change in (
        lambda: running.path("etc/linedesk/linedesk.toml").write_text("DISPATCHER_THREADS = 4\n"),
        lambda: running.path("opt/linedesk/bot/mybot.py").write_text("bot = 1\n"),
        lambda: running.path("etc/linedesk/credentials/LINE_CHANNEL_SECRET").write_text("other\n"),
        lambda: (
            running.path(f"{UNITS}/linedesk-dispatcher.service.d").mkdir()
            or running.path(f"{UNITS}/linedesk-dispatcher.service.d/more.conf").write_text(
                "[Service]\n"
            )
        ),
    ):
        change()
        running.forget()
        answer = running.install()
        assert answer.returncode == 0, answer.stderr
        assert len(running.calls("systemctl restart")) == 2
        assert not running.calls("pip")
    assert running.path("etc/linedesk/linedesk.toml").read_text() == "DISPATCHER_THREADS = 4\n"


def test_upgrades_keep_three_releases_and_a_roll_back_goes_to_the_one_before(running: Box) -> None:
    first = running.current
    names = [first]
    for version in ("0.2.0", "0.3.0", "0.4.0"):
        running.next_version(version)
        names.append(running.installed())
    assert running.releases == names[1:]
    assert running.current == names[3]

    unit = running.path(f"{UNITS}/linedesk-frontdesk.service")
    older = running.path(f"opt/linedesk/releases/{names[2]}/share/linedesk/systemd/{unit.name}")
    older.write_text("[Unit]\n# of the release before\n")
    answer = running.install("--roll-back")
    assert answer.returncode == 0, answer.stderr
    assert running.current == names[2]
    assert unit.read_text() == older.read_text()

    assert running.install("--roll-back").returncode == 0
    assert running.current == names[1]
    answer = running.install("--roll-back")
    assert answer.returncode == 1
    assert "no release before" in answer.stderr


@pytest.mark.parametrize(
    ("stored", "told"),
    [("2", "it would misread them"), ("", "MongoDB cannot be reached"), ("1", "")],
)
def test_a_roll_back_to_a_release_that_would_misread_the_database_is_refused(
    running: Box, stored: str, told: str
) -> None:
    """Whether by hand, or because the newer release does not come up."""
    first = running.current
    running.next_version("0.2.0")
    second = running.installed()
    running.path(f"opt/linedesk/releases/{second}/bin/schema").write_text("2\n")
    (running.state / "stored-schema").write_text(stored)
    if not told:
        assert running.install("--roll-back").returncode == 0
        assert running.current == first
        return
    answer = running.install("--roll-back")
    assert (answer.returncode, running.current) == (1, second)
    assert told in answer.stderr


@pytest.mark.long
def test_the_extra_for_workers_is_installed_where_the_setting_asks_for_it(running: Box) -> None:
    first = running.current
    running.path("etc/linedesk/linedesk.toml").write_text('DISPATCHER_WORKERS = "amqp"\n')
    running.forget()
    assert running.install().returncode == 0
    assert any(call.endswith("/requirements/amqp.txt") for call in running.calls("pip"))
    # A complete release never changes.
    assert running.current != first


@pytest.mark.parametrize(
    ("how", "told"), [("broken", ["dispatcher"]), ("dying", ["dispatcher", "frontdesk"])]
)
def test_a_release_that_does_not_stay_up_is_switched_back_loudly(
    how: str, told: list[str], running: Box
) -> None:
    first = running.current
    units = running.path(f"{UNITS}/linedesk-dispatcher.service").read_text()
    running.next_version("0.2.0")
    (running.checkout / "deploy/systemd/linedesk-dispatcher.service").write_text("[Unit]\n# new\n")
    running.say(how, "0.2.0")

    answer = running.install()

    assert answer.returncode == 3
    assert re.search(r"0\.2\.0-\w+ DID NOT COME UP", answer.stderr)
    assert f"switched back: {first} runs again" in answer.stderr
    journals = running.calls("journalctl --unit")
    assert [re.split("[-.]", call.split()[2])[1] for call in journals] == told
    assert running.current == first
    assert running.path(f"{UNITS}/linedesk-dispatcher.service").read_text() == units
    assert running.calls("systemctl restart")[-1] == "systemctl restart linedesk-frontdesk.service"
    # The failed one is nothing to roll back to.
    assert running.install("--roll-back").returncode == 1
    assert running.current == first


@pytest.mark.parametrize("fault", ["pip-fails", "init-fails"])
def test_a_failure_in_the_middle_leaves_the_running_release(fault: str, running: Box) -> None:
    first = running.current
    running.next_version("0.2.0")
    running.say(fault)
    running.forget()
    answer = running.install()
    assert answer.returncode == 1
    assert "the services keep running unchanged" in answer.stderr
    assert running.current == first
    assert not running.calls("systemctl restart")
    (running.state / fault).unlink()
    assert running.installed().startswith("0.2.0-")


@pytest.mark.parametrize(
    "step", ["pip", "systemctl daemon-reload", "systemctl restart linedesk-frontdesk"]
)
def test_a_run_that_is_killed_is_completed_by_the_next(step: str, running: Box) -> None:
    running.next_version("0.2.0")
    (running.checkout / "deploy/systemd/linedesk-dispatcher.service").write_text("[Unit]\n# new\n")
    running.say("killed-at", step)
    assert running.install().returncode == -9
    (running.state / "killed-at").unlink()
    running.forget()

    assert running.installed().startswith("0.2.0-")

    unit = running.path(f"{UNITS}/linedesk-dispatcher.service")
    assert unit.read_text() == "[Unit]\n# new\n"
    assert not running.path("opt/linedesk/current/bin/half").exists()
    asked = [call for call in running.calls("systemctl") if " is-" not in call]
    assert asked.index("systemctl daemon-reload") < asked.index(
        "systemctl restart linedesk-dispatcher.service"
    )
    assert "systemctl restart linedesk-frontdesk.service" in asked


def test_a_bot_that_does_not_compile_is_found_before_anything_is_restarted(running: Box) -> None:
    running.path("opt/linedesk/bot/mybot.py").write_text("def count(:\n")
    running.forget()
    answer = running.install()
    assert answer.returncode == 1
    assert "cannot be compiled" in answer.stderr
    assert not running.calls("systemctl restart")


def test_missing_secrets_are_named_before_anything_runs(box: Box, tmp_path: Path) -> None:
    answer = box.install(LINE_CHANNEL_SECRET=SECRET)
    assert answer.returncode == 78
    assert "missing: LINE_CHANNEL_ACCESS_TOKEN" in answer.stderr
    assert not box.calls("systemctl")
    for wrong in ("two words", SECRET.replace("8", ",")):
        spoilt = box.install(LINE_CHANNEL_SECRET=wrong)
        assert spoilt.returncode == 78
        assert "LINE_CHANNEL_SECRET is not" in spoilt.stderr
        assert wrong not in spoilt.stderr + spoilt.stdout
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "LINE_CHANNEL_ACCESS_TOKEN").write_text("\n t0ken \n")
    assert box.install("--secrets", str(secrets)).returncode == 0
    token = box.path("etc/linedesk/credentials/LINE_CHANNEL_ACCESS_TOKEN")
    assert token.read_text() == "t0ken\n"


def test_a_mongod_conf_of_somebodys_own_is_left(box: Box) -> None:
    conf = box.path("etc/mongod.conf")
    conf.write_text("storage:\n  dbPath: /data\n#replication:\n#  replSetName: rs0\n")
    answer = box.install("--no-start")
    assert answer.returncode == 78
    assert "lacks replSetName" in answer.stderr
    assert not box.calls("systemctl start")
    conf.write_text("replication:\n  replSetName: rs0\n")
    answer = box.install("--no-start")
    assert answer.returncode == 0, answer.stderr
    assert "lacks authorization: enabled, keyFile" in answer.stdout
    assert conf.read_text() == "replication:\n  replSetName: rs0\n"
    # Its mongod would rename the log itself, besides logrotate.
    assert "mongod's log grows without limit" in answer.stdout
    assert not box.path("etc/logrotate.d/linedesk-mongod").exists()


@pytest.mark.parametrize(
    ("family", "packages"), [("debian", "install mongodb-org"), ("centos", "install mongodb-org")]
)
def test_a_dry_run_says_every_step_and_touches_nothing(
    family: str, packages: str, tmp_path: Path
) -> None:
    box = Box(tmp_path, family=family)
    box.without("mongod")
    answer = box.install("--dry-run")
    assert answer.returncode == 0, answer.stderr
    assert {"debian": "apt-get", "centos": "dnf"}[family] in answer.stdout
    for step in (packages, "user linedesk", "mongod.conf", "init --config", "systemctl restart"):
        assert step in answer.stdout
    assert "dry run: nothing was changed" in answer.stdout
    assert "Webhook redelivery         on" in answer.stdout
    assert box.files() == {}
    assert {call.split()[1] for call in box.calls("systemctl")} <= {
        "is-active",
        "is-enabled",
        "show",
    }
    assert not box.calls("useradd")


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (("--frobnicate",), 2, "--frobnicate"),
        (("--wheels", "/nowhere"), 2, "/nowhere"),
        (("--capped-mb", "x"), 2, "--capped-mb"),
        (("--worker",), 78, "missing: AMQP_URL"),
        ((), 69, "Install MongoDB Community Edition on Debian"),
    ],
)
def test_what_cannot_be_installed_is_refused(
    options: tuple[str, ...], code: int, told: str, box: Box
) -> None:
    box.without("mongod")
    answer = box.install(*options)
    assert (answer.returncode, told in answer.stderr) == (code, True), answer.stderr
    assert not box.calls("systemctl start")


def test_the_scheduler_of_an_earlier_release_goes_once_the_new_dispatcher_runs(box: Box) -> None:
    """And comes back with a roll-back: the dispatcher of that release fires no timers."""
    unit = "linedesk-scheduler.service"
    shipped = box.checkout / "deploy" / "systemd" / unit
    shipped.write_text("[Service]\n")
    box.installed()
    box.path("etc/linedesk/linedesk.toml").write_text('SCHEDULER = "process"\n')
    box.installed()
    assert (box.state / "active" / unit).exists()
    shipped.unlink()
    box.next_version("0.2.0")
    assert box.install("--no-start").returncode == 0
    assert (box.state / "active" / unit).exists()
    box.forget()
    box.installed()
    calls = box.calls("systemctl")
    restarted = calls.index("systemctl restart linedesk-dispatcher.service")
    assert restarted < calls.index(f"systemctl disable --quiet --now {unit}")
    assert not (box.state / "active" / unit).exists()
    assert box.install("--roll-back").returncode == 0
    assert f"systemctl restart {unit}" in box.calls()
