"""The systemd units agree with the code; scripts/test-systemd tries them on a booted machine."""

from collections import defaultdict
from datetime import UTC, datetime
from fnmatch import fnmatch
from pathlib import Path

import pytest

from dispatcher.process import CLOSE_SECONDS
from linedesk.backup.export import name_of_export
from linedesk.launch.main import linedesk
from linedesk.launch.worker import END_SECONDS
from linedesk.settings.settings import Settings
from linedesk.settings.sources import CREDENTIALS

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy" / "systemd"
SERVICES = ("frontdesk", "dispatcher", "console", "worker")
# However often a bot dies, other conversations have work.
WITH_BOT = ("dispatcher", "worker")


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


def test_systemd_always_restarts_a_bots_process() -> None:
    """Otherwise one event that crashes the bot would end the service for every conversation."""
    for name in WITH_BOT:
        found = service(name)
        assert found["StartLimitIntervalSec"] == ["0"]
        assert "StartLimitBurst" not in found
    assert all(int(service(name)["StartLimitBurst"][0]) > 0 for name in {*SERVICES} - {*WITH_BOT})


def test_a_stop_outlasts_the_drain() -> None:
    drain_seconds = Settings.model_fields["drain_seconds"].default
    for name, more in (("worker", END_SECONDS), ("dispatcher", 4 * CLOSE_SECONDS)):
        assert int(service(name)["TimeoutStopSec"][0]) > drain_seconds + more


def test_a_restart_of_the_target_leaves_the_socket_open_and_a_stop_closes_it() -> None:
    socket = unit("linedesk-frontdesk.socket")
    assert socket["StopPropagatedFrom"] == ["linedesk.target"]
    assert "PartOf" not in socket
    assert all(service(name)["PartOf"] == ["linedesk.target"] for name in SERVICES)


def test_the_nightly_export_removes_old_exports_and_nothing_else() -> None:
    words = service("export")["ExecStartPost"][0].split()
    pattern = words[words.index("-name") + 1].strip('"')
    name = name_of_export("line_bot", datetime.now(UTC))
    assert fnmatch(name, pattern)
    assert fnmatch(f".{name}.part", pattern)
    assert not fnmatch("spool.db", pattern)
