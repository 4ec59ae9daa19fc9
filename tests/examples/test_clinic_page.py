"""The clinic's bot on the simulator's page, used as a person would, on every real part."""

import struct
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

from linebot.v3.messaging import (
    ApiClient,
    Configuration,
    CreateRichMenuAliasRequest,
    MessageAction,
    MessagingApi,
    MessagingApiBlob,
    RichMenuArea,
    RichMenuBounds,
    RichMenuRequest,
    RichMenuSize,
    RichMenuSwitchAction,
)

import linesim
from tests.examples.test_clinic import FOLDER, VISIT
from tests.real_stack import real_stack

WIDTH, HEIGHT = 1200, 405
SIZES = {"desktop": (1200, 800), "phone": (360, 720)}


def picture(red: int, green: int, blue: int) -> bytes:
    """A PNG in one colour."""
    row = b"\0" + bytes((red, green, blue)) * WIDTH
    head = struct.pack(">IIBBBBB", WIDTH, HEIGHT, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(row * HEIGHT)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def make_menus(sim: linesim.Sim) -> None:
    """Two rich menus with LINE's SDK, each with a tab that shows the other."""
    configuration = Configuration(host=sim.url, access_token=sim.token)
    with ApiClient(configuration) as client:
        api, blob = MessagingApi(client), MessagingApiBlob(client)
        for name, other, word in (("visit", "more", "予約"), ("more", "visit", "キャンセル")):
            left = RichMenuBounds(x=0, y=0, width=WIDTH // 2, height=HEIGHT)
            right = RichMenuBounds(x=WIDTH // 2, y=0, width=WIDTH // 2, height=HEIGHT)
            switch = RichMenuSwitchAction(label=other, richMenuAliasId=other, data=f"tab={other}")
            menu = RichMenuRequest(
                size=RichMenuSize(width=WIDTH, height=HEIGHT),
                selected=True,
                name=name,
                chatBarText="メニュー",
                areas=[
                    RichMenuArea(bounds=left, action=MessageAction(label=word, text=word)),
                    RichMenuArea(bounds=right, action=switch),
                ],
            )
            made = api.create_rich_menu(menu).rich_menu_id
            colour = (6, 120, 60) if name == "visit" else (40, 80, 160)
            headers = {"Content-Type": "image/png"}
            blob.set_rich_menu_image(made, picture(*colour), _headers=headers)
            alias = CreateRichMenuAliasRequest(richMenuAliasId=name, richMenuId=made)
            api.create_rich_menu_alias(alias)
            if name == "visit":
                api.set_default_rich_menu(made)
        client.rest_client.pool_manager.clear()


def test_a_person_books_by_menu_flex_and_date_and_mentions_the_bot(
    browser: Any, tmp_path: Path
) -> None:
    with real_stack() as stack:
        stack.play("clinic:bot", PYTHONPATH=str(FOLDER), BOT_SETTINGS=f"photos={tmp_path}")
        make_menus(stack.sim)
        visit = VISIT.after(stack.now() + timedelta(days=2))
        assert visit is not None
        local = visit.astimezone(VISIT.zone)
        when = f"{local:%-m月%-d日%-H:%M}"
        context = browser.new_context(viewport={"width": 1200, "height": 800}, locale="ja-JP")
        context.set_default_timeout(15_000)
        page = context.new_page()
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
            page.screenshot(path=folder / f"clinic-{name}-{scheme}.png")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size({"width": 1200, "height": 800})
