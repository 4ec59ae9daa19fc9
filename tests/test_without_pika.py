"""linedesk without its extra `amqp`: it works as it is, and what needs pika says how to get it."""

import os
import pkgutil
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

import dispatcher
import frontdesk
import jobworker
import linedesk
import linesim
from tests.waiting import Ended, ran

SECRETS = {
    "LINE_CHANNEL_SECRET": "0123456789abcdef0123456789abcdef",
    "LINE_CHANNEL_ACCESS_TOKEN": "t0ken",
    "AMQP_URL": "amqp://127.0.0.1/linedesk",
}
# They are the extra.
OF_THE_EXTRA = {"jobworker.remote.amqp", "linedesk.launch.rabbitmq", "linedesk.launch.worker"}


def run(blocked: Path, arguments: Sequence[str], **settings: str) -> Ended:
    """Run Python, and all Pythons that it starts, as if pika was not installed."""
    blocked.joinpath("sitecustomize.py").write_text("import sys\nsys.modules['pika'] = None\n")
    return ran(
        [sys.executable, *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(blocked), **settings},
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


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (["dispatcher"], {"DISPATCHER_WORKERS": "amqp", "MONGODB_URI": "mongodb://127.0.0.1:1/"}),
        (["worker"], {}),
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
