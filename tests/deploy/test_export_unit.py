"""The nightly export's unit agrees with the code and is hardened like the services."""

from __future__ import annotations

from datetime import UTC, datetime
from fnmatch import fnmatch

from linedesk.backup.export import name_of_export
from linedesk.launch.main import linedesk
from tests.deploy.test_units import hardening, service, unit


def test_it_runs_the_command_as_an_operator_and_keeps_what_it_writes_to_itself() -> None:
    found = service("export")
    program, command, _, config, folder = found["ExecStart"][0].split()
    assert program == "/opt/linedesk/current/bin/linedesk"
    assert command in linedesk.commands
    assert config == "/etc/linedesk/linedesk.toml"
    assert folder == f"%S/{found['StateDirectory'][0]}"
    assert found["LoadCredential"] == ["MONGODB_URI:/etc/linedesk/credentials/operator/MONGODB_URI"]
    assert (found["DynamicUser"], found["LimitCORE"]) == (["yes"], ["0"])
    # Otherwise it rejects settings with FRONTDESK_TLS_CERT.
    assert found["SupplementaryGroups"] == ["linedesk"]
    assert hardening("export").strip() == hardening("frontdesk").strip()


def test_old_exports_go_and_nothing_else() -> None:
    words = service("export")["ExecStartPost"][0].split()
    pattern = words[words.index("-name") + 1].strip('"')
    name = name_of_export("line_bot", datetime.now(UTC))
    assert fnmatch(name, pattern)
    assert fnmatch(f".{name}.part", pattern)
    assert not fnmatch("spool.db", pattern)


def test_it_is_started_by_its_timer() -> None:
    assert unit("linedesk-export.timer")["WantedBy"] == ["timers.target"]
    assert "WantedBy" not in service("export")
