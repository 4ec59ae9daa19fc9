"""The login: name and password, the token, and how many guesses an attacker gets."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest
import requests

from linedesk.page.auth import MOST_WAITING, Doorkeeper, TooManyGuesses
from linedesk.page.gatekeeping import Console
from linedesk.settings.addresses import console_login
from linedesk.settings.settings import load_settings
from linesim.http.unanswered import of_console
from linesim.model.options import Options
from tests.linedesk.operate.a_day import EVENT, USER
from tests.linedesk.operate.serving import served
from tests.linedesk.page.test_web import PASSWORD, TOKEN
from tests.linedesk.page.test_web import full as full
from tests.rows import Db

RIGHT = ("hanako", PASSWORD)
ADDRESS = "192.0.2.1"


@pytest.fixture
def browser() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        yield session


def basic(name: str, password: str) -> str:
    asked = requests.Request("GET", "http://x", auth=(name.encode(), password.encode()))
    return str(asked.prepare().headers["authorization"])


def test_without_name_and_password_no_page_shows_and_no_act_is_done(
    full: Db, browser: requests.Session
) -> None:
    with served(full, Console(password=PASSWORD, token=TOKEN), guess_seconds=0.0) as url:
        for path in ("/", "/calls", "/nowhere", "/static/console.js", f"/conversation/main/{USER}"):
            for credentials in (None, ("hanako", "wrong"), ("hanako", ""), ("", PASSWORD)):
                answer = browser.get(f"{url}{path}", auth=credentials)
                assert answer.status_code == 401, path
                assert answer.headers["www-authenticate"].startswith("Basic ")
        for path in ("/pause", "/resume", "/release", "/letters/drop", "/letters/replay"):
            assert browser.post(f"{url}{path}", auth=("x", "wrong")).status_code == 401, path
        assert full.audit.count_documents({}) == 0
        browser.auth = tuple(one.encode() for one in ("佐藤花子", PASSWORD))
        assert browser.get(f"{url}/calls").status_code == 200
        browser.post(f"{url}/pause", data={"channel": "main", "key": USER})
        assert [row["by"] for row in full.audit.find()] == ["佐藤花子"]


def test_without_a_password_only_an_act_asks_for_a_name(
    full: Db, browser: requests.Session
) -> None:
    fields = {"channel": "main", "key": USER, "why": "お休み"}
    with served(full) as url:
        assert browser.get(f"{url}/pauses").status_code == 200
        asked = browser.post(f"{url}/pause", data=fields)
        assert asked.status_code == 401
        assert asked.headers["www-authenticate"].startswith("Basic ")
        assert full.control.count_documents({}) == full.audit.count_documents({}) == 0
        done = browser.post(f"{url}/pause", data=fields, auth=("hanako", ""))
        assert "as hanako" in done.text
        assert [row["by"] for row in full.audit.find()] == ["hanako"]


def test_a_script_with_the_token_acts(full: Db, browser: requests.Session) -> None:
    with served(full, Console(token=TOKEN), guess_seconds=0.0) as url:
        assert browser.get(url).headers["www-authenticate"] == "Bearer"
        for wrong in (f"Bearer {TOKEN}x", "Bearer ", basic("hanako", TOKEN), basic("x", "")):
            assert browser.get(url, headers={"authorization": wrong}).status_code == 401
        browser.headers["authorization"] = f"Bearer {TOKEN}"
        assert browser.post(f"{url}/pause", data={"key": USER}).status_code == 200
        assert full.audit.find_one({"act": "pause", "by": "the token"}) is not None


def test_the_simulator_logs_in_by_the_settings(full: Db) -> None:
    with served(full, Console(password=PASSWORD, token=TOKEN), guess_seconds=0.0) as url:
        for credential in ({"CONSOLE_TOKEN": TOKEN}, {"CONSOLE_PASSWORD": PASSWORD}):
            login = console_login(load_settings(credential))
            assert of_console(Options(console_url=url, console_login=login), EVENT)
        assert of_console(Options(console_url=url), EVENT) is None


def test_credentials_that_cannot_be_read_are_none() -> None:
    async def scene() -> None:
        open_to_all, closed = Doorkeeper(), Doorkeeper(password="a:b")
        assert await closed.visitor(basic("佐藤", "a:b"), address=ADDRESS) == "佐藤"
        for one in ("", "Basic", "Basic é", "Basic /w==", "Basic x=y", "Digest x"):
            assert await open_to_all.visitor(one, address=ADDRESS) == ""
            assert await closed.visitor(one, address=ADDRESS) is None
        assert await closed.visitor("Bearer\0", address=ADDRESS) is None

    asyncio.run(scene())


def test_a_flood_of_guesses_gets_two_a_second_and_known_visitors_do_not_wait() -> None:
    async def scene() -> None:
        doorkeeper = Doorkeeper(password=PASSWORD, token=TOKEN, guess_seconds=0.1)
        known = (basic(*RIGHT), f"Bearer {TOKEN}")
        for one in known:
            assert await doorkeeper.visitor(one, address=ADDRESS)
        began, wrong = time.monotonic(), [basic("hanako", f"{n}") for n in range(MOST_WAITING)]
        guesses = [asyncio.create_task(doorkeeper.visitor(one, address=ADDRESS)) for one in wrong]
        await asyncio.sleep(0)
        # None of these waits for the lock.
        for one in known:
            assert await asyncio.wait_for(doorkeeper.visitor(one, address=ADDRESS), 0.1)
        with pytest.raises(TooManyGuesses):
            await doorkeeper.visitor(basic("taro", PASSWORD), address=ADDRESS)
        assert await asyncio.gather(*guesses) == [None] * MOST_WAITING
        assert time.monotonic() - began >= MOST_WAITING * 0.1
        assert await doorkeeper.visitor(basic("taro", PASSWORD), address=ADDRESS)

    asyncio.run(scene())


def test_a_guess_whose_client_leaves_takes_as_long(database: Db) -> None:
    """Otherwise an attacker who waits for no answer would guess without a limit."""
    with served(database, Console(password=PASSWORD), guess_seconds=0.3) as url:
        place, began = urlsplit(url), time.monotonic()
        asked = f"GET / HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic('x', 'y')}\r\n\r\n"
        for _ in range(3):
            with socket.create_connection((place.hostname, place.port), timeout=10) as line:
                line.sendall(asked.encode())
                line.settimeout(0.05)
                with pytest.raises(TimeoutError):
                    line.recv(1)
        assert requests.get(url, auth=RIGHT, timeout=20).status_code == 200
        assert time.monotonic() - began >= 3 * 0.3


def test_more_guesses_than_may_wait_are_refused_from_whatever_addresses(database: Db) -> None:
    """A client may claim any address; behind a proxy there is one lock for all."""
    console = Console(password=PASSWORD, url="https://desk.example")
    with served(database, console, guess_seconds=0.05) as url:
        found: list[int] = []

        def guess(number: int) -> None:
            claim = {"host": "desk.example", "x-forwarded-for": f"192.0.2.{number}"}
            auth = ("hanako", f"wrong{number}")
            found.append(requests.get(url, headers=claim, auth=auth, timeout=60).status_code)

        threads = [threading.Thread(target=guess, args=(n,)) for n in range(MOST_WAITING + 20)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        assert set(found) == {401, 429}
        claim = {"host": "desk.example", "x-forwarded-for": "198.51.100.1"}
        assert requests.get(url, headers=claim, auth=RIGHT, timeout=20).status_code == 200
