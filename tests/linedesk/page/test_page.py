"""The operator's page in a real browser: while its rows change, acts by it, and its sizes."""

import threading
from collections.abc import Iterator

import pytest

from tests.linedesk.operate import a_day
from tests.linedesk.operate.a_day import EVENT, USER
from tests.linedesk.page.conftest import Open
from tests.rows import Db

PAGES = (
    *("/?hours=6", f"/conversation/main/{USER}", "/conversations", "/conversations?order=waiting"),
    *("/events", "/pauses", f"/letters/ask?act=replay&id={EVENT[:-1]}0", f"/event/{EVENT}"),
    *("/letters", f"/letters/{EVENT[:-1]}0", "/calls", "/audit", "/search?q=U"),
)
# Nothing is wider than the screen or its box, and nothing of the picture lies over something else.
TOO_WIDE = """() => [
    ...[document.documentElement, ...document.querySelectorAll("div.scroll")]
        .filter((one) => one.scrollWidth > one.clientWidth),
    ...[...document.querySelectorAll("button, a.button, .tag, .tiles dd, th, nav a")]
        .filter((one) => one.offsetParent && one.scrollWidth > one.clientWidth + 1
            && getComputedStyle(one).display !== "inline"),
    ...[...document.querySelectorAll("svg.way .place")].flatMap((place) => {
        const box = place.querySelector("rect").getBoundingClientRect();
        return box.width ? [...place.querySelectorAll("text")].filter(
            (one) => one.getBoundingClientRect().right > box.right + 0.5) : [];
    }),
].map((one) => one.outerHTML.slice(0, 90))"""
# Controls that are smaller than a finger.
TOO_SMALL = """() => [...document.querySelectorAll(
    "main button, main a.button, main a.row, main select, main .choice a")].filter((one) => {
        const box = one.getBoundingClientRect();
        return box.height > 0 && (box.height < 40 || box.left < 0 || box.right > innerWidth);
    }).map((one) => one.outerHTML)"""


@pytest.fixture
def writing(full: Db) -> Iterator[None]:
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
    # Problems and conversations that wait come and go, and move all below them. Changing figures,
    # which are in the cards between these two lists, move nothing.
    between = """() => {
        const [problems, waiting] = ["verdict", "waiting"].map(
            (one) => document.getElementById(one).getBoundingClientRect());
        return waiting.top - problems.bottom;
    }"""
    distance = page.evaluate(between)
    figure = page.locator("#figures dd").first
    for _ in range(2):
        was = figure.inner_text()
        page.wait_for_function(
            "was => document.querySelector('#figures dd').innerText !== was", arg=was
        )
    assert page.evaluate("window.marked")
    assert abs(page.evaluate(between) - distance) <= 1
    assert word.input_value() == "考え中"
    assert page.evaluate("document.activeElement.name") == "q"


def test_a_conversation_is_paused_and_goes_on(open_page: Open, full: Db) -> None:
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
def test_a_chosen_letter_stays_chosen_while_others_come_and_is_replayed(
    open_page: Open, full: Db
) -> None:
    page = open_page("/letters")
    ids = [row["_id"] for row in a_day.letters()]
    page.get_by_label(f"choose {ids[1]}", exact=True).check()
    full.deadletters.insert_one(
        {**a_day.letters()[0], "_id": "01JDNEWER", "lastAt": a_day.moment(0)}
    )
    page.get_by_label("choose 01JDNEWER").wait_for()
    chosen = page.locator("#letter-rows input:checked")
    assert [one.get_attribute("value") for one in chosen.all()] == [ids[1]]
    page.get_by_role("button", name="Replay chosen…").click()
    page.get_by_role("button", name="Replay", exact=True).click()
    page.locator("#said", has_text=f"replay:{ids[1]}:1").wait_for()
    assert full.recvq.count_documents({"eventId": f"replay:{ids[1]}:1"}) == 1


def test_everything_is_there_without_a_script(open_page: Open) -> None:
    page = open_page(java_script_enabled=False)
    assert "the server's zone" in page.locator("#zone").inner_text()
    page.get_by_role("navigation").get_by_role("link", name="Dead letters").click()
    page.locator("#letter-rows input").first.check()
    page.get_by_role("button", name="Drop chosen…").click()
    page.get_by_role("button", name="Drop for good").click()
    assert "1 dead letter dropped" in page.locator("#said").inner_text()


@pytest.mark.long
@pytest.mark.parametrize("locale", ["ja-JP", "en-US"])
@pytest.mark.parametrize("width", [360, 1240])
def test_every_page_fits_a_phone_and_a_window(
    open_page: Open, full: Db, width: int, locale: str
) -> None:
    traceback = f'  File "/srv/{"long/" * 60}main.py", line 12, in handle\n  File "{"x" * 900}"\n'
    full.deadletters.update_many({}, {"$set": {"traceback": f"Traceback:\n{traceback}"}})
    full.status.update_many({}, {"$set": {"perSecond.spooledEvents": 0.098}})
    is_phone = width < 500
    size = {"viewport": {"width": width, "height": 740}, "is_mobile": is_phone}
    page = open_page(locale=locale, has_touch=is_phone, **size)
    for path in PAGES:
        page.goto(path)
        assert page.evaluate(TOO_WIDE) == [], path
        if is_phone:
            assert page.evaluate(TOO_SMALL) == [], path
