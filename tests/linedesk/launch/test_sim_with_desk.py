"""linesim's clock and its page beside real processes and a console of linedesk."""

from dataclasses import replace
from typing import Any

import pytest
import requests

from linedesk.operate.acts import Acts
from linedesk.store.control import Scope
from tests.linedesk.operate.serving import served
from tests.linedesk.testing.test_parity import stack as stack
from tests.real_stack import RealStack


def test_the_clock_stops_at_each_timer_on_its_way(stack: RealStack) -> None:
    """Also at those that are set by a timer on the way."""
    user = stack.sim.add_user("太郎")
    stack.deliver(stack.sim.drafts.text(user, "count"))
    began = stack.now().timestamp()
    answer = requests.post(f"{stack.sim.url}/sim/clock", json={"advance": 86_400}, timeout=60)
    assert answer.json()["now"] - began == pytest.approx(86_400, abs=30)
    at = {bubble.text: bubble.at - began for bubble in stack.sim.answers(user)}
    assert [at["1"], at["2"], at["3"]] == pytest.approx([60, 120, 180], abs=15)
    assert at["1"] < at["2"] < at["3"]


def test_a_message_without_an_answer_has_the_words_of_the_console(
    stack: RealStack, browser: Any
) -> None:
    platform, user = stack.sim.platform, stack.sim.add_user("花子")
    with served(stack.database) as url, browser.new_context() as context:
        platform.options = replace(platform.options, console_url=url)
        page = context.new_page()
        page.goto(f"{stack.sim.url}/#{user.user_id}")
        event = stack.sim.drafts.text(user, "fail")
        stack.deliver(event)
        strip = page.locator("li", has_text="fail").locator(".why.bad")
        strip.get_by_text("RuntimeError, kit_bot.py:64").wait_for()
        story = f"{url}/event/{event['webhookEventId']}"
        assert strip.get_by_role("link").get_attribute("href") == story
        assert requests.get(story, timeout=10).status_code == 200
        acts, whose = Acts(stack.database, by="佐藤", via="page"), Scope("main", user.user_id)
        acts.pause(whose, why="休憩")
        obeyed = {"paused.key": user.user_id}
        stack.wait_for(lambda: stack.database["status"].find_one(obeyed), "dispatcher")
        stack.deliver(stack.sim.drafts.text(user, "やあ"))
        strip = page.locator("li", has_text="やあ").locator(".why")
        strip.get_by_text("休憩").wait_for()
        acts.resume(whose)
        page.locator("li.bot", has_text="聞こえました：やあ").wait_for()
        assert page.locator(".why").count() == 1
