"""linedesk without its extra `amqp`: it works as it is, and what needs pika says how to get it."""

from __future__ import annotations

import os
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest

import dispatcher
import frontdesk
import jobworker
import linedesk
import linesim
from linedesk.doctor.checks import rabbitmq
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import FindingLevel
from linedesk.settings.settings import load_settings

SECRETS = {
    "LINE_CHANNEL_SECRET": "0123456789abcdef0123456789abcdef",
    "LINE_CHANNEL_ACCESS_TOKEN": "t0ken",
    "AMQP_URL": "amqp://127.0.0.1/linedesk",
}
# They are the extra.
OF_THE_EXTRA = {"jobworker.remote.amqp", "linedesk.launch.rabbitmq", "linedesk.launch.worker"}


def run(
    blocked: Path, arguments: Sequence[str], **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run Python, and all Pythons that it starts, as if pika was not installed."""
    blocked.joinpath("sitecustomize.py").write_text("import sys\nsys.modules['pika'] = None\n")
    return subprocess.run(
        [sys.executable, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(blocked), **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def modules() -> list[str]:
    packages = (dispatcher, frontdesk, jobworker, linedesk, linesim)
    found = [
        one.name
        for package in packages
        for one in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not one.name.endswith("__main__")
    ]
    assert set(found) > OF_THE_EXTRA
    return sorted(set(found) - OF_THE_EXTRA)


def test_every_other_module_can_be_imported(tmp_path: Path) -> None:
    names = modules()
    code = f"from importlib import import_module\nfor name in {names!r}: import_module(name)"
    ended = run(tmp_path, ["-c", code])
    assert ended.returncode == 0, ended.stderr


@pytest.mark.parametrize("name", sorted(OF_THE_EXTRA))
def test_the_modules_of_the_extra_need_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in [one for one in sys.modules if one in OF_THE_EXTRA or one.startswith("pika")]:
        monkeypatch.delitem(sys.modules, loaded)
    monkeypatch.setitem(sys.modules, "pika", None)
    with pytest.raises(ModuleNotFoundError, match="pika"):
        import_module(name)


def test_everything_starts_and_answers(tmp_path: Path) -> None:
    ended = run(tmp_path, ["-m", "linedesk", "demo", "--once"])
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (["dispatcher"], {"DISPATCHER_WORKERS": "amqp", "MONGODB_URI": "mongodb://127.0.0.1:1/"}),
        (["up"], {"DISPATCHER_WORKERS": "amqp"}),
        (["worker"], {}),
        (["init", "--amqp", "credentials"], {}),
    ],
)
def test_what_needs_it_ends_with_the_command_to_run(
    tmp_path: Path, command: list[str], settings: dict[str, str]
) -> None:
    ended = run(tmp_path, ["-m", "linedesk", *command], **SECRETS, **settings)
    assert ended.returncode == 78, ended.stderr
    [told] = ended.stderr.splitlines()
    assert "pip install 'linedesk[amqp]'" in told
    assert "deploy/install.sh" in told


def test_doctor_names_it_where_workers_are_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pika", None)
    given = {"DISPATCHER_WORKERS": "amqp", "AMQP_URL": SECRETS["AMQP_URL"]}
    found = rabbitmq.reached(DoctorContext(load_settings(given)))
    assert found.state is FindingLevel.BAD
    assert "pip install 'linedesk[amqp]'" in found.saw
