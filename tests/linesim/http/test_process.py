"""The simulator as a separate process."""

import os
import re
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from tests.fork_server import Written, nursery
from tests.frontdesk.desk import SECRET
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
SECRETS = {"LINE_CHANNEL_SECRET": SECRET, "LINE_CHANNEL_ACCESS_TOKEN": "t0ken"}


@contextmanager
def serving(webhook="http://127.0.0.1:1/", command=("tests.linesim.patient",)):
    """The process from the fork server and its address, read from the line that it logs."""
    with Written() as said, open(os.devnull, "wb") as nowhere:
        process = nursery.start(
            *(*command, webhook), env=os.environ | SECRETS, stdout=nowhere.fileno(), stderr=said.fd
        )
        try:
            yield process, address(process, lambda: said.text)
        finally:
            process.kill()
            process.wait(10)


def address(process, log):
    def told():
        assert process.poll() is None, log()
        return re.search(r"serving url=(\S+)", log())

    return eventually(told)[1]


# Delayed calls take a minute, or never end; a stop takes up to 11 s, and more on a busy machine.
END_SECONDS = 45


def ends(process):
    process.send_signal(signal.SIGTERM)
    return process.wait(END_SECONDS) == 0


def test_a_signal_stops_it_though_a_page_is_open():
    with (
        serving() as (process, url),
        requests.get(f"{url}/sim/stream", stream=True, timeout=10) as stream,
    ):
        lines = stream.iter_lines()
        assert next(lines).startswith(b":")
        assert ends(process)
        # It was closed cleanly; an aborted connection raises here.
        assert list(lines) is not None


@pytest.mark.parametrize("unruly", [{}, {"double": 1, "delay": [60, 60]}])
def test_webhooks_that_hang_or_wait_do_not_hold_up_the_stop(unruly):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        webhook = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        with serving(webhook) as (process, url):
            user = requests.post(f"{url}/sim/users", json={"name": "太郎"}, timeout=10).json()
            requests.post(f"{url}/sim/unruly", json=unruly, timeout=10)
            acts = {"acts": [{"act": "text", "user": user["userId"], "text": "やあ"}]}
            for _ in range(3):
                with pytest.raises(requests.ReadTimeout):
                    requests.post(f"{url}/sim/deliveries", json=acts, timeout=(5, 0.1))
            assert ends(process)
