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

GOOD = "http://127.0.0.1:1/callback"


def refused(*words):
    done = nursery.run("linesim", *words, env=os.environ)
    (line,) = done.stderr.splitlines()
    return done.returncode, line


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--nothing",), "linesim: No such option '--nothing'."),
        (("--webhook", "ftp://bot"), "'ftp://bot' is not an HTTP or HTTPS URL"),
        (("--port", "0"), "0 is not in the range"),
        (("--quota", "many"), "'many' is not a valid integer range"),
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


@pytest.mark.parametrize("given", [{}, {"--secret": "s3 cret", "--token": "t0ken"}])
def test_it_prints_the_environment_of_the_bot_and_serves_by_it(given):
    port = str(free_port())
    words = [*("--port", port, "--quota", "0", "--webhook", GOOD), *sum(given.items(), ())]
    with Written() as said, Written() as logged:
        process = nursery.start("linesim", *words, env=os.environ, stdout=said.fd, stderr=logged.fd)
        try:
            eventually(lambda: said.text.endswith("\n\n") and "serving" in logged.text)
            lines = said.text.splitlines()
            assert lines[:2] == [f"Chat page: http://127.0.0.1:{port}/", f"Webhooks go to: {GOOD}"]
            words = [shlex.split(one)[1] for one in lines if one.startswith("export ")]
            told = dict(word.split("=", 1) for word in words)
            assert told["LINE_API_BASE"] == told["LINE_API_DATA_BASE"] == f"http://127.0.0.1:{port}"
            token = told["LINE_CHANNEL_ACCESS_TOKEN"]
            if given:
                assert (told["LINE_CHANNEL_SECRET"], token) == ("s3 cret", "t0ken")
            quota = requests.get(
                f"{told['LINE_API_BASE']}/v2/bot/message/quota",
                headers={"authorization": f"Bearer {token}"},
                timeout=10,
            )
            assert quota.json()["value"] == 0
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0
            assert " INFO quota GET /v2/bot/message/quota status=200 chat=-\n" in logged.text
            assert token not in logged.text
        finally:
            process.kill()
            process.wait(10)


def test_each_call_is_one_line_without_texts(sim, line, taro, caplog):
    caplog.set_level(logging.INFO, "linesim")
    line.push(taro.user_id, "秘密")
    line.push(taro.user_id, "秘密", "")
    line.get("/v2/bot/nowhere?key=秘密")
    sim.close_next("profile")
    with pytest.raises(requests.ConnectionError):
        line.get(f"/v2/bot/profile/{taro.user_id}")
    push = "push POST /v2/bot/message/push"
    error = 'message="The request body has 1 error(s)"'
    assert [(one.levelname, one.getMessage()) for one in caplog.records] == [
        ("INFO", f"{push} status=200 chat={taro.user_id}"),
        (
            "INFO",
            f"{push} status=400 chat={taro.user_id} {error} properties=messages[1].text",
        ),
        ("WARNING", "linesim does not have GET /v2/bot/nowhere status=404"),
        ("INFO", f"profile GET /v2/bot/profile/{taro.user_id} status=closed chat={taro.user_id}"),
    ]


def test_a_webhook_that_failed_is_logged_with_its_cause(sim, taro, bot, caplog):
    caplog.set_level(logging.INFO, "linesim")
    sim.say(taro, "はい")
    bot.status = 500
    sim.say(taro, "はい")
    assert [one.getMessage() for one in caplog.records] == ["webhook events=1 outcome=500"]
