"""`linedesk doctor` on a real RabbitMQ: its good findings, and those for deliberate faults."""

import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from click.testing import CliRunner

from linedesk.doctor.checks import rabbitmq
from linedesk.doctor.context import DoctorContext
from linedesk.doctor.finding import FindingLevel
from linedesk.launch import main
from linedesk.settings.settings import load_settings
from tests.rabbitmq import RabbitMQ

WRONG: list[tuple[Callable[[str], str], str]] = [
    (lambda url: url.removesuffix("checked") + "none", "NOT_ALLOWED"),
    (lambda url: re.sub(":[^:/]+@", ":x@", url), "ACCESS_REFUSED"),
    (lambda url: "amqp://a:b@127.0.0.1:1/checked", "Connection refused"),
    (lambda url: url.replace("amqp://", "amqps://"), "TLS"),
]


def test_all_is_well_after_init_and_a_wrong_url_is_named_without_its_password(
    shared_rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    environ = {"AMQP_URL": f"amqp://127.0.0.1:{shared_rabbitmq.port}/checked"}
    made = CliRunner(env=environ).invoke(main.linedesk, ["init", "--amqp", str(tmp_path)])
    assert made.exit_code == 0, made.output
    shared_rabbitmq.control("import_definitions", str(tmp_path / "rabbitmq-definitions.json"))
    settings = load_settings({"DISPATCHER_WORKERS": "amqp"})
    with closing(DoctorContext(settings, tmp_path)) as box:
        found, right = rabbitmq.reached(box), box.amqp_urls("dispatcher")[0]
    assert (found.state, "worker at amqp://127.0.0.1:" in found.saw) == (FindingLevel.OK, True)
    assert "linedesk-" not in found.saw
    for change, saw in WRONG:
        for who in ("dispatcher", "worker"):
            (tmp_path / who / "AMQP_URL").write_text(change(right))
        with closing(DoctorContext(settings, tmp_path)) as box:
            found = rabbitmq.reached(box)
        assert found.state is FindingLevel.BAD
        assert saw in found.saw
        assert right.split(":")[2].partition("@")[0] not in found.saw
