"""The overview in a real browser: while its data is old, its zone, selected text and keys."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest

from linedesk.store.client import connect
from tests.frontdesk.cut_line import Gate
from tests.linedesk.operate import a_day
from tests.linedesk.operate.serving import served
from tests.linedesk.page.conftest import Open
from tests.rows import Db

Page = Any
# The longest time until the page notices that its data is old.
STALE_MS = 10_000
# Beside the log of the tests, which CI keeps.
WIDE = {"viewport": {"width": 1280, "height": 900}}


@contextmanager
def a_page(browser: Any, url: str, **more: Any) -> Iterator[Page]:
    """A page whose failed requests are expected."""
    context = browser.new_context(**WIDE | {"base_url": url} | more)
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def quiet(database: Db) -> None:
    """A database in which everything is OK."""
    figures = {"oldestUnfinishedSeconds": 2.0, "waitingKeys": {}}
    row = a_day.dispatcher_row(waiting=[])
    row["figures"] |= figures
    database.status.insert_many([a_day.desk_row(), row])


def is_marked_stale(page: Page) -> None:
    """Fails unless nothing on the page looks current."""
    assert page.title() == "✕ no connection · linedesk"
    assert page.locator("#icon").get_attribute("href") == "/static/icon-lost.svg"
    assert page.locator("#live").inner_text() == "Not live."
    text = page.locator("body").inner_text()
    assert "All is well" not in text
    assert page.locator(".verdict.good").is_hidden() or not page.locator(".verdict.good").count()
    # No colour, so no green; and nothing moves.
    filtered = page.evaluate("getComputedStyle(document.getElementById('main')).filter")
    assert filtered == "grayscale(1)"
    moving = """() => [...document.querySelectorAll('.way .drops')].filter(
        one => getComputedStyle(one).animationName !== 'none').length"""
    assert page.evaluate(moving) == 0
    ages = page.locator("#figures .age")
    assert ages.count() >= 6
    assert all(" old" in one for one in ages.all_inner_texts())


def test_without_mongodb_nothing_is_green_within_ten_seconds(
    browser: Any, database: Db, mongo_uri: str
) -> None:
    quiet(database)
    port = urlsplit(mongo_uri).port
    assert port is not None
    with (
        Gate(port) as gate,
        connect(gate.uri, app_name="console") as own,
        served(own[database.name]) as url,
        a_page(browser, url) as page,
    ):
        page.locator(".verdict.good").wait_for()
        assert page.title() == "OK · linedesk"
        gate.shut()
        page.wait_for_function("() => document.title.startsWith('✕')", timeout=STALE_MS)
        assert "MongoDB does not answer" in page.locator("#trouble").inner_text()
        is_marked_stale(page)
        with a_page(browser, url, java_script_enabled=False) as plain:
            is_marked_stale(plain)
            assert plain.locator(".way.wide .place.good, .tag.good").count() == 0
        gate.open()
        # Only now do rows count as old or not.
        database.status.update_many({}, {"$set": {"at": datetime.now(UTC)}})
        page.wait_for_function("() => document.title.startsWith('OK')")
        assert page.locator("#live").inner_text() == "Live."
        assert page.locator("#figures .age").first.is_hidden()


def test_without_the_console_nothing_is_green_within_ten_seconds(
    browser: Any, database: Db
) -> None:
    quiet(database)
    with served(database) as url:
        pages = a_page(browser, url)
        page = pages.__enter__()
        page.locator(".verdict.good").wait_for()
    page.wait_for_function("() => document.title.startsWith('✕')", timeout=STALE_MS)
    is_marked_stale(page)
    assert "No connection to the console since" in page.locator("#offline").inner_text()
    assert "State unknown" in page.locator("#verdict").inner_text()
    # All ages are one, and all go on.
    page.wait_for_function(
        """before => {
            const all = [...document.querySelectorAll('.age')].map(one => one.textContent);
            return all[0] !== before && all.every(one => one === all[0])
                && document.getElementById('offline').textContent.includes(`is ${all[0]}`);
        }""",
        arg=page.locator("#figures .age").first.inner_text(),
    )
    pages.__exit__(None, None, None)


@pytest.mark.long
def test_an_answer_of_a_proxy_is_no_answer_of_the_console(open_page: Open) -> None:
    page = open_page()
    page.evaluate(
        "() => { window.fetch = async () => new Response('<h1>502 Bad Gateway</h1>',"
        " { status: 502 }); }"
    )
    page.locator("#offline", has_text="No connection to the console").wait_for()
    is_marked_stale(page)


def test_all_times_are_in_the_browsers_zone_which_is_named(browser: Any, full: Db) -> None:
    why = {"code": "scanning recvq", "since": datetime(2026, 1, 2, 0, 26, tzinfo=UTC)}
    full.status.update_many({}, {"$set": {"why": why, "at": a_day.moment(-600)}})
    with served(full) as url, a_page(browser, url, timezone_id="America/New_York") as page:
        assert page.locator("#zone").inner_text().startswith("Times in America/New_York (UTC-")
        # Within texts as well.
        processes = page.locator("#processes").inner_text()
        assert "scanning recvq since 2026-01-01 19:26\n" in f"{processes}\n".replace("\t", "\n")
        at = full.history.find_one({}, sort=[("at", -1)])
        assert at is not None
        tips = page.locator(".hover title").all_text_contents()
        assert f"{at['at'].astimezone(ZoneInfo('America/New_York')):%H:%M:%S}" in "".join(tips)
        # They stay so when the page has fetched itself again.
        first = page.locator("#processes time").first.inner_text()
        page.evaluate(
            "window.asked = 0; const real = fetch;"
            "window.fetch = (...all) => { window.asked += 1; return real(...all); }"
        )
        page.wait_for_function("() => window.asked > 1")
        assert page.locator("#processes time").first.inner_text() == first


@pytest.mark.long
def test_the_page_shows_that_it_pauses_while_text_is_selected(open_page: Open) -> None:
    page = open_page()
    assert page.locator("#selecting").is_hidden()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#figures dd'))")
    page.locator("#selecting", has_text="Paused while you select text.").wait_for()
    page.evaluate("getSelection().removeAllRanges()")
    page.locator("#selecting").wait_for(state="hidden")


def test_keys_lead_to_the_search_and_through_the_rows(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('.wrongs li') !== null")
    for _ in range(page.locator(".wrongs li").count()):
        page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('#waiting tr') !== null")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.closest('.wrongs li') !== null")
    page.keyboard.press("/")
    page.keyboard.type("jk/")
    assert page.locator(".search input").input_value() == "jk/"
