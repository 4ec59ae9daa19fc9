"""The chat page in a real browser, talking to a small echo bot."""

import re
from datetime import datetime, timedelta, timezone
from importlib import resources

import pytest

import linesim
from linesim.model.media import sample
from tests.linesim.http.test_menus import WRITTEN, png

NEWEST_IS_SEEN = """() => {
    const list = document.querySelector("#bubbles");
    return list.scrollHeight - list.scrollTop - list.clientHeight < 8;
}"""
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

    def note(said):
        # A lost connection is no error of the page.
        if said.type == "error" and "ERR_FAILED" not in said.text:
            errors.append(said.text)

    def open_page(**more):
        size = {"width": 1100, "height": 760}
        context = browser.new_context(**{"viewport": size, "locale": "ja-JP"} | more)
        context.set_default_timeout(10_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", note)
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
    page.locator("#upload").set_input_files(photo)
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
        page.get_by_label("トークのメニュー").click()
        page.get_by_role("menuitem", name="テストとして保存").click()
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
    page.locator("li.mine .failure", has_text="接続できない").wait_for()


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


def in_the_chat(page, name):
    page.locator("#chats button", has_text=name).click()
    page.locator("#title", has_text=name).wait_for()


def test_the_newest_message_stays_in_view_unless_one_scrolls_up(page, sim, line):
    user = the_user(sim).user_id
    for number in range(8):
        line.push(user, f"{number}\n" * 6)
    made = line.make_menu(WRITTEN | {"selected": True}, png(), alias="main")
    line.post(f"/v2/bot/user/all/richmenu/{made}", {})
    for _ in range(4):
        page.reload()
        answered(page, "7")
        page.locator("#menu-board").wait_for()
        page.wait_for_function(NEWEST_IS_SEEN)
    page.locator("#bubbles").evaluate("list => list.scrollTo(0, 0)")
    # The page hears of it before the second frame.
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    line.push(user, "あとで読む")
    answered(page, "あとで読む")
    assert page.locator("#bubbles").evaluate("list => list.scrollTop") == 0


def test_each_chat_has_an_address_a_draft_and_a_place_in_the_history(page, sim):
    user = the_user(sim)
    other = sim.add_user("花子")
    page.locator("#text").fill("書きかけ")
    in_the_chat(page, "花子")
    assert page.url.endswith(f"#{other.user_id}")
    assert page.locator("#text").input_value() == ""
    page.go_back()
    page.locator("#title", has_text=user.name).wait_for()
    page.reload()
    answered(page, "ようこそ！")
    assert page.locator("#text").input_value() == "書きかけ"
    page.goto(f"{sim.url}/#{other.user_id}")
    page.locator("#title", has_text="花子").wait_for()
    page.go_back()
    page.locator("#title", has_text=user.name).wait_for()


def test_a_text_that_is_not_sent_stays_and_says_why(page):
    page.route("**/sim/deliveries", lambda route: route.abort())
    write(page, "大事な話")
    page.locator(
        "#banner", has_text="送信できませんでした: シミュレーターに接続できません"
    ).wait_for()
    assert page.locator("#text").input_value() == "大事な話"
    page.unroute("**/sim/deliveries")
    page.locator("#text").press("Enter")
    answered(page, "はい、大事な話、ですね。")
    assert page.locator("#text").input_value() == ""
    assert page.locator("#banner").is_hidden()


def test_a_chat_that_is_not_loaded_says_why_and_shows_no_other_one(page, sim):
    sim.add_user("花子")
    page.route("**/sim/chats/*", lambda route: route.abort())
    in_the_chat(page, "花子")
    page.locator("#banner", has_text="トークを読み込めませんでした").wait_for()
    assert page.locator("#bubbles li").count() == 0


def choose(page, message, label):
    """By keyboard: the menu of a message, and in it the label."""
    page.locator("#bubbles li", has_text=message).first.get_by_label("メッセージのメニュー").press(
        "Enter"
    )
    item = page.get_by_role("menuitem", name=label)
    for _ in range(6):
        if item.evaluate("item => item === document.activeElement"):
            break
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")


def test_a_group_by_keyboard_mentions_quotes_edits_and_takes_back(page, sim):
    user, other = the_user(sim), sim.add_user("花子 山田")
    sim.add_group("皆", [user, other])
    in_the_chat(page, "皆")
    page.locator("#text").press_sequentially("@")
    assert page.locator("#mentions li").all_inner_texts() == ["@花子 山田", "@linedesk", "@All"]
    page.keyboard.press("Escape")
    assert page.locator("#mentions").is_hidden()
    page.locator("#text").press_sequentially("花")
    page.keyboard.press("Backspace")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.locator("#text").press_sequentially("やあ")
    page.keyboard.press("Enter")
    answered(page, "はい、@linedesk やあ、ですね。")
    said = sim.deliveries[-1].events[0]["message"]
    assert said["mention"]["mentionees"][0]["isSelf"]

    choose(page, "@linedesk やあ", "リプライ")
    page.keyboard.insert_text("引用です")
    page.keyboard.press("Enter")
    answered(page, "はい、引用です、ですね。")
    quote = sim.deliveries[-1].events[0]["message"]
    assert quote["quotedMessageId"] == said["id"]

    choose(page, "引用です", "編集")
    assert page.locator("#text").input_value() == "引用です"
    page.locator("#text").fill("編集しました")
    page.keyboard.press("Enter")
    answered(page, "はい、編集しました、ですね。")
    edited = sim.deliveries[-1].events[0]
    assert (edited["type"], edited["message"]["id"]) == ("messageEdited", quote["id"])
    assert "markAsReadToken" not in edited["message"]
    assert edited["message"]["quotedMessageId"] == said["id"]
    assert "編集済み" in page.locator("li.mine", has_text="編集しました").inner_text()
    choose(page, "編集しました", "送信取消")
    page.locator(".notice", has_text="取り消しました").wait_for()


def test_files_are_pasted_and_dropped_in_order(page, sim):
    page.evaluate("""() => {
        const files = new DataTransfer();
        files.items.add(new File(["a"], "山.png", { type: "image/png" }));
        files.items.add(new File(["b"], "表.csv", { type: "text/plain" }));
        const paste = { clipboardData: files, bubbles: true, cancelable: true };
        document.querySelector("#text").dispatchEvent(new ClipboardEvent("paste", paste));
    }""")
    page.locator("li.mine", has_text="表.csv").wait_for()
    page.evaluate("""() => {
        const files = new DataTransfer();
        files.items.add(new File(["c"], "声.mp3", { type: "audio/mpeg" }));
        const drop = { dataTransfer: files, bubbles: true, cancelable: true };
        document.querySelector("#bubbles").dispatchEvent(new DragEvent("drop", drop));
    }""")
    page.locator("li.mine audio").wait_for()
    kinds = [each.message["type"] for each in sim.chat(the_user(sim)) if each.speaker == "user"]
    assert kinds == ["image", "file", "audio"]


def test_the_keyboard_reaches_all_and_the_focus_returns(page, sim):
    focused = "document.activeElement.id || document.activeElement.dataset.chat"
    other = sim.add_user("花子")
    page.locator("#chats button", has_text="花子").wait_for()
    page.locator("#chats button").first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == other.user_id
    page.keyboard.press("Enter")
    page.locator("#title", has_text="花子").wait_for()
    for tray in ("tools", "stickers"):
        page.locator(f"#open-{tray}").press("Enter")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Escape")
        assert page.locator(f"#{tray}").is_hidden()
        assert page.evaluate(focused) == f"open-{tray}"
    page.locator("#actions").press("Enter")
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "actions"
    page.locator("#add-group").press("Enter")
    page.get_by_label("複数人トーク").check()
    page.keyboard.press("Escape")
    assert page.evaluate(focused) == "add-group"
    page.keyboard.press("Enter")
    page.get_by_label("複数人トーク").check()
    page.get_by_role("button", name="作る", exact=True).click()
    answered(page, "皆さん、ようこそ！")
    assert [each.kind for each in sim.platform.world.groups.values()] == ["room"]
    assert sim.deliveries[-1].events[0]["source"]["type"] == "room"


def test_times_are_japans_and_no_sign_is_an_emoji(open_page, sim):
    sim.say(sim.add_user("太郎"), "やあ")
    page = open_page(timezone_id="America/New_York", viewport={"width": 1100, "height": 760})
    japan = timezone(timedelta(hours=9))
    said = sim.platform.chats.last()[-1].at
    page.locator("li.mine time").wait_for()
    shown = page.locator("li.mine time").inner_text()
    assert shown == f"{datetime.fromtimestamp(said, japan):%H:%M}"
    assert "日本時間" in page.locator(".clock").inner_text()
    page.locator("#open-stickers").click()
    assert page.locator("#stickers svg.sticker").count() >= 12
    emoji = re.compile("[\u2600-\u27bf\U0001f000-\U0001faff]")
    for file in resources.files("linesim").joinpath("assets").iterdir():
        assert not emoji.search(file.read_text("utf-8")), file.name


def why(page):
    return page.locator("li", has=page.locator(".text")).locator(".why")


def test_a_strip_tells_why_no_answer_came(page, sim, bot, line):
    welcome = bot.handle

    def handle(event):
        match event.get("message", {}).get("text"):
            case "空":
                line.reply(event["replyToken"], "")
            case "黙って":
                return
            case _:
                welcome(event)

    bot.handle = handle
    write(page, "空")
    why(page).get_by_text("LINEなら400を返します").wait_for()
    assert "messages[0].text: May not be empty" in why(page).inner_text()
    write(page, "やあ")
    answered(page, "はい、やあ、ですね。")
    write(page, "黙って")
    page.locator(".why.quiet", has_text="ボットはまだ何も送っていません").wait_for()
    line.push(the_user(sim).user_id, "遅くなりました")
    answered(page, "遅くなりました")
    assert page.locator(".why").count() == 0


@pytest.mark.long
@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 320)])
def test_it_fits_a_narrow_phone(open_page, sim, tmp_path, scheme, width):
    user = sim.add_user("とても長い名前の利用者" * 3)
    sim.say(user, "長い文章です。" * 30 + "x" * 200)
    sim.say(user, "x" * 300, chat=sim.add_group("長い名前の" * 10, [user]))
    size = {"width": width, "height": 640}
    page = open_page(viewport=size, is_mobile=True, has_touch=True, color_scheme=scheme)
    outside = f"""() => [...document.querySelectorAll("body *")].filter(
        each => each.checkVisibility() && each.getBoundingClientRect().right > {width}
    ).map(each => each.outerHTML)"""
    assert page.evaluate(outside) == []
    for chat in ("とても長い", "長い名前の長い"):
        page.locator("#chats button", has_text=chat).first.click()
        page.locator("li.bot .text").last.wait_for()
        for opened in ("#open-tools", "#open-stickers", "#actions"):
            page.locator(opened).click()
            assert page.evaluate(outside) == []
            page.keyboard.press("Escape")
        assert page.locator("#chats").is_hidden()
        assert page.locator("#send").bounding_box()["x"] < width - 20
        page.screenshot(path=tmp_path / f"phone-{scheme}.png")
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
