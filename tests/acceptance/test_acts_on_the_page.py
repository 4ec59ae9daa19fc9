"""The operator's page beside a real dispatcher: results, a release and a replay as they happen."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
import requests

from tests.linedesk.operate.serving import served
from tests.waiting import eventually


def post(url: str, path: str, **fields: str) -> str:
    """Post a form of the page; returns the text after the action."""
    answer = requests.post(f"{url}{path}", data=fields, auth=("hanako", ""), timeout=20)
    return unescape(answer.text)


def page_of(url: str, key: str) -> str:
    """The page of a conversation."""
    return unescape(requests.get(f"{url}/conversation/main/{key}", timeout=10).text)


def results(url: str, key: str) -> list[str]:
    """The results of a conversation's events on its page, the oldest first."""
    lines = re.findall(r'<li id="event-.*?</li>', page_of(url, key), re.DOTALL)
    # A replay has a mark of its own before its result.
    tag = r'<span class="tag [a-z]*">(?:\W )?([a-z ]+)</span>'
    return [re.findall(tag, one.partition("</p>")[0])[-1] for one in lines][::-1]


@pytest.mark.long
def test_the_pages_reports_of_events_releases_and_replays_are_true(house: Any, sim: Any) -> None:
    house.start_frontdesk()
    house.start_dispatcher(BOT="acceptance_bots:stuck", HANDLER_LIMIT_SECONDS="600")
    user = sim.add_user("花子", friend=True)
    key = user.user_id
    with served(house.database) as url:
        sim.say(user, "stuck")
        sim.say(user, "二")
        eventually(lambda: results(url, key) == ["waiting", "waiting"])
        # A handler that has just begun is not offered for a release.
        eventually(lambda: 'class="head-line"' in page_of(url, key))
        assert 'action="/release"' not in page_of(url, key)
        of_user = {"channel": "main", "key": key}
        events = [row["eventId"] for row in house.database.recvq.find({"key": key})]
        whose = {**of_user, "kind": "event"}
        assert "The dispatcher is asked to release" in post(url, "/release", **whose, id=events[0])
        dead = f"the event {events[0]} is a dead letter"
        eventually(lambda: dead in page_of(url, key))
        eventually(lambda: results(url, key) == ["failed", "answered"])
        post(url, "/release", **whose, id=events[1])
        eventually(lambda: "nothing was stuck any more" in page_of(url, key))
        assert "is paused" in post(url, "/pause", **of_user)
        waits = f"replayed as replay:{events[0]}:1; it waits because main/{key} is paused"
        assert waits in post(url, "/letters/replay", id=events[0])
        eventually(lambda: results(url, key) == ["replayed", "answered", "waiting"])
        # The handler is stuck with the replay, too; only then the page says that it failed again.
        post(url, "/resume", **of_user)
        replay = f"replay:{events[0]}:1"
        eventually(lambda: 'class="head-line"' in page_of(url, key))
        post(url, "/release", **whose, id=replay)
        eventually(lambda: f"the event {replay} is a dead letter" in page_of(url, key))
        eventually(lambda: results(url, key) == ["replayed", "answered", "failed"])
