"""The operator's page in a real browser, while the rows that it shows change."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from bson import ObjectId
from pymongo.database import Database

from tests.linedesk.operate import a_day
from tests.linedesk.operate.a_day import EVENT, USER

# Beside the log of the tests, which CI keeps.
PICTURES = Path(__file__).parents[3] / ".venv" / "screenshots"
PAGES = {
    "overview": "/?hours=6",
    "conversation": f"/conversation/main/{USER}",
    "conversations": "/conversations",
    "waiting": "/conversations?order=waiting",
    "events": "/events",
    "pauses": "/pauses",
    "ask": f"/letters/ask?act=replay&id={EVENT[:-1]}0",
    "event": f"/event/{EVENT}",
    "letters": "/letters",
    "letter": f"/letters/{EVENT[:-1]}0",
    "calls": "/calls",
    "audit": "/audit",
}
ACTING = (
    "conversation",
    "conversations",
    "events",
    "pauses",
    "letters",
    "ask",
)
# Controls that are smaller than a finger, or outside of the screen.
SMALL_TARGETS = """() => [...document.querySelectorAll(
    "main button, main a.button, main a.row, main select, main .choice a")].filter((one) => {
        const box = one.getBoundingClientRect();
        return box.height > 0 && (box.height < 40 || box.left < 0 || box.right > innerWidth);
    }).map((one) => one.outerHTML)"""
Page = Any
Open = Callable[..., Page]


@pytest.fixture
def writing(full: Database[dict[str, Any]]) -> Iterator[None]:
    """All rows of `status` anew each 100 ms, with other figures each time."""
    stop = threading.Event()

    def write() -> None:
        n = 0
        while not stop.wait(0.1):
            n += 1
            row = a_day.dispatcher_row()
            row["figures"] |= {"queueDocuments": 1000 + n, "busyThreads": n % 20}
            row["threads"] = row["threads"][: n % 4]
            row["waiting"] = row["waiting"][n % 2 :]
            for one in (row, a_day.desk_row()):
                full.status.replace_one({"_id": one["_id"]}, one, upsert=True)

    thread = threading.Thread(target=write, daemon=True)
    thread.start()
    yield
    stop.set()
    thread.join(10)


def test_it_changes_without_a_reload_and_leaves_alone_what_a_person_does(
    open_page: Open, writing: None
) -> None:
    page = open_page()
    page.evaluate("window.marked = true")
    word = page.locator("input[name=q]")
    word.fill("考え中")
    focused = page.locator("#curves a").first
    was_at = focused.bounding_box()["y"]
    figure = page.locator("#figures dd").first
    seen = {figure.inner_text()}
    for _ in range(2):
        was = figure.inner_text()
        page.wait_for_function(
            "was => document.querySelector('#figures dd').innerText !== was", arg=was
        )
        seen.add(figure.inner_text())
    assert len(seen) >= 3
    assert page.evaluate("window.marked")
    # Rows above come and go; the rest of the screen stays in place.
    assert abs(focused.bounding_box()["y"] - was_at) <= 1
    assert word.input_value() == "考え中"
    assert page.evaluate("document.activeElement.name") == "q"


def test_a_conversation_is_paused_and_goes_on(
    open_page: Open, full: Database[dict[str, Any]]
) -> None:
    page = open_page(f"/search?q={USER[:8]}")
    page.get_by_placeholder("Reason").fill("様子を見ます")
    page.get_by_role("button", name="Pause").click()
    page.locator("#said", has_text="is paused").wait_for()
    row = full.control.find_one({"_id": f"pause/main/{USER}"})
    assert row is not None
    assert row["why"] == "様子を見ます"
    assert page.locator(".banner.look", has_text="様子を見ます").count() == 1
    page.get_by_role("link", name="Resume…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    page.locator("#said", has_text="is resumed").wait_for()
    assert full.control.count_documents({}) == 0


@pytest.mark.long
def test_what_waits_is_shown_beside_the_button_that_drops_it(
    open_page: Open, full: Database[dict[str, Any]]
) -> None:
    page = open_page(f"/conversation/main/{USER}")
    assert "a tenth of the month's rest" in page.locator("#waits").inner_text()
    page.get_by_placeholder("Reason").fill("様子を見ます")
    page.get_by_role("button", name="Pause").click()
    page.locator("#said", has_text="is paused").wait_for()
    full.held.delete_many({})
    event = {"type": "message", "replyToken": "token"}
    an_hour_ago = datetime.now(UTC) - timedelta(hours=1)
    document = {"acceptTime": an_hour_ago, "event": event}
    rows = [{"channel": "main", "key": USER, "n": n, "document": document} for n in range(188)]
    full.held.insert_many(rows)
    page.get_by_role("link", name="Resume…").click()
    told = re.compile("188; .* up to 20 counted pushes go out, and up to 168 answers become dead")
    page.get_by_text(told).wait_for()
    page.get_by_role("button", name="make what waits dead letters").click()
    page.locator("#said", has_text="what waited becomes dead letters").wait_for()
    row = full.control.find_one({"_id": f"pause/main/{USER}"})
    act = full.audit.find_one({"act": "resume and drop"})
    assert row is not None
    assert act is not None
    assert (row["act"], row["drop"]["by"], act["on"]) == ("drop", act["by"], f"main/{USER}")


@pytest.mark.long
def test_a_chosen_letter_stays_chosen_while_others_come_and_is_replayed(
    open_page: Open, full: Database[dict[str, Any]]
) -> None:
    page = open_page("/letters")
    ids = [row["_id"] for row in a_day.letters()]
    page.get_by_label(f"choose {ids[1]}", exact=True).check()
    full.deadletters.insert_one(
        {**a_day.letters()[0], "_id": "01JDNEWER", "lastAt": a_day.moment(0)}
    )
    page.get_by_label("choose 01JDNEWER").wait_for()
    chosen = page.locator("#letter-rows input:checked")
    assert chosen.count() == 1
    assert chosen.get_attribute("value") == ids[1]
    row = page.locator("#letter-rows tr", has=page.locator("input:checked"))
    assert row.get_attribute("id") == f"letter-{ids[1]}"
    page.get_by_role("button", name="Replay chosen…").click()
    page.get_by_text("Replay 1 dead letter?").wait_for()
    page.get_by_role("button", name="Replay", exact=True).click()
    page.locator("#said", has_text=f"replay:{ids[1]}:1").wait_for()
    assert full.recvq.count_documents({"eventId": f"replay:{ids[1]}:1"}) == 1


def test_a_page_that_lost_the_console_or_mongodb_says_so_and_keeps_what_it_knew(
    open_page: Open,
) -> None:
    page = open_page("/?hours=1")
    # The request fails in the page's own code, which catches it.
    page.evaluate("() => { window.real = window.fetch; window.fetch = async () => { throw 0; }; }")
    page.locator("#offline", has_text="No connection to the console since").wait_for()
    assert page.locator("#figures dd").first.inner_text() == "18"
    page.evaluate(
        """() => { window.fetch = async () => new Response(
            '<link id="icon" href="/static/icon-lost.svg"><body class="stale">'
            + '<p id="trouble">MongoDB is away</p><main id="main"></main>', { status: 503 }); }"""
    )
    page.locator("#trouble", has_text="MongoDB is away").wait_for()
    assert page.locator("#offline").is_hidden()
    assert page.locator("#figures dd").first.inner_text() == "18"
    page.evaluate("() => { window.fetch = window.real; }")
    page.locator("#trouble").wait_for(state="detached")


def test_a_conversation_lists_its_events_with_their_answers(
    open_page: Open, full: Database[dict[str, Any]]
) -> None:
    page = open_page(f"/conversation/main/{USER}")
    lines = page.locator("#events .events > li")
    first = lines.last.inner_text()
    assert "message text 佐藤花子" in first
    assert "of its sends wait" in first
    assert "LINE has not taken it yet" in first
    later = a_day.document() | {"_id": ObjectId(), "eventId": "01JLATER"}
    full.recvq.insert_one({**later, "acceptTime": a_day.moment(-1)})
    newest = page.locator("#event-01JLATER")
    newest.wait_for()
    assert lines.first.inner_text() == newest.inner_text()
    assert f"behind {EVENT} of its conversation" in newest.inner_text()
    assert page.locator("#letters li").count() == 3
    newest.get_by_role("link").click()
    page.locator("#stands").wait_for()


def test_a_cause_is_replayed_with_a_question(
    open_page: Open, full: Database[dict[str, Any]]
) -> None:
    letter = a_day.letters()[0]
    full.deadletters.insert_many([{**letter, "_id": f"01JMANY{n:04d}"} for n in range(60)])
    page = open_page("/letters")
    page.get_by_role("link", name="Replay all 63…").click()
    page.get_by_text("Replay 63 dead letters?").wait_for()
    page.reload()
    page.get_by_role("button", name="Replay", exact=True).click()
    page.locator("#said", has_text="63 letters are replayed").wait_for()
    assert full.deadletters.count_documents({"replayedAt": None}) == 0
    page.locator("#said").get_by_role("link", name="The results").click()
    page.get_by_role("heading", name="Events").first.wait_for()


def test_everything_is_paused_by_a_typed_word_and_a_red_banner_follows(open_page: Open) -> None:
    page = open_page("/pauses", http_credentials={"username": "佐藤花子", "password": ""})
    part = page.locator("#pause-everything")
    part.get_by_label("Type “pause everything”").fill("pause everything")
    part.get_by_label("Reason").fill("引っ越し")
    part.get_by_role("button", name="Pause everything").click()
    banner = page.locator("#everything-paused")
    banner.wait_for()
    for path in ("/events", "/calls"):
        page.goto(path)
        assert "by 佐藤花子: 引っ越し" in banner.inner_text()
    page.get_by_role("link", name="Resume everything…").click()
    page.get_by_role("button", name="Resume", exact=True).click()
    banner.wait_for(state="detached")
    page.goto("/audit")
    assert page.get_by_text("佐藤花子").count() >= 2


def test_lists_lead_to_conversations_and_events(open_page: Open) -> None:
    page = open_page("/events")
    page.locator("#results").get_by_role("link", name="Waiting 1").click()
    page.locator(f"#event-{EVENT}").get_by_role("link").first.click()
    page.locator("#stands").wait_for()
    page.goto("/conversations")
    page.get_by_role("link", name="佐藤花子").click()
    page.locator("#events").wait_for()


def test_a_column_of_a_chart_leads_to_the_events_of_its_time(
    open_page: Open, full: Database[dict[str, Any]]
) -> None:
    page = open_page("/?hours=1")
    column = page.locator("#chart-depth .hover").nth(40)
    came = datetime.fromisoformat(column.locator("title").get_attribute("data-time"))
    row = {**a_day.document(), "eventId": "01JTHEN", "acceptTime": came}
    full.recvq.insert_one({**row, "_id": ObjectId.from_datetime(came)})
    column.click()
    page.locator("#event-01JTHEN").wait_for()
    assert page.locator("tbody tr").count() == 1
    page.get_by_role("link", name="Calls of this time").click()
    assert "Calls of LINE from" in page.locator("h1").inner_text()
    answer = page.request.get("/events?from=nonsense")
    assert answer.status == 422
    assert "The address has an invalid value." in answer.text()


def test_calls_on_a_phone_name_what_they_show(open_page: Open) -> None:
    page = open_page("/calls", viewport={"width": 390, "height": 844}, is_mobile=True)
    labels = page.evaluate(
        """() => [...document.querySelector("tbody tr").cells].map(
            (one) => getComputedStyle(one, "::before").content)"""
    )
    assert "Endpoint" in labels[1]
    assert "none" not in labels
    name, id_ = (
        page.locator("tbody tr").first.locator("a", has_text="佐藤花子").locator("> *").all()
    )
    assert name.bounding_box()["x"] + name.bounding_box()["width"] < id_.bounding_box()["x"]


def test_everything_is_there_without_a_script(open_page: Open) -> None:
    page = open_page(java_script_enabled=False)
    page.get_by_role("navigation").get_by_role("link", name="Dead letters").click()
    page.locator("#letter-rows input").first.check()
    page.get_by_role("button", name="Drop chosen…").click()
    page.get_by_role("button", name="Drop for good").click()
    assert "1 dead letter dropped" in page.locator("#said").inner_text()


def test_it_fits_a_phone(open_page: Open, full: Database[dict[str, Any]]) -> None:
    page = open_page(viewport={"width": 360, "height": 740}, is_mobile=True, has_touch=True)
    assert page.locator("svg.way.tall").is_visible()
    traceback = f'Traceback:\n  File "/srv/{"long/" * 60}main.py", line 12, in handle\n    x\n'
    full.deadletters.update_many({}, {"$set": {"traceback": traceback}})
    for name, path in PAGES.items():
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
        if name in ACTING:
            assert page.evaluate(SMALL_TARGETS) == [], name


@pytest.mark.long
def test_it_fits_a_narrow_window(open_page: Open, full: Database[dict[str, Any]]) -> None:
    full.deadletters.update_many({}, {"$set": {"traceback": f'  File "{"x" * 900}", line 1\n'}})
    page = open_page(viewport={"width": 1240, "height": 900})
    for name, path in PAGES.items():
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 1240, name


def test_it_follows_the_colour_scheme_of_the_browser(open_page: Open) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    page = open_page(PAGES["overview"])
    assert page.locator("svg.way.wide").is_visible()
    for scheme, ground in (("light", "rgb(244, 246, 248)"), ("dark", "rgb(15, 20, 24)")):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert found == ground
        page.screenshot(path=PICTURES / f"console-{scheme}.png")
