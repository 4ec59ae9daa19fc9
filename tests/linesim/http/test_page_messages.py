"""A bot's messages on the chat page: what a tap sends to the bot, and where the parts are."""

import json

import pytest

import linesim
from linesim.model.media import sample
from tests.linesim.gallery.stage import HERE, Stage
from tests.waiting import eventually

GALLERY = json.loads((HERE / "messages.json").read_text("utf-8"))


@pytest.fixture
def sim(bot):
    with linesim.running(webhook_url=bot.url) as sim:
        yield sim


@pytest.fixture
def stage(browser, sim):
    stage = Stage(browser, sim)
    yield stage
    stage.close()
    assert stage.errors == []


@pytest.fixture
def page(stage):
    return stage.page


def buttons(*actions, **more):
    labelled = [{"label": "押す", **action} for action in actions]
    template = {"type": "buttons", "text": "選んで", "actions": labelled, **more}
    return {"type": "template", "altText": "選んで", "template": template}


def replies(*actions):
    items = [{"type": "action", "action": {"label": "押す", **action}} for action in actions]
    return {"type": "text", "text": "選んで", "quickReply": {"items": items}}


def press(page, name="押す"):
    page.get_by_role("button", name=name, exact=True).click()


def sent(bot, page, doing=press):
    """The events of the next webhook."""
    with page.expect_response("**/sim/deliveries"):
        doing(page)
    return bot.last.events


def test_a_message_and_a_postback_reach_the_bot(stage, page, bot):
    stage.draw(buttons({"type": "message", "text": "はい"}))
    [event] = sent(bot, page)
    assert event["message"]["text"] == "はい"

    stage.draw(buttons({"type": "postback", "data": "a=1", "displayText": "買います"}))
    [event] = sent(bot, page)
    assert (event["type"], event["postback"]) == ("postback", {"data": "a=1"})
    assert page.locator("li.mine .text").all_inner_texts() == ["買います"]
    assert page.locator("li.mine .more").count() == 0

    stage.draw(buttons({"type": "postback", "data": "a=2", "text": "古い形"}))
    [event] = sent(bot, page)
    assert event["message"]["text"] == "古い形"
    eventually(lambda: bot.last.events[0].get("postback") == {"data": "a=2"})


@pytest.mark.parametrize(
    ("mode", "kind", "low", "start", "high"),
    [
        ("date", "date", "2027-01-05", "2027-01-06", "2027-02-01"),
        ("time", "time", "09:00", "10:30", "18:00"),
        ("datetime", "datetime-local", "2027-01-05T09:00", "2027-01-06T10:30", "2027-02-01T18:00"),
    ],
)
def test_a_moment_is_picked_within_its_limits(stage, page, bot, mode, kind, low, start, high):
    limits = {"min": low.replace("T", "t"), "initial": start.replace("T", "t"), "max": high}
    stage.draw(buttons({"type": "datetimepicker", "data": "b", "mode": mode, **limits}))
    press(page)
    field = page.locator("#moment")
    found = field.evaluate("({type, min, value, max}) => [type, min, value, max]")
    assert found == [kind, low, start, high]
    field.fill(high.replace("2027", "2028").replace("18", "19"))
    press(page, "決定")
    assert field.evaluate("field => field.validity.rangeOverflow")
    field.fill(start)
    [event] = sent(bot, page, lambda page: press(page, "決定"))
    assert event["postback"] == {"data": "b", "params": {mode: start}}


def test_a_video_that_is_watched_to_its_end_is_an_event(stage, page, bot):
    video = {"type": "video", "originalContentUrl": "https://example.com/film.mp4"}
    video |= {"previewImageUrl": "https://example.com/300x200.png", "trackingId": "t-1"}
    drawn = stage.draw(video)
    [event] = sent(bot, page, lambda _: drawn.get_by_role("button", name="再生").click())
    assert event["videoPlayComplete"] == {"trackingId": "t-1"}


def test_a_postback_opens_the_keyboard_or_the_voice_input(stage, page, bot):
    fill = {"inputOption": "openKeyboard", "fillInText": "名前:\n電話:"}
    stage.draw(buttons({"type": "postback", "data": "a", **fill}))
    [event] = sent(bot, page)
    assert event["postback"] == {"data": "a"}
    assert page.locator("#text:focus").input_value() == "名前:\n電話:"
    stage.draw(buttons({"type": "postback", "data": "a", "inputOption": "openVoice"}))
    sent(bot, page)
    assert page.locator("#tools [data-send=audio]:focus").is_visible()


