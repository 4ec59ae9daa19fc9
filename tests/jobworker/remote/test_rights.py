"""`linedesk init --amqp` on a real RabbitMQ, and the rights of its users."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest
from click.testing import CliRunner, Result
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from jobworker.remote.amqp import EXCHANGE
from linedesk.launch import main
from tests.rabbitmq import RabbitMQ

USERS = ("dispatcher", "worker")


def init(node: RabbitMQ, folder: Path, *options: str, **environ: str) -> Result:
    given = {"AMQP_URL": f"amqp://127.0.0.1:{node.port}/bots", **environ}
    told = CliRunner(env=given).invoke(main.linedesk, ["init", "--amqp", str(folder), *options])
    if told.exit_code == 0:
        file = str(folder / "rabbitmq-definitions.json")
        assert f"rabbitmqctl import_definitions < {file}" in told.output
        node.control("import_definitions", file)
    return told


@pytest.fixture
def urls(shared_rabbitmq: RabbitMQ, tmp_path: Path) -> dict[str, str]:
    """Those of the users that `init` has made."""
    answer = init(shared_rabbitmq, tmp_path)
    assert answer.exit_code == 0, answer.output
    return read(tmp_path)


def read(folder: Path) -> dict[str, str]:
    return {who: (folder / who / "AMQP_URL").read_text().strip() for who in USERS}


def password(url: str) -> str:
    return urlsplit(url).password or ""


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        yield connection.channel()


def refused(url: str, act: Callable[[BlockingChannel], Any]) -> int:
    """The code with which RabbitMQ ends the channel for it."""
    with channel(url) as opened:
        opened.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker) as error:
            act(opened)
    code: int = error.value.reply_code
    return code


def test_users_are_made_once_and_new_passwords_close_the_old_ones_out(
    shared_rabbitmq: RabbitMQ, tmp_path: Path
) -> None:
    first = init(shared_rabbitmq, tmp_path)
    assert first.exit_code == 0, first.output
    assert f"user        bots-worker: {tmp_path}/worker/AMQP_URL" in first.output
    before = read(tmp_path)
    for who in USERS:
        file = tmp_path / who / "AMQP_URL"
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert before[who].startswith(f"amqp://bots-{who}:")
        assert before[who].endswith(f"@127.0.0.1:{shared_rabbitmq.port}/bots")
    again = init(shared_rabbitmq, tmp_path)
    assert again.exit_code == 0, again.output
    assert "restart" not in first.output + again.output
    assert read(tmp_path) == before
    described = (tmp_path / "rabbitmq-definitions.json").read_text()
    assert not any(password(url) in again.output + described for url in before.values())
    changed = init(shared_rabbitmq, tmp_path, "--new-passwords")
    assert changed.exit_code == 0, changed.output
    assert "restart linedesk-dispatcher and linedesk-worker soon" in changed.output
    for who, url in read(tmp_path).items():
        with channel(url):
            pass
        with pytest.raises(AMQPError), channel(before[who]):
            pass


def test_a_worker_reaches_its_own_queue_and_the_leaders_and_nothing_else(
    shared_rabbitmq: RabbitMQ, urls: dict[str, str]
) -> None:
    worker = urls["worker"]
    with channel(urls["dispatcher"]) as leader, channel(worker) as other:
        leader.queue_declare("linedesk.leader.1", exclusive=True)
        other.queue_declare("linedesk.worker.1", exclusive=True)
        reads = {
            name: refused(worker, lambda opened, name=name: opened.basic_get(name))  # type: ignore[misc]
            for name in ("linedesk.leader.1", "linedesk.worker.1")
        }
        # The second is open to the pattern, and locked by its connection.
        assert reads == {"linedesk.leader.1": 403, "linedesk.worker.1": 405}
        for exchange, key in (("", "linedesk.worker.1"), ("amq.fanout", "")):
            assert refused(worker, lambda on: on.basic_publish(exchange, key, b"x")) == 403  # noqa: B023
    assert refused(worker, lambda on: on.queue_declare("mine")) == 403
    assert refused(worker, lambda on: on.exchange_delete(EXCHANGE)) == 403
    with channel(worker) as opened:
        opened.queue_declare("linedesk.worker.2", exclusive=True)
        assert refused(worker, lambda on: on.queue_bind("linedesk.worker.2", EXCHANGE)) in (
            403,
            405,
        )
        with pytest.raises(ChannelClosedByBroker) as error:
            opened.queue_bind("linedesk.worker.2", EXCHANGE)
        assert error.value.reply_code == 403
    with pytest.raises(AMQPError), channel(worker.replace("/bots", "/%2F")):
        pass


def test_a_file_that_holds_no_url_is_named(shared_rabbitmq: RabbitMQ, tmp_path: Path) -> None:
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker" / "AMQP_URL").write_text("http://x\n")
    answer = init(shared_rabbitmq, tmp_path)
    assert answer.exit_code == 78
    assert f"{tmp_path}/worker/AMQP_URL contains no URL of RabbitMQ" in answer.output
