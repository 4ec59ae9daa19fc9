"""The overview in a real browser: while its data is old, its zone, its order, keys and sizes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo

import pytest
from pymongo.database import Database

from linedesk.store.client import Client, connect
from linedesk.store.limits import sent_id
from tests.frontdesk.cut_line import Gate
from tests.linedesk.operate import a_day
from tests.linedesk.operate.a_day import USER
from tests.linedesk.operate.serving import served

Full = Database[dict[str, Any]]
Open = Callable[..., Any]
Page = Any
# The longest time until the page notices that its data is old.
STALE_MS = 10_000
PICTURES = Path(__file__).parents[3] / ".venv" / "screenshots"
SIZES = {"wide": {"width": 1280, "height": 900}, "phone": {"width": 390, "height": 844}}
PHONE: dict[str, Any] = {"viewport": SIZES["phone"], "is_mobile": True, "has_touch": True}


@contextmanager
def a_page(browser: Any, url: str, **more: Any) -> Iterator[Page]:
    """A page whose failed requests are expected."""
    context = browser.new_context(**{"viewport": SIZES["wide"], "base_url": url} | more)
    context.set_default_timeout(20_000)
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def quiet(database: Full) -> None:
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


# Old data is marked.


def test_without_mongodb_nothing_is_green_within_ten_seconds(
    browser: Any, database: Full, mongo_uri: str
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
        assert (
            page.evaluate(
                "getComputedStyle(document.querySelector('.way .flow-2 .drops')).animationName"
            )
            == "flow"
        )
        gate.shut()
        page.wait_for_function("() => document.title.startsWith('✕')", timeout=STALE_MS)
        trouble = page.locator("#trouble").inner_text()
        assert "MongoDB does not answer" in trouble
        assert "Next step: run linedesk doctor" in trouble
        is_marked_stale(page)
        with a_page(browser, url, java_script_enabled=False) as plain:
            is_marked_stale(plain)
            assert "State unknown" in plain.locator("#verdict").inner_text()
            assert plain.locator(".way.wide .place.good, .tag.good").count() == 0
        page.screenshot(path=PICTURES / "overview-stale.png", full_page=True)
        gate.open()
        # Only now do rows count as old or not.
        database.status.update_many({}, {"$set": {"at": datetime.now(UTC)}})
        page.wait_for_function("() => document.title.startsWith('OK')")
        assert page.locator("#live").inner_text() == "Live."
        assert page.locator("#icon").get_attribute("href") == "/static/icon.svg"
        assert page.locator("#figures .age").first.is_hidden()


def test_without_the_console_nothing_is_green_within_ten_seconds(
    browser: Any, database: Full
) -> None:
    quiet(database)
    with served(database) as url:
        pages = a_page(browser, url)
        page = pages.__enter__()
        page.locator(".verdict.good").wait_for()
    page.wait_for_function("() => document.title.startsWith('✕')", timeout=STALE_MS)
    is_marked_stale(page)
    banner = page.locator("#offline")
    assert "No connection to the console since" in banner.inner_text()
    assert "start it again." in banner.inner_text()
    assert "State unknown" in page.locator("#verdict").inner_text()
    # All ages are one, and all go on.
    for _ in range(2):
        age = page.locator("#figures .age").first.inner_text()
        page.wait_for_function(
            """before => {
                const all = [...document.querySelectorAll('.age')].map(one => one.textContent);
                return all[0] !== before && all.every(one => one === all[0])
                    && document.getElementById('offline').textContent.includes(`is ${all[0]}`);
            }""",
            arg=age,
        )
    pages.__exit__(None, None, None)


def test_an_answer_of_a_proxy_is_no_answer_of_the_console(open_page: Open) -> None:
    page = open_page()
    page.evaluate(
        "() => { window.fetch = async () => new Response('<h1>502 Bad Gateway</h1>',"
        " { status: 502 }); }"
    )
    page.locator("#offline", has_text="No connection to the console").wait_for()
    is_marked_stale(page)


def test_an_empty_database_is_critical_and_not_green(
    browser: Any, client: Client, database: Full
) -> None:
    with served(client[f"{database.name}_none"]) as url, a_page(browser, url) as page:
        assert page.title() == "✕ Critical (3) · linedesk"
        assert page.locator("#icon").get_attribute("href") == "/static/icon-critical.svg"
        assert page.locator(".verdict.good, .place.good, .tag.good").count() == 0
        assert "linedesk init" in page.locator(".wrongs").inner_text()
        assert "No data for this period" in page.locator("#charts").inner_text()


# While LINE fails.


@pytest.mark.long
def test_while_line_fails_the_page_shows_what_waits_and_the_next_try(
    open_page: Open, full: Full
) -> None:
    row = a_day.dispatcher_row()
    waits = {"channel": "main", "eventId": a_day.EVENT, "effectId": f"{a_day.EVENT}/0", "sends": 2}
    why = {"code": "line_fails"}
    row["waiting"] = [{**waits, "key": USER, "why": why, "since": a_day.moment(125)}]
    row["figures"] |= {
        "queueDocuments": 0,
        "oldestUnfinishedSeconds": 0,
        "outboxEffects": 59,
        "oldestSendSeconds": 125.0,
        "breakerOpen": {"api": 1, "data": 0},
        "breakerPauseSeconds": {"api": 58.5, "data": 0},
        "gateWaiting": {"api": 4, "data": 0},
        "retentionMeasuredSeconds": 720,
    }
    full.status.replace_one({"role": "dispatcher"}, row)
    full.calls.delete_many({})
    full.calls.insert_many([{**call, "status": 500} for call in a_day.calls()])
    fails_at = [a_day.moment(seconds) for seconds in (120, 110, 100)]
    full.history.update_many({}, {"$set": {"outboxEffects": 59, "lineFails": 0}})
    full.history.insert_many({"at": at, "outboxEffects": 59, "lineFails": 1} for at in fails_at)
    page = open_page()
    problem = page.locator(".wrongs li.bad").inner_text()
    assert re.search(
        r"LINE fails \(api host\), next try in 5\d s; 59 answers wait to be sent", problem
    )
    assert "the oldest for 2 min 5 s" in problem
    tiles = page.locator("#figures").inner_text()
    assert re.search(r"Answers to send\s+59\s+oldest 2 min 5 s", tiles)
    assert re.search(r"Call of LINE\s+all failed\s+the latest 10", tiles)
    assert re.search(r"Queue retention left\s+–\s+known after an hour; measured for 12 min", tiles)
    picture = page.locator(".way.wide .place.bad")
    assert picture.filter(has_text="outboxes").filter(has_text="59 to send").count() == 1
    assert picture.filter(has_text="LINE").filter(has_text="fails").count() == 1
    assert "2 answers to send" in page.locator("#waiting").inner_text()
    assert "4 calls wait" in page.locator("#line").inner_text()
    charts = page.locator("#charts")
    assert re.search(r"\d\d:\d\d:\d\d LINE failed for \d+ s", charts.inner_text())
    assert "to send 59" in charts.inner_text()
    for jargon in ("breaker", "probes", "class live"):
        assert jargon not in page.locator("main").inner_text()


# Marks on the curves.


@pytest.mark.long
def test_restarts_deploys_pauses_and_gaps_are_marked_on_the_curves(
    open_page: Open, full: Full
) -> None:
    full.history.delete_many({"at": {"$gt": a_day.moment(900), "$lt": a_day.moment(600)}})
    killed = {**a_day.process("dispatcher", 700), "at": a_day.moment(600)}
    full.status.insert_one({**killed, "startedAt": a_day.moment(1200)})
    newer = {"startedAt": a_day.moment(595), "version": "0.2.0", "at": a_day.moment(-600)}
    full.status.update_one({"role": "dispatcher", "pid": 815}, {"$set": newer})
    act = {"by": "hanako", "via": "page", "outcome": "done", "why": ""}
    full.audit.delete_many({})
    full.audit.insert_many(
        [
            {**act, "act": "pause", "on": f"main/{USER}", "at": a_day.moment(300)},
            {**act, "act": "resume and drop", "on": "all", "at": a_day.moment(200)},
        ]
    )
    page = open_page()
    told = page.locator(".marks").inner_text().split(" · ")
    assert [re.sub(r"^\d\d:\d\d:\d\d |(?<=5 min) 10 s", "", one) for one in told] == [
        "dispatcher started, version 0.1.0",
        "nothing recorded for 5 min: without MongoDB or a leading dispatcher",
        "dispatcher started, version 0.2.0",
        f"pause main/{USER}",
        "resume and drop all",
    ]
    assert page.locator("#chart-depth .mark").count() == 5
    assert "process 700 on bot1 was killed or crashed" in page.locator(".wrongs").inner_text()


@pytest.mark.long
def test_a_killed_dispatcher_does_not_stay_working(open_page: Open, full: Full) -> None:
    lease = {"why": {"code": "scanning recvq"}, "at": a_day.moment(5)}
    full.status.update_one({"role": "dispatcher"}, {"$set": lease})
    others = {"role": {"$ne": "dispatcher"}}
    full.status.update_many(others, {"$set": {"at": a_day.moment(-600)}})
    page = open_page()
    row = page.locator("#processes tr", has_text="dispatcher").inner_text()
    assert "silent" in row
    assert "working" not in row
    assert "recvq" not in row


# One zone, and selected text.


def test_the_page_shows_what_the_month_has_used_and_by_what(open_page: Open, full: Full) -> None:
    row = a_day.dispatcher_row()
    row["figures"] |= {"quotaUsedMessages": 120}
    row["figures"].pop("quotaMessages", None)
    full.status.replace_one({"role": "dispatcher"}, row)
    month = {
        "_id": sent_id(datetime.now(UTC)),
        "one": {"replies": 1_200, "pushes": 80, "groups": 40},
    }
    full.leases.replace_one({"_id": month["_id"]}, month, upsert=True)
    line = open_page().locator("#line").inner_text()
    full.leases.delete_one({"_id": month["_id"]})
    assert "120 this month, no limit · replies 1,200 (free), pushes 80, groups 40" in line


@pytest.mark.long
def test_all_times_are_in_the_browsers_zone_which_is_named(browser: Any, full: Full) -> None:
    why = {"code": "scanning recvq", "since": datetime(2026, 1, 2, 0, 26, tzinfo=UTC)}
    full.status.update_many({}, {"$set": {"why": why, "at": a_day.moment(-600)}})
    full.control.insert_one(
        {
            "_id": "pause/main/U9",
            "act": "pause",
            "channel": "main",
            "key": "U9",
            "by": "x",
            "why": "y",
            "at": datetime(2026, 7, 1, 1, 2, 3, tzinfo=UTC),
        }
    )
    with served(full) as url, a_page(browser, url, timezone_id="America/New_York") as page:
        assert page.locator("#zone").inner_text().startswith("Times in America/New_York (UTC-")
        processes = page.locator("#processes").inner_text()
        # Within texts as well: of a status line, and of a problem.
        assert "scanning recvq since 2026-01-01 19:26\n" in f"{processes}\n".replace("\t", "\n")
        assert "U9 since 2026-06-30 21:02:03" in page.locator(".wrongs").inner_text()
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
        page.wait_for_function("() => window.asked > 2")
        assert page.locator("#processes time").first.inner_text() == first
    with served(full) as url, a_page(browser, url, java_script_enabled=False) as page:
        assert "the server's zone" in page.locator("#zone").inner_text()


def test_the_page_shows_that_it_pauses_while_text_is_selected(open_page: Open) -> None:
    page = open_page()
    assert page.locator("#selecting").is_hidden()
    page.evaluate("getSelection().selectAllChildren(document.querySelector('#figures dd'))")
    page.locator("#selecting", has_text="Paused while you select text.").wait_for()
    page.evaluate("getSelection().removeAllRanges()")
    page.locator("#selecting").wait_for(state="hidden")


# The order, links and keys.


@pytest.mark.long
def test_problems_come_first_and_all_of_them_lead_somewhere(open_page: Open, full: Full) -> None:
    full.control.insert_one(
        {
            "_id": "pause/main/U9",
            "act": "pause",
            "channel": "main",
            "key": "U9",
            "by": "hanako",
            "why": "too loud",
            "at": a_day.moment(90),
        }
    )
    # The oldest event is one of the paused conversation.
    full.status.update_one({"role": "dispatcher"}, {"$set": {"figures.unpausedOldestSeconds": 2}})
    page = open_page()
    order = ["verdict", "way", "figures", "waiting", "curves", "letters", "threads", "processes"]
    tops = [page.locator(f"#{name}").bounding_box()["y"] for name in order]
    assert tops == sorted(tops)
    assert page.title() == "▲ Warning (2) · linedesk"
    alerts = page.locator(".wrongs li")
    assert alerts.count() == 2
    assert "too loud" in alerts.filter(has_text="paused").inner_text()
    for one in alerts.locator("a.button").all():
        target = one.get_attribute("href")
        assert page.locator(target).count() == 1 if target[0] == "#" else target.startswith("/")
    assert page.locator(".way.wide a.place").count() == 12
    assert page.locator("#figures a").count() == 8
    assert "New events are held until you resume" in alerts.filter(has_text="paused").inner_text()
    alerts.filter(has_text="paused").get_by_role("link", name="Show", exact=True).click()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.locator("#said").wait_for()
    assert full.control.count_documents({}) == 0


@pytest.mark.parametrize("channel", [None, "main"])
def test_a_pause_of_everything_is_one_banner(
    open_page: Open, full: Full, channel: str | None
) -> None:
    """As a pause of the only channel is."""
    id_ = f"pause/{channel}" if channel else "pause"
    row = {"_id": id_, "act": "pause", "channel": channel, "key": None, "by": "hanako"}
    full.control.insert_one({**row, "why": "too loud", "at": a_day.moment(90)})
    page = open_page()
    assert page.title().startswith("✕ Critical (1)")
    assert page.locator(".wrongs li").filter(has_text="too loud").count() == 1
    assert page.locator("#everything-paused").count() == 0
    page.goto("/calls")
    page.locator("#everything-paused", has_text="too loud").wait_for()


def test_a_waiting_conversation_shows_the_time_since_its_arrival_and_the_try(
    open_page: Open, full: Full
) -> None:
    row = a_day.dispatcher_row(handlerTries=3)
    row["waiting"][0] |= {"since": a_day.moment(130), "try": 2, "trySince": a_day.moment(4)}
    full.status.replace_one({"role": "dispatcher"}, row)
    page = open_page()
    told = page.locator(f"#waits-main-{USER}-").inner_text()
    assert "2 min 1" in told
    assert "try 2 of 3, " in told
    assert page.locator(".search input").input_value() == ""


def test_dead_letters_are_grouped_by_cause_and_lead_to_their_list(
    open_page: Open, full: Full
) -> None:
    full.deadletters.insert_one({"_id": "Q", "cause": "quota", "lastAt": a_day.moment(90_000)})
    page = open_page()
    told = page.locator("#letters")
    assert "4 not replayed, 3 in the last 24 h" in told.inner_text()
    rows = told.locator("tbody tr")
    assert rows.count() == 2
    rows.filter(has_text="quota").get_by_role("link").click()
    assert "cause=quota" in page.url
    assert page.locator("#letter-rows tr").count() == 1


def test_keys_lead_to_the_search_and_through_the_rows(open_page: Open) -> None:
    page = open_page()
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('.wrongs li') !== null")
    rows = page.locator(".wrongs li").count()
    for _ in range(rows):
        page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('#waiting tr') !== null")
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.closest('.wrongs li') !== null")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    page.keyboard.type("jk/")
    assert page.locator(".search input").input_value() == "jk/"


# Sizes.

TOO_WIDE = """() => [document.documentElement, ...document.querySelectorAll('.scroll')]
    .filter(one => one.scrollWidth > one.clientWidth).map(one => one.id || one.className)"""
OUTSIDE = """() => [...document.querySelectorAll('a, button, summary, input:not([type=hidden])')]
    .filter(one => one.offsetParent && !one.closest('.hide, .skip'))
    .map(one => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.left < -1 || box.right > innerWidth + 1)
    .map(([one]) => one.outerHTML.slice(0, 90))"""
TOO_SMALL = """() => [...document.querySelectorAll('a, button, summary, input:not([type=hidden])')]
    .filter(one => one.offsetParent && !one.matches('.skip') && !one.closest('svg'))
    .map(one => [one, one.getBoundingClientRect()])
    .filter(([one, box]) => box.height < 40 - 0.5)
    .map(([one, box]) => `${one.outerHTML.slice(0, 90)} ${box.height}`)"""


UNDER_A_LABEL = """() => [...document.querySelectorAll('svg.way')].filter(one => one.clientWidth)
    .flatMap(way => [...way.querySelectorAll('.rate')].flatMap(rate =>
        [...way.querySelectorAll('.place rect')].filter(box => {
            const [a, b] = [rate, box].map(one => one.getBoundingClientRect());
            return a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        }).map(() => rate.textContent)))"""
WIDER_THAN_ITS_BOX = """() => [...document.querySelectorAll('svg.way .place')]
    .filter(one => one.getBoundingClientRect().width).flatMap(place => {
        const box = place.querySelector('rect').getBoundingClientRect();
        return [...place.querySelectorAll('text')].filter(
            one => one.getBoundingClientRect().right > box.right).map(one => one.textContent);
    })"""


@pytest.mark.parametrize("size", SIZES)
def test_in_the_picture_no_label_lies_over_a_box(open_page: Open, full: Full, size: str) -> None:
    for flow in ("acceptedEvents", "readDocuments", "spooledEvents"):
        full.status.update_many({}, {"$set": {f"perSecond.{flow}": 0.098}})
    full.status.update_many({}, {"$set": {"figures.heldKeys": 12, "figures.busyThreads": 19}})
    full.status.update_many({}, {"$set": {"perSecond.deadLetters": {"send": 0.098}}})
    page = open_page(**(PHONE if size == "phone" else {"viewport": SIZES[size]}))
    assert page.locator(f".way.{'tall' if size == 'phone' else 'wide'} .rate").count() >= 6
    assert page.evaluate(UNDER_A_LABEL) == []
    assert page.evaluate(WIDER_THAN_ITS_BOX) == []


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
def test_every_action_is_on_the_screen(open_page: Open, full: Full, size: str) -> None:
    full.control.insert_one(
        {
            "_id": "pause/main",
            "act": "pause",
            "channel": "main",
            "key": None,
            "by": "hanako",
            "why": "since the new release answers twice",
            "at": a_day.moment(90),
        }
    )
    page = open_page(**(PHONE if size == "phone" else {"viewport": SIZES[size]}))
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(OUTSIDE) == []
    if size == "phone":
        assert page.evaluate(TOO_SMALL) == []


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_pictures_are_taken_for_a_look(open_page: Open, size: str, scheme: str) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    more = PHONE if size == "phone" else {"viewport": SIZES[size]}
    page = open_page("/?hours=6", color_scheme=scheme, **more)
    page.screenshot(path=PICTURES / f"overview-{size}-{scheme}.png", full_page=True)
    assert (PICTURES / f"overview-{size}-{scheme}.png").stat().st_size > 10_000


def test_workers_are_listed_with_their_jobs_and_what_keeps_them_from_getting_any(
    browser: Any, database: Full
) -> None:
    quiet(database)
    job = {"eventId": a_day.EVENT, "key": f"main/{USER}", "since": datetime.now(UTC)}
    one = {"threads": 20, "out": 1, "bot": "3f2a", "release": "0.1.0", "silentSeconds": 0.3}
    workers = [
        {**one, "name": "far/8", "state": "working", "jobs": [job]},
        {**one, "name": "old/9", "state": "speaks contract 2, needed is 1", "out": 0, "jobs": []},
    ]
    leader = {"role": "dispatcher"}
    with served(database) as url, a_page(browser, url) as page:
        page.locator(".verdict.good").wait_for()
        assert page.locator("#workers").count() == 0
        database.status.update_one(leader, {"$set": {"broker": "", "workers": workers}})
        page.locator("#workers").wait_for()
        text = page.locator("#workers").inner_text()
        assert "1 of 2 get jobs, 20 threads, 1 job out; RabbitMQ is connected" in text
        assert "▲ speaks contract 2, needed is 1" in text
        assert page.locator("#workers table").nth(1).locator("tbody tr").count() == 1
        saw = page.locator(".wrongs").inner_text()
        assert "old/9 gets no jobs: speaks contract 2" in saw
        assert page.locator(".wrongs .button").first.get_attribute("href") == "#workers"
        page.screenshot(path=PICTURES / "overview-workers.png", full_page=True)
        database.status.update_one(leader, {"$set": {"workers": []}})
        page.wait_for_function("() => document.title.startsWith('✕')")
        assert "No worker is connected." in page.locator("#workers").inner_text()


def test_workers_fit_on_a_phone(browser: Any, database: Full) -> None:
    quiet(database)
    one = {"threads": 20, "out": 3, "bot": "3f2a9c11", "release": "0.1.0", "silentSeconds": 0.3}
    rows = [{**one, "name": f"machine-{n}/{n}", "state": "working", "jobs": []} for n in range(3)]
    database.status.update_one({"role": "dispatcher"}, {"$set": {"broker": "", "workers": rows}})
    with served(database) as url, a_page(browser, url, **PHONE) as page:
        page.locator("#workers").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
