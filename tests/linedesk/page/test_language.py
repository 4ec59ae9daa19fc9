"""The console speaks the reader's language: every text is in the catalogue, JSON stays English."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from gettext import NullTranslations
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import requests

from linedesk import page as web
from linedesk.operate.acts import Acts, OperatorControl
from linedesk.operate.text import known
from linedesk.page.format import LONGEST_ID
from linedesk.page.gatekeeping import Console
from linedesk.runtime import language
from linedesk.runtime.language import VARIABLE, speaking
from linedesk.store.control import Scope
from linedesk.store.documents import AUDIT
from tests.linedesk.operate import a_day
from tests.linedesk.operate.a_day import EVENT, GROUP, USER
from tests.linedesk.operate.serving import served
from tests.rows import Db

JAPANESE = {"accept-language": "ja,en;q=0.5"}
TEMPLATES = Path(web.__file__).parent / "templates"
LETTER = f"{EVENT[:-1]}0"
PAGES = (
    *("/", "/?hours=6", "/charts", "/conversations", "/conversations?order=waiting"),
    *("/events", "/events?result=waiting", "/letters", "/calls?from=nonsense"),
    *(f"/letters/{LETTER}", "/calls?failed=true", "/pauses", "/audit"),
    f"/letters/ask?act=drop&id={LETTER}",
    f"/letters/ask?act=replay&id={LETTER}",
    *(f"/conversation/main/{USER}", f"/conversation/main/{GROUP}", f"/event/{EVENT}"),
    *(f"/event/{LETTER}", "/nowhere"),
    *("/search?q=U", "/search?q=zzzz", "/event/zzzz", "/conversation/main/zzzz", "/letters/zzzz"),
)
# Names and units that are the same in all languages, and parts of the product's own data.
SAME = (
    *("message/push", "message/reply", "api-data.line.me", "api.line.me", "main.py", "api", "data"),
    *("LINE", "linedesk", "recvq", "oplog", "API", "UTC", "MongoDB", "p50", "p90", "p99", "live"),
    *("chat", "push", "main", "hanako", "bot1", "zzzz", "nonsense", "quota", "remind", "KeyError"),
    "handle",
)
BRACKETED = re.compile(r"⟦[^⟦⟧]*⟧")
SHOWN = ("title", "aria-label", "placeholder", "alt", "data-label")


class Pseudo(NullTranslations):
    """A language in which each translated text stands in ⟦…⟧."""

    def gettext(self, message: str) -> str:
        return f"⟦{message}⟧"

    def ngettext(self, msgid1: str, msgid2: str, n: int) -> str:
        return f"⟦{msgid1 if n == 1 else msgid2}⟧"


class Shown(HTMLParser):
    """The texts of a page, and those of attributes that people see."""

    def __init__(self) -> None:
        super().__init__()
        self.text = ""
        self.attributes: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style", "code", "pre", "kbd", "title", "option"):
            self._inside.append(tag)
        self.attributes += [value for name, value in attrs if name in SHOWN and value]

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside or self._inside[-1] == "title":
            self.text += f" {data}"


def untranslated(shown: str, data: list[str]) -> set[str]:
    """The words of a text outside of ⟦…⟧ that are not data."""
    while (inner := BRACKETED.sub(" ", shown)) != shown:
        shown = inner
    others = {*SAME, *data, *(f"{one[:8]}…{one[-6:]}" for one in data if len(one) > LONGEST_ID)}
    pattern = "|".join(re.escape(one) for one in sorted(others, key=len, reverse=True))
    return set(re.findall(r"[A-Za-z][A-Za-z']+", re.sub(pattern, " ", shown)))


def data_of(database: Db) -> list[str]:
    """The texts in the database, without those that the page knows and translates."""
    found: set[str] = set()

    def add(value: Any) -> None:
        if isinstance(value, Mapping):
            for inner in value.values():
                add(inner)
        elif isinstance(value, list):
            for inner in value:
                add(inner)
        elif isinstance(value, str) and len(value) > 2:
            found.add(value)

    for name in database.list_collection_names():
        for row in database[name].find():
            add(row)
    with speaking("ja"):
        return [one for one in found if known(one) == one]


def busy(database: Db) -> None:
    """A day on which everything is there: workers, pauses, acts, problems, timers, replays."""
    a_day.fill(database, hours=1)
    workers = [
        {"name": "bot2/7", "release": "1", "bot": "9", "threads": 4, "out": 1, "state": state}
        for state in ("working", "silent", "another version of the bot is in force")
    ]
    job = {"key": f"main/{USER}", "eventId": EVENT, "since": a_day.moment(9)}
    workers[0]["jobs"] = [job]  # type: ignore[assignment]
    database.status.update_one(
        {"role": "dispatcher"},
        {
            "$set": {
                "broker": "",
                "workers": workers,
                "figures.breakerOpen.api": 1,
                "figures.oldestUnfinishedSeconds": 900.0,
                "figures.oldestSendSeconds": 90.0,
                "figures.recvqLeftSeconds": 3000,
                "figures.quotaUsedMessages": 4900,
                "figures.abandonedThreads": 1,
            }
        },
    )
    database.status.update_one(
        {"role": "frontdesk"},
        {
            "$set": {
                "figures.spoolDocuments": 3,
                "figures.spoolOldestSeconds": 70.0,
                "perSecond.refusedRequests": {"store": 2.0, "signature": 1.0},
            }
        },
    )
    why = {"code": "scanning recvq", "since": datetime(2026, 11, 24, 11, tzinfo=UTC)}
    database.status.update_many({"role": "dispatcher"}, {"$set": {"why": why}})
    timer = {"_id": f"main/{USER}/remind", "channel": "main", "key": USER, "setBy": EVENT}
    every = {"at": "07:30", "tz": "Asia/Tokyo"}
    database.schedule.insert_one({**timer, "runAt": a_day.moment(-400), "every": every})
    control = OperatorControl(database)
    control.pause(Scope("main", GROUP), by="yamada", why="様子を見る")
    control.pause(Scope("main", None), by="yamada", why="様子を見る")
    refused = {"code": "refused", "reason": {"code": "dropped_meanwhile"}}
    database[AUDIT].insert_many(
        {"at": datetime.now(UTC), "by": "yamada", "via": "page", "act": act, "on": on, "why": ""}
        | {"outcome": outcome}
        for act, on, outcome in (
            ("pause", f"main/{GROUP}", "done"),
            ("replay", [LETTER] * 4, refused),
            ("login", "127.0.0.1", "begun"),
        )
    )
    Acts(database, by="yamada", via="page").replay(f"{EVENT[:-1]}1")


@pytest.fixture
def pseudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language, "catalogue_of", lambda name: Pseudo())


@pytest.mark.usefixtures("pseudo")
def test_every_text_of_every_page_is_in_the_catalogue(database: Db) -> None:
    busy(database)
    data = [*data_of(database), USER, GROUP, EVENT, f"{EVENT[:-1]}1", "linedesk"]
    problems = {}
    with served(database) as url:
        for path in PAGES:
            page = requests.get(f"{url}{path}", headers=JAPANESE, timeout=20).text
            problems[path] = words_of(page, data)
    with served(database, Console(password="secret")) as url:
        for refused in (JAPANESE, {**JAPANESE, "host": "example.com"}):
            page = requests.get(url, headers=refused, timeout=20).text
            problems[str(refused)] = words_of(page, [])
    assert {path: words for path, words in problems.items() if words} == {}


def test_no_branch_of_a_template_has_a_text_outside_of_the_catalogue() -> None:
    problems = {}
    for path in TEMPLATES.glob("*.html"):
        bare = re.sub(r"\{[{%#].*?[#%}]\}", "", path.read_text("utf-8"), flags=re.S)
        shown = Shown()
        shown.feed(bare)
        words = set().union(*(untranslated(one, []) for one in (shown.text, *shown.attributes)))
        problems[path.name] = words
    assert {name: words for name, words in problems.items() if words} == {}


def words_of(page: str, data: list[str]) -> set[str]:
    shown = Shown()
    shown.feed(page)
    parts = [shown.text, *shown.attributes]
    return set().union(*(untranslated(one, data) for one in parts))


def test_the_language_is_the_browsers_unless_it_is_set(
    database: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_day.fill(database, hours=0.1)
    monkeypatch.delenv(VARIABLE, raising=False)
    with served(database) as url:
        japanese = requests.get(url, headers=JAPANESE, timeout=20)
        english = requests.get(url, headers={"accept-language": "fr"}, timeout=20)
        told = requests.get(url, headers={**JAPANESE, "accept": "application/json"}, timeout=20)
        style = requests.get(f"{url}/static/console.css", headers=JAPANESE, timeout=20)
    assert '<html lang="ja">' in japanese.text
    assert "待機中の会話" in japanese.text
    # The script has its texts in the language of the page.
    assert json.dumps("更新停止中") in japanese.text
    assert japanese.headers["content-language"] == "ja"
    assert '<html lang="en">' in english.text
    assert english.headers["content-language"] == "en"
    assert english.headers["vary"].lower() == "accept-language"
    assert "not replayed" in told.json()["wrong"][0]["saw"] + told.json()["wrong"][-1]["saw"]
    assert "content-language" not in told.headers
    assert "vary" not in style.headers
    monkeypatch.setenv(VARIABLE, "ja")
    with served(database) as url:
        assert '<html lang="ja">' in requests.get(url, timeout=20).text


def test_the_curves_of_one_language_are_not_those_of_another(database: Db) -> None:
    a_day.fill(database, hours=0.1)
    with served(database) as url:
        for wanted, label in (("ja", "ハンドラー p99"), ("en", "handler p99"), ("ja", "待ち p99")):
            headers = {"accept-language": wanted}
            assert label in requests.get(f"{url}/charts", headers=headers, timeout=20).text
