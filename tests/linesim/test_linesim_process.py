"""The simulator as a process of its own."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

ROOT = Path(__file__).parents[2]
SECRETS = {"LINE_CHANNEL_SECRET": "s3cret", "LINE_CHANNEL_ACCESS_TOKEN": "t0ken"}


def start(*arguments, environ=SECRETS):
    return subprocess.Popen(
        [sys.executable, "-m", "linesim", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def serving(*arguments):
    """The process and its address, read from the line that it logs."""
    process = start("--port", "0", *arguments)
    try:
        for row in process.stderr:
            if found := re.search(r"serving url=(\S+)", row):
                break
        else:
            pytest.fail("linesim did not start")
        yield process, found[1]
    finally:
        process.kill()
        process.communicate()


def seconds_to_end(process, number=signal.SIGTERM):
    began = time.monotonic()
    process.send_signal(number)
    assert process.wait(10) == 0
    return time.monotonic() - began


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_within_a_second_though_a_page_is_open(number):
    def stop():
        with (
            serving() as (process, url),
            requests.get(f"{url}/sim/stream", stream=True, timeout=10) as stream,
        ):
            assert next(stream.iter_lines()).startswith(b":")
            return seconds_to_end(process, number)

    assert stop() < 1


@pytest.mark.parametrize("unruly", [{}, {"double": 1, "delay": [1, 60]}, {"double": 1}])
def test_webhooks_that_hang_or_wait_do_not_hold_up_the_stop(unruly):
    def stop():
        with socket.create_server(("127.0.0.1", 0)) as silent:
            webhook = f"http://127.0.0.1:{silent.getsockname()[1]}/"
            with serving("--webhook", webhook) as (process, url):
                user = requests.post(f"{url}/sim/users", json={"name": "太郎"}, timeout=10).json()
                requests.post(f"{url}/sim/unruly", json=unruly, timeout=10)
                acts = {"acts": [{"act": "text", "user": user["userId"], "text": "やあ"}]}
                for _ in range(3):
                    with pytest.raises(requests.ReadTimeout):
                        requests.post(f"{url}/sim/deliveries", json=acts, timeout=(5, 0.1))
                return seconds_to_end(process)

    assert stop() < 1


def test_another_process_is_told_the_verdict():
    with serving() as (_, url):
        requests.post(f"{url}/sim/misbehave", json={"rules": [{"outcome": "close"}]}, timeout=10)
        with pytest.raises(requests.ConnectionError):
            requests.get(
                f"{url}/v2/bot/info", headers={"authorization": "Bearer t0ken"}, timeout=10
            )
        report = requests.get(f"{url}/sim/verdict", timeout=10).json()
    assert (report["ok"], report["calls"]) == (True, {"info": {"closed": 1}})


def test_secret_and_token_come_from_the_environment_and_stay_out_of_the_log():
    with serving("--quota", "5", "--reply-token-seconds", "9") as (process, url):
        headers = {"authorization": "Bearer t0ken"}
        answer = requests.get(f"{url}/v2/bot/message/quota", headers=headers, timeout=10)
        assert answer.json() == {"type": "limited", "value": 5}
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
        process.terminate()
        _, log = process.communicate(timeout=5)
    assert b"t0ken" not in arguments
    assert "t0ken" not in log
    assert "s3cret" not in log


def test_missing_secrets_are_named():
    process = start("--port", "0", environ=dict.fromkeys(SECRETS, ""))
    _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "LINE_CHANNEL_SECRET" in said
    assert "Traceback" not in said


def test_a_taken_port_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        process = start("--port", port)
        _, said = process.communicate(timeout=20)
    assert process.returncode == 69
    assert f"cannot serve on 127.0.0.1:{port}" in said
    assert "Traceback" not in said