def test_an_address_is_opened_in_a_new_tab_or_shown_and_a_text_is_copied(stage, page):
    web = {"type": "uri", "uri": "https://example.com/narrow"}
    web |= {"altUri": {"desktop": "https://example.com/wide"}}
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.context.route("https://example.com/**", lambda route: route.fulfill(body="menu"))
    toast = page.locator(".toast")
    for message, address in ((buttons(web), "wide"), (replies(web), "narrow")):
        stage.draw(message)
        with page.expect_popup() as opened:
            press(page)
        assert opened.value.url == f"https://example.com/{address}"
        opened.value.close()
        assert toast.inner_text() == f"新しいタブで開きました: https://example.com/{address}"
    stage.draw(buttons({"type": "uri", "uri": "tel:0312345678"}))
    press(page)
    assert toast.inner_text() == "LINEで開くURL: tel:0312345678"
    assert len(page.context.pages) == 2  # a blank one of the stage
    stage.draw(buttons({"type": "clipboard", "clipboardText": "3B48740B"}))
    press(page)
    page.locator(".toast", has_text="コピーしました: 3B48740B").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == "3B48740B"
    assert page.locator("#banner").is_hidden()


def test_a_quick_reply_sends_pictures_and_places_and_then_vanishes(stage, page, bot, tmp_path):
    (photo := tmp_path / "1.jpg").write_bytes(sample("image").data)
    shown = page.locator("#replies button")
    for kind, files in (("camera", [photo]), ("cameraRoll", [photo, photo])):
        stage.draw(replies({"type": kind}))
        assert shown.locator("svg").count() == 1
        before = len(bot.received)
        with page.expect_file_chooser() as chooser:
            press(page)
        assert chooser.value.is_multiple() == (kind == "cameraRoll")
        assert shown.count() == 1
        chooser.value.set_files(files)
        page.locator("li.mine .read", has_text="既読").nth(len(files) - 1).wait_for()
        kinds = [each.events[0]["message"]["type"] for each in bot.received[before:]]
        assert kinds == ["image" for _ in files]
        assert shown.count() == 0
    stage.draw(replies({"type": "location"}))
    press(page)
    [event] = sent(bot, page, lambda page: page.get_by_role("button", name="大阪城").click())
    assert event["message"]["title"] == "大阪城"
    stage.draw(replies({"type": "uri", "uri": "tel:0312345678"}))
    press(page)
    assert shown.count() == 0


def assert_placed(element, whole, area, size):
    """The element takes an area of the whole, which has the shape of this size."""
    part, outer = element.bounding_box(), whole.bounding_box()
    assert outer["width"] / outer["height"] == pytest.approx(
        size["width"] / size["height"], abs=0.01
    )
    across, down = outer["width"] / size["width"], outer["height"] / size["height"]
    place = {"x": outer["x"] + area["x"] * across, "y": outer["y"] + area["y"] * down}
    extent = {"width": area["width"] * across, "height": area["height"] * down}
    assert part == pytest.approx(place | extent, abs=1)


def test_the_areas_of_an_imagemap_are_in_place_at_each_width(stage, page, bot):
    message = GALLERY["imagemap"]
    areas = [part["area"] for part in (message["video"], *message["actions"])]
    for width, most, image in ((360, 300, 300), (1100, 420, 460)):
        page.set_viewport_size({"width": width, "height": 900})
        drawn = stage.draw(message)
        assert drawn.bounding_box()["width"] <= most
        parts = [drawn.locator(".film"), *drawn.locator("button.area").all()]
        for part, area in zip(parts, areas, strict=True):
            assert_placed(part, drawn, area, message["baseSize"])
        chosen = drawn.locator("> img").evaluate("image => image.currentSrc")
        assert chosen == f"https://example.com/map/{image}"
    [event] = sent(bot, page, lambda page: press(page, "Hello"))
    assert event["message"]["text"] == "Hello"
    drawn = stage.draw(message)
    drawn.locator("video").dispatch_event("ended")
    press(page, "More")
    page.locator(".toast", has_text="tel:0312345678").wait_for()


