"""The operator's page as a program sees it: rights, the contents of answers, results of acts."""

import logging
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime
from html import unescape
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import requests
from bson import ObjectId

from frontdesk.http import HEAD_BYTES
from linedesk.operate.acts import OperatorControl
from linedesk.operate.overview import read_overview
from linedesk.page import actions, pages
from linedesk.page.gatekeeping import MOST_BODY_BYTES, Console, refusal
from linedesk.store.control import Scope
from linedesk.store.errors import StoreUnavailable
from tests.linedesk.operate import a_day
from tests.linedesk.operate.a_day import EVENT, SECRET_TEXT, USER
from tests.linedesk.operate.serving import served
from tests.rows import Db
from tests.waiting import eventually

PASSWORD, TOKEN = "correct-horse-battery", "token-for-scripts-1"
CONVERSATION = f"/conversation/main/{USER}"
EVERY_PAGE = (
    *("/", "/?hours=24", "/charts?hours=6", "/letters", "/calls", "/calls?failed=true", "/audit"),
    *("/conversations", "/conversations?order=waiting", "/events", "/pauses"),
    f"/letters/ask?id={EVENT[:-1]}0",
    *(CONVERSATION, f"/event/{EVENT}", f"/letters/{EVENT[:-1]}0"),
)


@pytest.fixture
def full(database: Db) -> Db:
    a_day.fill(database, hours=0.5)
    return database


@pytest.fixture
def browser() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False
        session.auth = ("hanako", "")
        yield session


def post(browser: requests.Session, url: str, path: str, **fields: Any) -> requests.Response:
    """As a form of a page of ours would."""
    return browser.post(f"{url}{path}", data=fields, timeout=20)


def test_every_page_answers_safely_and_shows_nothing_that_people_wrote(
    full: Db, browser: requests.Session
) -> None:
    with served(full) as url:
        for path in EVERY_PAGE:
            answer = browser.get(f"{url}{path}")
            assert answer.status_code == 200, path
            assert SECRET_TEXT not in answer.text, path
            told = browser.get(f"{url}{path}", headers={"accept": "application/json"}).content
            assert SECRET_TEXT not in told.decode(), path
            policy = answer.headers["content-security-policy"]
            assert "script-src 'self'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["cache-control"] == "no-store"
            # Nothing that the policy would refuse, and nothing from elsewhere.
            assert not re.search(r"<style|<script>| style=| on\w+=|(src|href)=\"http", answer.text)
        assert "佐藤花子" in browser.get(f"{url}{CONVERSATION}").text
        assert "KeyError(event.text)" in browser.get(f"{url}/letters/{EVENT[:-1]}0").text


HOSTILE = "'\"><img src=x onerror=alert(1)>`{{7*7}}"


def made_hostile(database: Db) -> None:
    """Every text that another person, the bot or LINE decides."""
    conversations, reason = database.conversations, {"message": HOSTILE, "details": []}
    members = {"U1": {"displayName": HOSTILE}}
    named = {"profile.displayName": HOSTILE, "state": HOSTILE, "members": members, "kind": HOSTILE}
    conversations.update_many({}, {"$set": named})
    spoiled = {"cause": HOSTILE, "traceback": f'  File "{HOSTILE}", line 1, in {HOSTILE}'}
    database.deadletters.update_many({}, {"$set": spoiled})
    database.calls.update_many({}, {"$set": {"reason": reason, "requestId": HOSTILE}})
    database.jobs.update_many({}, {"$set": {"error": HOSTILE, "outcome": "failed"}})
    row = {"channel": "main", "key": USER, "why": HOSTILE, "eventId": HOSTILE, "documents": 1}
    waiting = {**row, "since": a_day.moment(100)}
    told = {"waiting": [waiting], "why": HOSTILE, "threads": [{**waiting, "name": HOSTILE}]}
    database.status.update_many({"role": "dispatcher"}, {"$set": told})
    for scope in (Scope("main"), Scope("main", USER), Scope()):
        OperatorControl(database).pause(scope, by=HOSTILE, why=HOSTILE)
    database.audit.insert_one(
        {"at": a_day.moment(9), "by": HOSTILE, "via": HOSTILE, "act": HOSTILE, "on": HOSTILE}
        | {"why": HOSTILE, "outcome": HOSTILE}
    )
    database.schedule.insert_one(
        {"_id": f"main/{USER}/{HOSTILE}", "channel": "main", "key": USER, "setBy": HOSTILE}
        | {"runAt": a_day.moment(-99), "every": {"at": HOSTILE, "tz": HOSTILE}}
    )
    event = {**a_day.document(), "_id": 1, "eventId": f"{HOSTILE}/1"}
    database.recvq.insert_one({**event, "event": {"type": HOSTILE, "message": {"type": HOSTILE}}})


