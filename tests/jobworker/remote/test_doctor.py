"""`linedesk doctor` on a real RabbitMQ: its good findings, and those for deliberate faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from linedesk.doctor.checks import rabbitmq
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import FindingLevel
from linedesk.launch import main
from linedesk.settings.settings import load_settings
from tests.rabbitmq import RabbitMQ

OK, WARN, BAD, SKIP = FindingLevel.OK, FindingLevel.WARN, FindingLevel.BAD, FindingLevel.SKIP
Box = Callable[..., DoctorContext]


@pytest.fixture
def box(shared_rabbitmq: RabbitMQ, tmp_path: Path) -> Iterator[Box]:
    """Machines with the users that `linedesk init --amqp` has made, each with other settings."""
    environ = {"AMQP_URL": f"amqp://127.0.0.1:{shared_rabbitmq.port}/checked"}
    made = CliRunner(env=environ).invoke(main.linedesk, ["init", "--amqp", str(tmp_path)])
    assert made.exit_code == 0, made.output
    shared_rabbitmq.control("import_definitions", str(tmp_path / "rabbitmq-definitions.json"))
    boxes: list[DoctorContext] = []

    def make(**given: str) -> DoctorContext:
        settings = load_settings({"DISPATCHER_WORKERS": "amqp", **given})
        boxes.append(DoctorContext(settings, tmp_path))
        return boxes[-1]

    yield make
    for one in boxes:
        one.close()


def url(box: DoctorContext, who: str = "dispatcher") -> str:
    return box.amqp_urls(who)[0]


def test_all_is_well_after_init(box: Box) -> None:
    found = rabbitmq.reached(box())
    assert (found.state, "worker at amqp://127.0.0.1:" in found.saw) == (OK, True)
    assert "linedesk-" not in found.saw


@pytest.mark.parametrize(
    ("change", "saw"),
    [
        (lambda url: url.removesuffix("checked") + "none", "NOT_ALLOWED"),
        (lambda url: re.sub(":[^:/]+@", ":x@", url), "ACCESS_REFUSED"),
        (lambda url: "amqp://a:b@127.0.0.1:1/checked", "Connection refused"),
        (lambda url: url.replace("amqp://", "amqps://"), "TLS"),
    ],
)
def test_a_url_that_is_wrong_is_named_without_its_password(
    box: Box, tmp_path: Path, change: Callable[[str], str], saw: str
) -> None:
    right = url(box())
    for who in ("dispatcher", "worker"):
        (tmp_path / who / "AMQP_URL").write_text(change(right))
    found = rabbitmq.reached(box())
    assert found.state is BAD
    assert saw in found.saw
    assert right.split(":")[2].partition("@")[0] not in found.saw