def test_templates_have_the_shapes_that_line_documents(stage, page, bot):
    drawn = stage.draw(GALLERY["carousel"])
    size = "all => all.map((one) => [one.offsetTop, one.offsetWidth, one.offsetHeight])"
    for part in (".template", ".choices"):
        first, second = drawn.locator(part).evaluate_all(size)
        assert first == second
    shapes = {"buttons": (1.51, "cover"), "buttons-square-contain": (1.0, "contain")}
    for name, (ratio, fit) in shapes.items():
        image = stage.draw(GALLERY[name]).locator("img")
        box = image.bounding_box()
        assert box["width"] / box["height"] == pytest.approx(ratio, abs=0.01)
        assert image.evaluate("image => getComputedStyle(image).objectFit") == fit
    default = {"type": "message", "label": "詳細", "text": "詳細"}
    stage.draw(buttons(default, title="品", defaultAction=default))
    [event] = sent(bot, page, lambda page: page.locator(".face strong").click())
    assert event["message"]["text"] == "詳細"
    yes, no = stage.draw(GALLERY["confirm"]).locator(".choices button").evaluate_all(size)
    assert yes == no


def test_links_and_emojis_are_in_place_and_a_quote_shows_the_quoted(stage, page, sim):
    text = "😀$ は https://example.com/a_(b)。<b> tel:0312345678) line://nv/chat?"
    sign = {"index": 2, "productId": "5ac1bfd5040ab15980c9b435", "emojiId": "001"}
    drawn = stage.draw({"type": "text", "text": text, "emojis": [sign]})
    assert drawn.inner_text() == text.replace("$", "")
    assert drawn.locator(".emoji").evaluate("one => one.previousSibling.textContent") == "😀"
    links = drawn.locator("a").evaluate_all("all => all.map((a) => a.getAttribute('href'))")
    assert links == ["https://example.com/a_(b)", "tel:0312345678", "line://nv/chat"]
    attributes = drawn.locator("a").first.evaluate("a => [a.target, a.rel]")
    assert attributes == ["_blank", "noopener noreferrer"]

    sim.say(stage.user, "何時ですか")
    question = sim.chat(stage.user)[-1]
    stage.draw({"type": "text", "text": "九時です", "quoteToken": question.quote_token})
    quote = page.locator("li.bot .quote")
    assert quote.inner_text() == "太郎\n何時ですか"
    answer = sim.answers(stage.user)[-1].message_id
    sim.deliver(sim.drafts.text(stage.user, "はい", quoted=answer))
    page.locator("li.mine .quote", has_text="九時です").wait_for()


def test_a_rich_menu_opens_by_itself_is_in_place_and_can_be_switched(stage, page, bot, line):
    size = {"width": 800, "height": 540}
    bounds = {"x": 400, "y": 270, "width": 400, "height": 270}
    close = {"type": "postback", "label": "閉じる", "data": "c", "inputOption": "closeRichMenu"}
    switch = {"type": "richmenuswitch", "label": "次", "richMenuAliasId": "b", "data": "s"}
    for alias, action in (("a", switch), ("b", close)):
        menu = {"size": size, "selected": alias == "a", "name": alias, "chatBarText": alias}
        menu |= {"areas": [{"bounds": bounds, "action": action}]}
        picture = page.screenshot(clip={"x": 0, "y": 0, **size})
        made = line.make_menu(menu, picture, alias=alias)
        if alias == "a":
            line.post(f"/v2/bot/user/{stage.user.user_id}/richmenu/{made}", {})
    board = page.locator("#menu .menu-board")
    for width in (1100, 360):
        page.set_viewport_size({"width": width, "height": 800})
        board.wait_for()
        assert_placed(board.locator("button"), board, bounds, size)
    [event] = sent(bot, page, lambda page: press(page, "次"))
    done = {"newRichMenuAliasId": "b", "status": "SUCCESS"}
    assert event["postback"] == {"data": "s", "params": done}
    missing = line.sim.drafts.richmenuswitch(stage.user, "x", "s")["postback"]
    assert missing["params"] == {"status": "RICHMENU_ALIAS_ID_NOTFOUND"}
    [event] = sent(bot, page, lambda page: press(page, "閉じる"))
    assert event["postback"] == {"data": "c"}
    assert board.is_hidden()
    press(page, "b")
    assert board.is_visible()
    line.session.delete(f"{line.sim.url}/v2/bot/user/{stage.user.user_id}/richmenu")
    page.locator("#menu").wait_for(state="hidden")