def test_names_causes_and_reasons_are_text_and_no_markup(
    full: Db, browser: requests.Session
) -> None:
    shown = set()
    with served(full, Console(text=True)) as url:
        for path in (CONVERSATION, f"/event/{EVENT}", f"/letters/{EVENT[:-1]}0"):
            assert SECRET_TEXT in browser.get(f"{url}{path}").text, path
        made_hostile(full)
        for path in (*EVERY_PAGE, f"/search?q={quote(HOSTILE)}", f"/search?q={USER[:4]}"):
            page = browser.get(f"{url}{path}").text
            assert "<img" not in page, path
            assert HOSTILE not in page, path
            # No attribute ends early either.
            assert not re.search(r"=\"[^\"]*'\">&lt;img", page), path
            if "&lt;img src=x" in page:
                shown.add(path)
    assert {"/", CONVERSATION, "/audit", "/letters", "/pauses", "/calls"} <= shown


def test_a_name_stands_beside_each_id_and_ids_of_the_audit_are_links(
    full: Db, browser: requests.Session
) -> None:
    refused = {"message": "1 error", "details": [{"property": "a", "message": "May not be empty"}]}
    call = {"endpoint": "/v2/bot/message/push", "status": 400, "reason": refused}
    full.calls.insert_one({**call, "at": a_day.moment(1), "eventId": EVENT, "key": USER})
    done = {"at": a_day.moment(5), "by": "yamada", "via": "page", "why": "", "outcome": "done"}
    acts = {"release": f"main/{USER} {EVENT}", "drop": [f"{EVENT[:-1]}{n}" for n in range(5)]}
    full.audit.insert_many([{**done, "act": act, "on": on} for act, on in acts.items()])
    with served(full) as url:
        for path in ("/letters", "/calls", f"/event/{EVENT}", "/audit"):
            page = browser.get(f"{url}{path}").text
            link = re.search(rf'href="{CONVERSATION}">(.*?)</a>', page, re.S)
            assert link, path
            assert "佐藤花子" in link[1], path
            assert "…" in link[1], path
            if path != "/letters":
                assert path == "/audit" or "1 error: a May not be empty" in page
    links = set(re.findall(r'<td class="words">(.*?)</td>', page, re.S))
    assert f'href="/event/{EVENT}"' in str(links)
    assert "5 letters" in page


def test_a_column_of_a_chart_leads_to_the_events_of_its_time(
    full: Db, browser: requests.Session
) -> None:
    with served(full) as url:
        page = unescape(browser.get(f"{url}/?hours=1").text)
        columns = re.findall(r'<a href="(/events\?from=[^"]*)".*?data-time="([^"]*)"', page, re.S)
        address, time_ = columns[40]
        came = datetime.fromisoformat(time_)
        row = {**a_day.document(), "eventId": "01JTHEN", "acceptTime": came}
        full.recvq.insert_one({**row, "_id": ObjectId.from_datetime(came)})
        found = browser.get(f"{url}{address}").text
        assert 'id="event-01JTHEN"' in found
        assert f'id="event-{EVENT}"' not in found
        assert browser.get(f"{url}/events?from=nonsense").status_code == 422


def test_restarts_deploys_acts_and_gaps_are_marked_on_the_curves(
    full: Db, browser: requests.Session
) -> None:
    full.history.delete_many({"at": {"$gt": a_day.moment(900), "$lt": a_day.moment(600)}})
    killed = {**a_day.process("dispatcher", 700), "at": a_day.moment(600)}
    full.status.insert_one({**killed, "startedAt": a_day.moment(1200)})
    newer = {"startedAt": a_day.moment(595), "version": "0.2.0", "at": a_day.moment(-600)}
    full.status.update_one({"role": "dispatcher", "pid": 815}, {"$set": newer})
    act = {"by": "hanako", "via": "page", "outcome": "done", "why": ""}
    full.audit.insert_one({**act, "act": "pause", "on": "all", "at": a_day.moment(300)})
    with served(full) as url:
        page = browser.get(f"{url}/").text
    told = re.findall(r'class="grid mark".*?<title>(.*?)</title>', page.partition("chart-age")[0])
    assert [re.sub(r"5 min( 10 s)?: .*", "5 min", one) for one in told][-4:] == [
        "dispatcher started, version 0.1.0",
        "nothing recorded for 5 min",
        "dispatcher started, version 0.2.0",
        "pause all",
    ]


