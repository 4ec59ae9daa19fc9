"""The chat page in a real browser, talking to a small echo bot."""

import pytest

import linesim
from linesim.model.media import sample

ANSWERS = {
    "image": "写真ですね...",
    "sticker": "スタンプですね",
    "location": "位置情報ですね...",
    "follow": "ようこそ！",
    "join": "皆さん、ようこそ！",
    "postback": "選びましたね",
}


@pytest.fixture
def sim(bot):
    """On the machine's own clock: users see these times."""
    with linesim.running(webhook_url=bot.url) as sim:
        yield sim


@pytest.fixture
def echo(bot, line):
    def handle(event):
        if "replyToken" in event:
            content = event.get("message", event)
            said = f"はい、{content['text']}、ですね。" if "text" in content else None
            line.reply(event["replyToken"], said or ANSWERS.get(content["type"], "？"))

    bot.handle = handle


@pytest.fixture
def open_page(browser, sim, echo):
    """Opens the page; whatever it reports as an error fails the test."""
    contexts, errors = [], []

    def open_page(**more):
        size = {"width": 1100, "height": 760}
        context = browser.new_context(**{"viewport": size, "locale": "ja-JP"} | more)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and errors.append(said.text))
        page.goto(sim.url)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def page(open_page):
    page = open_page()
    page.get_by_role("button", name="友だちを追加").last.click()
    page.keyboard.press("Enter")
    page.locator(".bot", has_text="ようこそ！").wait_for()
    return page


def write(page, text):
    page.locator("#text").fill(text)
    page.locator("#text").press("Enter")


def answered(page, text):
    page.locator("li.bot", has_text=text).last.wait_for()


def the_user(sim):
    return next(iter(sim.platform.world.users.values()))


def test_a_new_friend_is_welcomed_and_answered_without_reload(page, sim):
    page.evaluate("window.marked = true")
    write(page, "<b>こんにちは😀</b>")
    answered(page, "はい、<b>こんにちは😀</b>、ですね。")
    assert page.locator("li.mine .text").all_inner_texts() == ["<b>こんにちは😀</b>"]
    assert page.locator("li.mine .read").inner_text() == "既読"
    assert page.evaluate("window.marked")
    assert [bubble.text for bubble in sim.answers(the_user(sim))] == [
        "ようこそ！",
        "はい、<b>こんにちは😀</b>、ですね。",
    ]
    page.reload()
    answered(page, "はい、<b>こんにちは😀</b>、ですね。")


@pytest.mark.long
def test_a_sticker_a_photo_and_a_place(page, sim, tmp_path):
    page.locator("#open-stickers").click()
    page.locator("#stickers button").first.click()
    answered(page, "スタンプですね")
    photo = tmp_path / "山.jpg"
    photo.write_bytes(sample("image").data)
    page.locator("#photo").set_input_files(photo)
    answered(page, "写真ですね")
    shown = page.locator("li.mine img.medium")
    shown.evaluate("image => image.decode()")
    assert shown.evaluate("image => image.naturalWidth") == 960
    page.locator("#open-tools").click()
    page.get_by_role("button", name="位置情報").click()
    page.get_by_role("button", name="大阪城").click()
    answered(page, "位置情報ですね")
    assert page.locator("li.mine .place strong").inner_text() == "大阪城"
    kinds = [each.message["type"] for each in sim.chat(the_user(sim)) if each.speaker == "user"]
    assert kinds == ["sticker", "image", "location"]


def test_the_state_is_saved_and_loaded_and_a_chat_becomes_a_test(page, sim, tmp_path):
    with page.expect_download() as waiting:
        page.get_by_role("link", name="状態を保存").click()
    waiting.value.save_as(tmp_path / "state.json")
    write(page, "あとの話")
    answered(page, "はい、あとの話、ですね。")
    with page.expect_download() as waiting:
        page.get_by_role("button", name="テストとして保存").click()
    assert waiting.value.suggested_filename.startswith("test_recorded_")
    assert "kit.says(U1, 'あとの話')" in waiting.value.path().read_text()
    page.on("dialog", lambda dialog: dialog.accept())
    page.locator("#saved").set_input_files(tmp_path / "state.json")
    page.get_by_text("あとの話").first.wait_for(state="detached")
    answered(page, "ようこそ！")
    assert len(sim.chat(the_user(sim))) == 2


