"""The command `linesim`, and the log of calls."""

import logging
import os
import shlex
import signal
import socket

import pytest
import requests

from linedesk.setup.private_mongod import free_port
from tests.fork_server import Written, nursery
from tests.waiting import eventually

WEBHOOK = "http://127.0.0.1:1/callback"


def refused(*words):
    """The exit code and the one line on stderr."""
    done = nursery.run("linesim", *words, env=os.environ)
    (line,) = done.stderr.splitlines()
    return done.returncode, line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nothing",), "linesim: No such option '--nothing'."),
        (("--webhook", "ftp://bot"), "'ftp://bot' is not an HTTP or HTTPS URL"),
        (("--port", "0"), "0 is not in the range"),
        (("more",), "unexpected extra argument (more)"),
    ],
)
def test_a_wrong_word_is_one_line_and_code_2(words, told):
    code, line = refused(*words)
    assert code == 2
    assert told in line


def test_a_taken_port_is_one_line_and_code_69():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, line = refused("--port", str(port))
    assert code == 69
    assert line.startswith(f"linesim: cannot use port {port}: Address already in use")


def test_it_prints_the_environment_of_the_bot_and_serves_by_it():
    url = f"http://127.0.0.1:{free_port()}"
    words = ["--port", url.rpartition(":")[2], "--webhook", WEBHOOK, "--secret", "s3 cret"]
    words += ["--channel-id", "1234567890"]
    with Written() as said, Written() as log:
        process = nursery.start("linesim", *words, env=os.environ, stdout=said.fd, stderr=log.fd)
        try:
            eventually(lambda: said.text.endswith("\n\n") and "serving" in log.text)
            lines = said.text.splitlines()
            assert lines[:2] == [f"Chat page: {url}/", f"Webhooks go to: {WEBHOOK}"]
            exported = [shlex.split(one)[1] for one in lines if one.startswith("export ")]
            told = dict(one.split("=", 1) for one in exported)
            token = told.pop("LINE_CHANNEL_ACCESS_TOKEN")
            bases = dict.fromkeys(("LINE_API_BASE", "LINE_API_DATA_BASE"), url)
            channel = {"LINE_CHANNEL_ID": "1234567890", "LINE_CHANNEL_SECRET": "s3 cret"}
            assert told == channel | bases
            head = {"authorization": f"Bearer {token}"}
            assert requests.get(f"{url}/v2/bot/info", headers=head, timeout=10).ok
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert " INFO info GET /v2/bot/info status=200 chat=-\n" in log.text
            assert token not in log.text
        finally:
            process.kill()
            process.wait(10)


def test_each_call_and_failed_webhook_is_one_line_without_texts(sim, line, taro, bot, caplog):
    caplog.set_level(logging.INFO, "linesim")
    line.push(taro.user_id, "秘密")
    line.push(taro.user_id, "秘密", "")
    line.get("/v2/bot/nowhere?key=秘密")
    sim.close_next("profile")
    with pytest.raises(requests.ConnectionError):
        line.get(f"/v2/bot/profile/{taro.user_id}")
    bot.status = 500
    sim.say(taro, "秘密")
    push, chat = "INFO push POST /v2/bot/message/push status=", f"chat={taro.user_id}"
    why = 'message="The request body has 1 error(s)" properties=messages[1].text'
    assert [f"{one.levelname} {one.getMessage()}" for one in caplog.records] == [
        f"{push}200 {chat}",
        f"{push}400 {chat} {why}",
        "WARNING linesim does not have GET /v2/bot/nowhere status=404",
        f"INFO profile GET /v2/bot/profile/{taro.user_id} status=closed {chat}",
        "INFO webhook events=1 outcome=500",
    ]
