"""The systemd units agree with the code; scripts/test-systemd tries them on a booted machine."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

from dispatcher.process import CLOSE_SECONDS
from frontdesk.http import MOST_CONNECTIONS
from linedesk.launch.main import linedesk
from linedesk.launch.worker import END_SECONDS
from linedesk.runtime.exit_codes import Exit
from linedesk.settings.settings import Settings
from linedesk.settings.sources import CREDENTIALS

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"
SERVICES = ("frontdesk", "dispatcher", "console", "worker")
# However often a bot dies, other conversations have work.
WITH_BOT = ("dispatcher", "worker")
# systemd-analyze exit-status.
EXIT_NAMES = {"CONFIG": Exit.CONFIG, "DATAERR": Exit.SCHEMA, "CREDENTIALS": 243}


def unit(name: str) -> dict[str, list[str]]:
    """Each directive with its values, without sections: no name occurs in two of them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for line in (UNITS / name).read_text("utf-8").splitlines():
        if "=" in line and not line.startswith("#"):
            directive, _, value = line.partition("=")
            found[directive].append(value)
    return found


def service(name: str) -> dict[str, list[str]]:
    return unit(f"linedesk-{name}.service")


def hardening(name: str) -> str:
    text = (UNITS / f"linedesk-{name}.service").read_text("utf-8")
    return text.partition("# The sandbox limits")[2].partition("[Install]")[0]


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_starts_a_command_that_there_is_and_waits_until_it_is_ready(name: str) -> None:
    found = service(name)
    (command,) = found["ExecStart"]
    program, given, *options = command.split()
    assert program == "/opt/linedesk/current/bin/linedesk"
    assert given == name
    assert given in linedesk.commands
    assert options == ["--config", "/etc/linedesk/linedesk.toml"]
    assert found["Type"] == ["notify"]
    assert int(found["WatchdogSec"][0]) > 0


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_gets_only_credentials_that_linedesk_reads(name: str) -> None:
    given = dict(value.split(":") for value in service(name)["LoadCredential"])
    assert ("MONGODB_URI" in given) == (name != "worker")
    assert {credential.lower() for credential in given} <= set(CREDENTIALS)
    assert ("LINE_CHANNEL_SECRET" in given) == (name == "frontdesk")
    assert ("LINE_CHANNEL_ACCESS_TOKEN" in given) == (name == "dispatcher")
    assert ("BOT_SECRETS" in given) == (name in WITH_BOT)
    assert ("AMQP_URL" in given) == (name in WITH_BOT)


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_restart_does_not_apply_is_not_restarted(name: str) -> None:
    found = service(name)
    assert found["Restart"] == ["always"]
    names = found["RestartPreventExitStatus"][0].split()
    assert {EXIT_NAMES[each] for each in names} == {Exit.CONFIG, Exit.SCHEMA, 243}


def test_systemd_always_restarts_a_bots_process() -> None:
    """Otherwise one event that crashes the bot would end the service for every conversation."""
    for name in WITH_BOT:
        found = service(name)
        assert found["StartLimitIntervalSec"] == ["0"]
        assert "StartLimitBurst" not in found
    assert all(int(service(name)["StartLimitBurst"][0]) > 0 for name in {*SERVICES} - {*WITH_BOT})


def test_a_stop_of_a_worker_outlasts_the_drain() -> None:
    drain_seconds = Settings.model_fields["drain_seconds"].default
    assert int(service("worker")["TimeoutStopSec"][0]) > drain_seconds + END_SECONDS


def test_the_dispatcher_gets_the_boot_id_that_it_cannot_read() -> None:
    assert "BOOT_ID=%b" in service("dispatcher")["Environment"]
    assert "ProcSubset=pid" in hardening("dispatcher")


@pytest.mark.parametrize("name", SERVICES)
def test_the_hardening_is_the_same_in_every_service(name: str) -> None:
    assert "ProtectSystem=strict" in hardening(name)
    assert hardening(name) == hardening("frontdesk")


@pytest.mark.parametrize("name", SERVICES)
def test_a_core_is_never_written(name: str) -> None:
    assert service(name)["LimitCORE"] == ["0"]


def test_a_stop_of_the_dispatcher_outlasts_the_drain() -> None:
    drain_seconds = Settings.model_fields["drain_seconds"].default
    assert int(service("dispatcher")["TimeoutStopSec"][0]) > drain_seconds + 4 * CLOSE_SECONDS


def test_the_front_desk_may_have_all_its_connections() -> None:
    assert int(service("frontdesk")["LimitNOFILE"][0]) >= 2 * MOST_CONNECTIONS


def test_the_spool_is_where_the_front_desk_may_write() -> None:
    path = Settings.model_fields["spool_path"].default
    assert service("frontdesk")["StateDirectory"] == [str(path.parent.relative_to("/var/lib"))]


def test_a_restart_of_the_target_leaves_the_socket_open_and_a_stop_closes_it() -> None:
    socket = unit("linedesk-frontdesk.socket")
    assert socket["StopPropagatedFrom"] == ["linedesk.target"]
    assert "PartOf" not in socket
    assert all(service(name)["PartOf"] == ["linedesk.target"] for name in SERVICES)


def test_the_target_starts_all_and_the_front_desk_first() -> None:
    for name in SERVICES:
        assert service(name)["WantedBy"][0].split()[0] == "linedesk.target"
    assert unit("linedesk-frontdesk.socket")["WantedBy"] == ["linedesk.target"]
    for name in ("dispatcher", "console", "worker"):
        assert "linedesk-frontdesk.service" in service(name)["After"][0].split()


def test_the_front_desk_listens_where_the_settings_say_by_default() -> None:
    host, port = (Settings.model_fields[f"frontdesk_{name}"].default for name in ("host", "port"))
    assert unit("linedesk-frontdesk.socket")["ListenStream"] == [f"{host}:{port}"]


def test_the_script_is_executable() -> None:
    assert os.access(ROOT / "scripts" / "test-systemd", os.X_OK)