def test_spoiled_or_emptied_rows_break_no_page(database: Db, browser: requests.Session) -> None:
    with served(database) as url:
        assert browser.get(f"{url}/").status_code == 200
        for collection in ("status", "calls", "jobs", "audit", "control"):
            database[collection].insert_one({"act": "pause", "role": "dispatcher", "key": USER})
        database.deadletters.insert_one({"_id": "x"})
        database.history.insert_one({"at": a_day.moment(5), "waitP99": "<b>"})
        for path in ("/", "/charts", "/calls", "/letters", "/letters/x", "/audit"):
            assert browser.get(f"{url}{path}").status_code in (200, 404), path


def test_a_word_leads_to_what_it_means(full: Db, browser: requests.Session) -> None:
    with served(full) as url:
        for word in ("佐藤花子", USER, USER[:6], EVENT, "468789577898262530"):
            found = browser.get(f"{url}/search", params={"q": word})
            assert found.url.startswith((f"{url}/conversation/", f"{url}/event/")), word
        unknown = browser.get(f"{url}/search", params={"q": "<b>nobody"})
        assert unknown.status_code == 404
        assert "&lt;b&gt;nobody" in unknown.text
        assert browser.get(f"{url}/event/nothing").status_code == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, None),
        ({"host": "localhost:8010"}, None),
        ({"host": "[::1]:8010"}, None),
        ({"host": "rebound.example"}, 421),
        ({"host": ""}, 421),
        ({"x-forwarded-for": "192.0.2.1"}, 403),
        ({"origin": "http://127.0.0.1:8010"}, None),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "https://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"content-length": str(MOST_BODY_BYTES + 1)}, 413),
        ({"content-length": ""}, 411),
    ],
)
def test_a_form_is_taken_only_from_pages_of_ours(
    headers: dict[str, str], status: int | None
) -> None:
    told = {"host": "127.0.0.1:8010", "content-length": "10", **headers}
    found = refusal(
        "POST", pages.Request({"type": "http", "headers": raw(told)}).headers, Console()
    )
    assert (found and found[0]) == status


def raw(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]


def test_only_names_of_ours_are_answered() -> None:
    everywhere = Console(host="0.0.0.0")
    assert everywhere.knows("192.0.2.7:8010")
    assert not everywhere.knows("rebound.example")
    assert Console(host="desk.internal").knows("desk.internal:8010")
    assert Console(url="https://desk.example").knows("desk.example")
    assert not Console(host="192.0.2.7").knows("192.0.2.8")


def test_a_form_of_another_site_does_nothing(full: Db, browser: requests.Session) -> None:
    """A browser sends its password with it, as with each request."""
    with served(full) as url:
        for elsewhere in (
            {"origin": "https://elsewhere.example"},
            {"sec-fetch-site": "cross-site"},
        ):
            fields = {"channel": "main", "key": USER}
            answer = browser.post(f"{url}/pause", data=fields, headers=elsewhere)
            assert answer.status_code == 403
        assert full.control.count_documents({}) == 0
        assert full.audit.count_documents({}) == 0


