"""`linedesk console`: whom it lets in by its settings, and the process from start to end."""

import os
import signal

import pytest
import requests

from linedesk.launch.console import console_of, run_console
from linedesk.settings.errors import CannotServe, SettingsError
from linedesk.settings.settings import load_settings
from linedesk.setup.private_mongod import free_port
from tests.fork_server import Written, nursery
from tests.waiting import eventually

PASSWORD = "correct-horse-battery"


@pytest.mark.parametrize(
    "environ",
    [
        {"CONSOLE_HOST": "0.0.0.0"},
        {"CONSOLE_HOST": "192.0.2.7"},
        # By a proxy on this machine anybody comes.
        {"CONSOLE_URL": "https://desk.example"},
    ],
)
def test_beyond_this_machine_a_password_or_token_is_required(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsError) as refused:
        console_of(load_settings(environ))
    assert "set CONSOLE_PASSWORD" in str(refused.value)
    for name in ("CONSOLE_PASSWORD", "CONSOLE_TOKEN"):
        assert console_of(load_settings({**environ, name: PASSWORD}))


@pytest.mark.parametrize(
    ("url", "host", "is_proxied"),
    [
        (None, "127.0.0.1", False),
        ("http://desk.internal:8010", "0.0.0.0", False),
        ("http://127.0.0.1:8011", "127.0.0.1", True),
        ("http://desk.internal:8010", "127.0.0.1", True),
        ("https://desk.internal:8010", "0.0.0.0", True),
    ],
)
def test_a_url_names_a_proxy_where_the_console_itself_does_not_listen(
    url: str | None, host: str, is_proxied: bool
) -> None:
    environ = {"CONSOLE_HOST": host, "CONSOLE_PASSWORD": PASSWORD}
    environ |= {"CONSOLE_URL": url} if url else {}
    assert console_of(load_settings(environ)).is_proxied == is_proxied


def test_the_process_answers_without_mongodb_and_ends_at_once() -> None:
    port = free_port()
    environ = {**os.environ, "MONGODB_URI": "mongodb://127.0.0.1:1/", "CONSOLE_PORT": str(port)}
    with Written() as out, Written() as err:
        process = nursery.start("linedesk", "console", env=environ, stdout=out.fd, stderr=err.fd)
        try:
            eventually(lambda: f"listening url=http://127.0.0.1:{port}/" in err.text)
            assert f"Page:       http://127.0.0.1:{port}/\n" in err.text
            assert requests.get(f"http://127.0.0.1:{port}/static/console.js").status_code == 200
            page = f"http://127.0.0.1:{port}/"
            eventually(lambda: "MongoDB does not answer" in requests.get(page, timeout=10).text)
            with pytest.raises(CannotServe, match=f"cannot use 127.0.0.1 port {port}"):
                run_console(load_settings(environ))
            process.send_signal(signal.SIGTERM)
            assert process.wait(10) == 0
            assert "Traceback" not in err.text
        finally:
            process.kill()
