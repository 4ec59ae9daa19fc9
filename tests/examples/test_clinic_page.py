"""The clinic's bot on the simulator's page, used as a person would, on every real part."""

from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.examples.test_clinic import FOLDER, VISIT
from tests.linesim.conftest import Line
from tests.linesim.http.test_page import NEWEST_IS_SEEN
from tests.real_stack import real_stack

SIZES = {"desktop": (1200, 800), "phone": (360, 720)}


def make_menus(line: Line, page: Any) -> None:
    """Two rich menus, each with a tab that shows the other."""
    size = {"width": 1200, "height": 405}
    tabs = "<td style='font:60px sans-serif;border:4px solid;text-align:center'>".join
    page.set_content(
        f"<table width=1184 height=389><tr>{tabs(['', '予約・キャンセル', '⇄'])}</table>"
    )
    picture = page.screenshot(clip={"x": 0, "y": 0, **size})
    left, right = ({"x": x, "y": 0, "width": 600, "height": 405} for x in (0, 600))
    for name, other, word in (("more", "visit", "キャンセル"), ("visit", "more", "予約")):
        switch = {"type": "richmenuswitch", "label": other, "richMenuAliasId": other, "data": name}
        say = {"type": "message", "label": word, "text": word}
        areas = [{"bounds": left, "action": say}, {"bounds": right, "action": switch}]
        menu = {"size": size, "selected": True, "name": name, "chatBarText": "メニュー"}
        made = line.make_menu(menu | {"areas": areas}, picture, alias=name)
    line.post(f"/v2/bot/user/all/richmenu/{made}", {})


def test_a_person_books_by_menu_flex_and_date_and_mentions_the_bot(
    browser: Any, tmp_path: Path
) -> None:
    with real_stack() as stack:
        stack.play("clinic:bot", PYTHONPATH=str(FOLDER), BOT_SETTINGS=f"photos={tmp_path}")
        visit = VISIT.after(stack.now() + timedelta(days=2))
        assert visit is not None
        local = visit.astimezone(VISIT.zone)
        when = f"{local:%-m月%-d日%-H:%M}"
        context = browser.new_context(viewport={"width": 1200, "height": 800}, locale="ja-JP")
        context.set_default_timeout(15_000)
        page = context.new_page()
        line = Line(stack.sim)
        make_menus(line, page)
        line.session.close()
        page.goto(stack.sim.url)

        page.get_by_role("button", name="友だちを追加").last.click()
        page.keyboard.press("Enter")
        page.locator("li.bot", has_text="みなと医院です。").wait_for()

        page.get_by_role("button", name="more", exact=True).click()
        page.get_by_role("button", name="visit", exact=True).click()
        page.get_by_role("button", name="予約", exact=True).click()
        page.locator("#replies").get_by_role("button", name="日時を選ぶ").click()
        page.locator("#moment").fill(f"{local:%Y-%m-%dT%H:%M}")
        page.get_by_role("button", name="決定").click()
        page.locator("li.bot", has_text=f"{when}でよろしいですか？").wait_for()
        _photograph(page, tmp_path)
        page.get_by_role("button", name="予約する").click()
        page.locator("li.bot", has_text=f"{when}に承りました。").wait_for()

        (user,) = stack.sim.platform.world.users.values()
        stack.sim.add_group("家族", members=[user])
        page.locator("#chats button", has_text="家族").click()
        page.locator("#text").press_sequentially("@l")
        page.keyboard.press("Enter")
        page.locator("#text").press_sequentially("予約したい")
        page.keyboard.press("Enter")
        page.locator("li.bot", has_text=f"@{user.name} さん、診療時間は").wait_for()
        context.close()


def _photograph(page: Any, folder: Path) -> None:
    """The page with the Flex Message and the menu, for people to look at; it fits each size."""
    for name, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            page.set_viewport_size({"width": width, "height": height})
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            page.wait_for_function(NEWEST_IS_SEEN)
            page.screenshot(path=folder / f"clinic-{name}-{scheme}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1200, "height": 800})
