"""The questions, refusals and reports of acts on the page, also while MongoDB is away."""

import re
import time
from html import unescape
from typing import Any

import pytest
import requests

from linedesk.operate.acts import Acts, OperatorControl
from linedesk.setup.collections import create_collections
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.control import Scope
from linedesk.store.errors import StoreUnavailable
from tests.linedesk.operate import a_day
from tests.linedesk.operate.a_day import EVENT, USER
from tests.linedesk.operate.serving import served
from tests.linedesk.page.test_web import browser as browser
from tests.linedesk.page.test_web import full as full
from tests.rows import Db
from tests.servers import frozen, throwaway_mongod
from tests.waiting import eventually


def post(browser: requests.Session, url: str, path: str, **fields: Any) -> str:
    """The page that stands there after the act."""
    return unescape(browser.post(f"{url}{path}", data=fields, timeout=20).text)


def test_everything_is_paused_only_by_typed_words_and_each_page_is_red_then(
    full: Db, browser: requests.Session
) -> None:
    with served(full) as url:
        for typed in ("", "yes", "pause"):
            told = post(browser, url, "/pause", sure=typed, why="a try")
            assert "Nothing was paused" in told
        assert full.control.count_documents({}) == 0
        post(browser, url, "/pause", sure="Pause everything", why="a try")
        for path in ("/calls", f"/event/{EVENT}", "/conversations", "/letters"):
            page = eventually(lambda path=path: banner(browser, f"{url}{path}"))
            assert "by hanako: a try. New events are held until you resume." in page
            assert "Resume everything" in page
        assert "everything is resumed" in post(browser, url, "/resume")
        eventually(lambda: not banner(browser, f"{url}/calls"))


def test_the_only_channel_is_paused_as_everything_is(full: Db, browser: requests.Session) -> None:
    with served(full) as url:
        page = browser.get(f"{url}/pauses").text
        assert "There is one channel" in page
        assert "Pause the channel" not in page
        assert "Nothing was paused" in post(browser, url, "/pause", channel="main", why="a try")
        assert full.control.count_documents({}) == 0
        post(browser, url, "/pause", channel="main", sure="pause everything", why="a try")
        page = eventually(lambda: banner(browser, f"{url}/calls"))
        assert "Everything is paused</b> (channel main)" in page
        # The overview has it among its problems, and not twice.
        overview = browser.get(f"{url}/").text
        assert "<title>✕ Critical" in overview
        assert overview.count("by hanako: a try") == 1
        assert "channel main is resumed" in post(browser, url, "/resume", channel="main")
        # With a second channel it is one of two.
        full.conversations.insert_one({**a_day.conversation(), "_id": f"shop/{USER}"})
        assert "channel main is paused" in post(browser, url, "/pause", channel="main")
        eventually(lambda: not banner(browser, f"{url}/calls"))


def banner(browser: requests.Session, url: str) -> str:
    page = browser.get(url).text
    return page if 'id="everything-paused"' in page else ""


def test_a_channel_that_does_not_exist_cannot_be_paused_but_any_pause_can_be_ended(
    full: Db, browser: requests.Session
) -> None:
    with served(full) as url:
        told = post(browser, url, "/pause", channel="nochannel", why="a typo")
        assert "no channel 'nochannel', only main" in told
        assert full.control.count_documents({}) == 0
        # As a script or the mongo shell may have it.
        OperatorControl(full).pause(Scope("nochannel"), by="a script")
        page = browser.get(f"{url}/pauses").text
        assert "channel nochannel" in page
        assert "not confirmed by a dispatcher yet" in page
        assert "channel nochannel is resumed" in post(browser, url, "/resume", channel="nochannel")
        assert full.control.count_documents({}) == 0


def test_a_group_is_replayed_after_a_question_that_can_be_shared(
    full: Db, browser: requests.Session
) -> None:
    letter = a_day.letters()[0]
    full.deadletters.insert_many([{**letter, "_id": f"01JMANY{n:04d}"} for n in range(204)])
    with served(full) as url:
        page = unescape(browser.get(f"{url}/letters").text)
        found = re.search(r'href="(/letters/ask\?act=replay[^"]+)">Replay 200 of 207', page)
        assert found
        # A GET: it can be reloaded and shared, and does nothing.
        for _ in range(2):
            asked = unescape(browser.get(f"{url}{found[1]}").text)
            assert "Replay 200 dead letters?" in asked
            assert "main.py:12 in handle" in asked
            assert "and 180 more" in asked
            assert "7 more stay in the list" in asked
            assert "linedesk dead replay --cause 'handler" in asked
        assert full.recvq.count_documents({}) == 1
        # One that comes after the question does not belong to the answer.
        full.deadletters.insert_one({**letter, "_id": "01JLATER", "lastAt": a_day.moment(-1)})
        ids = re.findall(r'type="hidden" name="id" value="([^"]*)"', asked)
        assert len(ids) == 200
        assert "20 letters are replayed" in post(browser, url, "/letters/replay", id=ids[:20])
        assert full.recvq.count_documents({}) == 21
        left = {row["_id"] for row in full.deadletters.find({"replayedAt": None})}
        assert "01JLATER" in left
        assert left & set(ids) == set(ids[20:])
        assert full.audit.count_documents({"act": "replay", "by": "hanako"}) == 20
        assert "it was replayed at" in post(browser, url, "/letters/replay", id=ids[:1])
        assert f'href="/event/replay%3A{ids[0]}%3A1"' in browser.get(f"{url}/letters/{ids[0]}").text


def test_a_replay_of_many_stops_where_mongodb_does_not_answer_and_leaves_the_rest(
    full: Db, browser: requests.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [row["_id"] for row in a_day.letters()]
    replay = Acts.replay

    def away(self: Acts, id_: str, **more: Any) -> str:
        if id_ == ids[1]:
            raise StoreUnavailable("no majority")
        return replay(self, id_, **more)

    monkeypatch.setattr(Acts, "replay", away)
    with served(full) as url:
        told = post(browser, url, "/letters/replay", id=ids)
        assert f"1 of {len(ids)} letters are replayed, then: MongoDB does not answer" in told
        assert "did not confirm it in time" in told
    assert full.deadletters.count_documents({"replayedAt": None}) == len(ids) - 1


def test_while_mongodb_is_frozen_or_stopped_an_act_answers_within_two_seconds(
    browser: requests.Session,
) -> None:
    with (
        throwaway_mongod() as server,
        connect(server.uri, app_name="page", server_selection_seconds=2.0) as client,
    ):
        database = client["frozen"]
        create_collections(database, capped_bytes=MEGABYTE)
        with served(database, waits_for_readings=False) as url:
            assert "is paused" in post(browser, url, "/pause", channel="main", key=USER)
            pid = client.admin.command("serverStatus")["pid"]
            with frozen(pid):
                took, told = timed(browser, url)
            assert "did not confirm it in time" in told
            assert took < 2.0
            server.stop()
            took, told = timed(browser, url)
            assert "did not confirm it in time" in told
            assert took < 2.0


def timed(browser: requests.Session, url: str) -> tuple[float, str]:
    """How long it takes until a person sees what came of an act."""
    began = time.monotonic()
    answer = browser.post(f"{url}/resume", data={"channel": "main"}, timeout=20)
    return time.monotonic() - began, unescape(answer.text)