def test_while_mongodb_hangs_the_page_answers_with_what_it_knew(
    full: Db, browser: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs, goes_on = threading.Event(), threading.Event()

    def read(database: Db, **more: Any) -> Any:
        if hangs.is_set():
            goes_on.wait(20)
            raise StoreUnavailable("frozen")
        return read_overview(database, **more)

    monkeypatch.setattr(pages, "read_overview", read)
    with served(full, overview_seconds=0.0, waits_for_readings=False) as url:
        eventually(lambda: "12.4/s" in browser.get(f"{url}/").text)
        hangs.set()
        # The first of them asks, and goes on without an answer.
        for _ in range(2):
            assert "12.4/s" in browser.get(f"{url}/", timeout=2).text
        assert browser.get(f"{url}/static/console.css", timeout=2).status_code == 200
        goes_on.set()
        page = eventually(lambda: told(browser, url, "MongoDB does not answer"))
        assert "12.4/s" in page
        assert "This page shows data of" in page
        assert "● OK" not in page
        assert 'class="tag good"' not in page.split('id="calls"')[0]
        hangs.clear()
        eventually(lambda: not told(browser, url, "MongoDB does not answer"))


def told(browser: requests.Session, url: str, words: str) -> str:
    page = browser.get(f"{url}/", timeout=2).text
    return page if words in page else ""


def test_all_viewers_together_cost_one_reading_a_second(
    full: Db, browser: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[int] = []

    def read(database: Db, **more: Any) -> Any:
        reads.append(1)
        return read_overview(database, **more)

    monkeypatch.setattr(pages, "read_overview", read)
    with served(full, overview_seconds=60.0) as url:
        for _ in range(5):
            assert browser.get(f"{url}/").status_code == 200
    assert len(reads) == 1


def test_a_flood_of_refusals_is_a_line_a_second_in_the_log(
    database: Db, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    began = time.monotonic()
    with served(database, Console(password=PASSWORD)) as url:
        place = urlsplit(url)
        for number in range(30):
            with socket.create_connection((place.hostname, place.port), timeout=10) as line:
                line.sendall(b"\0\r\n\r\n" if number % 2 else b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
                assert line.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 421")
        requests.get(url, timeout=10)
        requests.get(url, auth=("hanako", "wrong"), timeout=10)
    told = [m for m in caplog.messages if m.startswith(("refused", "Invalid"))]
    assert 0 < len(told) <= time.monotonic() - began + 2, told
    assert sum(int(line.split("requests=")[1].split()[0]) for line in told) == 31
    for reason in ("400 not an HTTP request", "421 Misdirected Request", "401 Unauthorized"):
        assert f"{reason} (" in caplog.text


# A name without a password: "hanako:".
AUTH = b"Authorization: Basic aGFuYWtvOg==\r\n"
URLENCODED = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 900\r\n"
FORM = b"POST /pause HTTP/1.1\r\nHost: localhost\r\n" + URLENCODED + AUTH + b"\r\nwhy="


def raw_to(url: str, first: bytes = b"") -> socket.socket:
    place = urlsplit(url)
    line = socket.create_connection((place.hostname, place.port), timeout=20)
    line.sendall(first)
    return line


def answer_of(line: socket.socket) -> bytes:
    """All that comes until the other side closes."""
    return b"".join(iter(lambda: line.recv(65536), b""))


def test_a_head_without_end_is_refused_and_takes_no_memory(database: Db) -> None:
    with served(database) as url, raw_to(url, b"GET / HTTP/1.1\r\nX: ") as line:
        line.sendall(b"x" * (HEAD_BYTES + 1))
        assert b" 431 " in answer_of(line)


def test_half_a_head_and_half_a_form_are_ended(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actions, "FORM_SECONDS", 0.2)
    limits: Any = {"server": {"head_seconds": 0.2}}
    with served(database, **limits) as url, ExitStack() as stack:
        silent, head, form = (
            stack.enter_context(raw_to(url, first)) for first in (b"", b"GET / HT", FORM)
        )
        assert b" 408 " in answer_of(head)
        assert answer_of(silent) == b""
        answer = b""
        while b"The form did not arrive in time" not in answer:
            answer += (more := form.recv(65536))
            assert more


def test_strangers_that_take_every_place_shut_no_operator_out(
    database: Db, browser: requests.Session
) -> None:
    limits: Any = {"server": {"most_connections": 16, "most_requests": 8}}
    with served(database, Console(password=PASSWORD), **limits) as url, ExitStack() as stack:
        browser.auth = ("hanako", PASSWORD)
        assert browser.get(f"{url}/calls").status_code == 200
        for first in (b"", b"GET / HT", FORM):
            for _ in range(20):
                stack.enter_context(raw_to(url, first))
            # On a connection that may have been open before, and on a new one.
            assert browser.get(f"{url}/calls").status_code == 200
            assert requests.get(f"{url}/calls", auth=browser.auth).status_code == 200


def test_the_connection_of_a_known_visitor_is_not_closed_in_favour_of_strangers(
    database: Db,
) -> None:
    limits: Any = {"server": {"most_connections": 3}}
    with served(database, Console(token=TOKEN), **limits) as url, ExitStack() as stack:
        asked = f"GET /audit HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        person = stack.enter_context(raw_to(url, asked.encode()))
        assert b" 200 " in person.recv(15)
        for _ in range(4):
            stranger = stack.enter_context(
                raw_to(url, b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            )
            assert b" 401 " in stranger.recv(15)
        person.sendall(asked.encode())
        answers = b""
        while answers.count(b"</html>") < 2:
            answers += (more := person.recv(65536))
            assert more, "it was ended"