def test_a_date_is_picked_in_a_flex_message_and_a_mention_has_the_members_name(page, sim, line):
    user = the_user(sim)
    bounds = {"min": "2027-01-05t09:00", "max": "2027-02-01t18:00"}
    picker = {
        "type": "datetimepicker",
        "label": "日時",
        "data": "a=1",
        "mode": "datetime",
        **bounds,
    }
    body = {
        "type": "box",
        "layout": "vertical",
        "contents": [{"type": "button", "action": picker}],
    }
    flex = {"type": "flex", "altText": "予約", "contents": {"type": "bubble", "body": body}}
    line.post("/v2/bot/message/push", {"to": user.user_id, "messages": [flex]})
    page.get_by_role("button", name="日時").click()
    page.locator("#moment").fill("2027-01-06T10:30")
    page.get_by_role("button", name="決定").click()
    answered(page, "選びましたね")
    postback = sim.deliveries[-1].events[0]["postback"]
    assert postback == {"data": "a=1", "params": {"datetime": "2027-01-06T10:30"}}

    group = sim.add_group("皆", [user])
    page.get_by_role("button", name="皆").click()
    write(page, "@linedesk やあ")
    answered(page, "はい、@linedesk やあ、ですね。")
    assert sim.deliveries[-1].events[0]["message"]["mention"]["mentionees"][0]["isSelf"]
    mention = {"type": "mention", "mentionee": {"type": "user", "userId": user.user_id}}
    text = {"type": "textV2", "text": "{a} さん{{}}", "substitution": {"a": mention}}
    line.post("/v2/bot/message/push", {"to": group.chat_id, "messages": [text]})
    answered(page, f"@{user.name} さん{{}}")
    page.locator("#chats small", has_text=f"@{user.name} さん").wait_for()


@pytest.mark.long
def test_a_failed_delivery_shows_on_its_message(page, sim, bot):
    bot.status = 503
    write(page, "届かない")
    page.locator("li.mine .failure", has_text="応答 503").wait_for()
    sim.webhook_url = "http://127.0.0.1:1/"
    write(page, "つながらない")
    page.locator("li.mine .failure", has_text="接続できません").wait_for()


def test_an_answer_that_overtakes_the_transcript_is_kept(page, sim, line):
    user = the_user(sim).user_id

    def hold_back(route):
        transcript = route.fetch()
        line.push(user, "追い越し")
        answered(page, "追い越し")
        route.fulfill(response=transcript)

    page.route("**/sim/chats/*", hold_back)
    with page.expect_response("**/sim/chats/*"):
        page.locator("#chats button", has_text="太郎").click()
    page.unroute("**/sim/chats/*")
    answered(page, "追い越し")
    assert page.locator("li.bot .text").all_inner_texts() == ["ようこそ！", "追い越し"]


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_a_narrow_phone(open_page, sim, tmp_path, scheme):
    user = sim.add_user("太郎")
    sim.say(user, "長い文章です。" * 30 + "x" * 200)
    size = {"width": 320, "height": 640}
    page = open_page(viewport=size, is_mobile=True, has_touch=True, color_scheme=scheme)
    for corner in ("#add-user", "#chats button .when"):
        box = page.locator(corner).bounding_box()
        assert box["x"] + box["width"] <= 320
    page.locator("#chats button", has_text="太郎").click()
    answered(page, "長い文章です")
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert page.locator("#chats").is_hidden()
    page.locator("#open-tools").click()
    assert page.locator("#send").bounding_box()["x"] < 300
    assert page.screenshot(path=tmp_path / f"phone-{scheme}.png")
    page.locator("#back").click()
    assert page.locator("#chats").is_visible()


@pytest.mark.long
def test_the_clock_can_be_moved_ahead(page, sim):
    ahead = page.locator("#clock-ahead")
    page.locator("#clock-now", has_text=":").wait_for()
    today = page.locator("#clock-now").inner_text()
    assert ahead.inner_text() == ""

    def hold_back(route):
        before = route.fetch()
        page.get_by_role("button", name="+1日").click()
        ahead.get_by_text("1日進めました").wait_for()
        route.fulfill(response=before)

    # A reply requested before the move that arrives after it does not set the clock back.
    page.route("**/sim/state", hold_back, times=1)
    with page.expect_response("**/sim/state"):
        sim.add_user("花子")
    page.locator("#chats button", has_text="花子").wait_for()
    assert ahead.inner_text() == "1日進めました"
    assert page.locator("#clock-now").inner_text().partition(" ")[0] != today.partition(" ")[0]
    write(page, "翌日です")
    answered(page, "翌日です")
    assert page.locator("li.day").count() == 2
    page.get_by_label("進める秒数").fill("90")
    page.get_by_label("進める秒数").press("Enter")
    ahead.get_by_text("1日1分30秒進めました").wait_for()
    assert sim.platform.clock.ahead == 86_490
    sim.advance(7 * 3600)  # by another process: the page is notified
    ahead.get_by_text("1日7時間1分30秒進めました").wait_for()
