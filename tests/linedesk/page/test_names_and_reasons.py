"""In a real browser: people are found and shown by their names, and LINE's reasons can be read."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pymongo.database import Database

from tests.linedesk.operate.a_day import EVENT, USER, moment
from tests.linedesk.page.test_overview_page import PICTURES
from tests.linedesk.page.test_page import Open

TARO = "U00000000000000000000000000000002"
TEXT = "messages[0].text"
REASON = {
    "message": "The request body has 1 error(s)",
    "details": [{"property": TEXT, "message": "May not be empty"}],
}


@pytest.fixture
def people(full: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    """Two more conversations, an audit of them, and a refusal."""
    profile = {"displayName": "鈴木花太郎"}
    whose = {"channel": "main", "at": moment(7200)}
    full.conversations.insert_many(
        [
            {"_id": f"main/{TARO}", "key": TARO, "kind": "user", "profile": profile, **whose},
            {
                "_id": "main/C00000000000000000000000000000003",
                "key": "C00000000000000000000000000000003",
                "kind": "group",
                "profile": {"displayName": "花の会"},
                "members": {TARO: {"displayName": "ﾊﾅ"}},
                **whose,
            },
        ]
    )
    done = {"at": moment(5), "by": "yamada", "via": "page", "why": "", "outcome": "done"}
    full.audit.insert_many(
        [
            {**done, "act": "pause", "on": f"main/{TARO}"},
            {**done, "act": "release", "on": f"main/{USER} {EVENT}"},
            {**done, "act": "replay", "on": f"{EVENT[:-1]}0"},
            {**done, "act": "drop", "on": [f"{EVENT[:-1]}{n}" for n in range(5)]},
        ]
    )
    call = {"method": "POST", "endpoint": "/v2/bot/message/push", "status": 400, "reason": REASON}
    full.calls.insert_one({**call, "at": moment(1), "ms": 9.0, "eventId": EVENT, "key": TARO})
    return full


def search(page: Any, word: str) -> None:
    page.fill("input[name=q]", word)
    page.press("input[name=q]", "Enter")
    page.wait_for_url(re.compile("/(search|conversation)"))


def test_several_results_show_name_kind_and_last_activity_and_lead_on(
    people: Any,
    open_page: Open,
) -> None:
    page = open_page()
    search(page, "花")
    rows = page.locator("#found tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in rows] == [
        ["花の会", "group"],
        ["佐藤花子", "user"],
        ["鈴木花太郎", "user"],
    ]
    assert all("ago" in row for row in rows)
    assert "2 h" in rows[0]
    page.click("#found a:has-text('鈴木花太郎')")
    assert page.url.endswith(f"/conversation/main/{TARO}")


@pytest.mark.parametrize("word", ["藤花", "ﾊﾅ", "鈴木", "U00000000000000000000000000000002"])
def test_one_result_opens_at_once(people: Any, open_page: Open, word: str) -> None:
    page = open_page()
    search(page, word)
    assert "/conversation/main/" in page.url


def test_nothing_found_is_said_with_the_word(people: Any, open_page: Open) -> None:
    answer = open_page().request.get("/search", params={"q": "三郎"})
    assert answer.status == 404
    assert 'No results for <span lang="ja">三郎</span>' in answer.text()


@pytest.mark.parametrize("path", ["/letters", "/calls", f"/event/{EVENT}", "/audit"])
def test_a_name_is_beside_each_id_and_the_short_id_can_be_searched(
    people: Any,
    open_page: Open,
    path: str,
) -> None:
    page = open_page(path)
    link = page.locator("main a[href^='/conversation/']:has-text('佐藤花子')").first
    shown = link.inner_text().split()
    assert shown[0] == "佐藤花子"
    assert "…" in shown[1]
    search(page, shown[1])
    assert page.url.endswith(f"/conversation/main/{USER}")


def test_ids_in_the_audit_are_links(people: Any, open_page: Open) -> None:
    page = open_page("/audit")
    links = {one.get_attribute("href") for one in page.locator("td.words a").all()}
    assert links >= {
        f"/conversation/main/{TARO}",
        f"/conversation/main/{USER}",
        f"/event/{EVENT}",
        f"/letters/{EVENT[:-1]}0",
        f"/event/{EVENT[:-1]}2",
    }
    assert "5 letters" in page.inner_text("main")


def test_a_refusal_shows_what_line_said(people: Any, open_page: Open) -> None:
    told = f"The request body has 1 error(s): {TEXT} May not be empty"
    for path in ("/calls", f"/event/{EVENT}", f"/conversation/main/{USER}"):
        assert told in open_page(path).inner_text("main"), path


def test_a_traceback_says_how_to_see_its_message(people: Any, open_page: Open) -> None:
    shown = open_page(f"/letters/{EVENT[:-1]}0").inner_text("pre")
    assert "KeyError(event.text)" in shown
    assert f"linedesk dead show {EVENT[:-1]}0 --text" in shown


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_lists_with_names_fit_their_screen(
    people: Any,
    open_page: Open,
    scheme: str,
    width: int,
) -> None:
    PICTURES.mkdir(parents=True, exist_ok=True)
    size = {"width": width, "height": 800}
    pages = {"search": "/search?q=花", "calls-names": "/calls", "audit-names": "/audit"}
    for name, path in pages.items():
        page = open_page(path, viewport=size, color_scheme=scheme)
        page.screenshot(path=PICTURES / f"{name}-{width}-{scheme}.png")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
