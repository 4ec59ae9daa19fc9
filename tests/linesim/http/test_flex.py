"""The geometry of Flex Messages that LINE documents, measured on the page's elements."""

from typing import Any

import pytest

from tests.linesim.gallery.stage import Stage

Part = dict[str, Any]
Box = dict[str, float]

URL = "https://example.com/300x200.png"
LONG = "one two three four five six seven eight nine ten eleven"
FILLER = {"type": "filler"}
STEPS = {"none": 0, "xs": 2, "sm": 4, "md": 8, "lg": 12, "xl": 16, "xxl": 20, "7.5px": 7.5}
BUBBLES = {
    "nano": 120, "micro": 160, "deca": 220, "hecto": 241, "kilo": 260, "mega": 300, "giga": 500,
}  # fmt: skip
FONTS = {
    "xxs": 11, "xs": 13, "sm": 14, "md": 16, "lg": 19, "xl": 22, "xxl": 29, "3xl": 35, "4xl": 48,
    "5xl": 74, "23.5px": 23.5,
}  # fmt: skip
BODY = 260.0  # a mega bubble of 300 px less its padding
IMAGES = {
    "xxs": 40, "xs": 60, "sm": 80, "md": 100, "lg": 120, "xl": 140, "xxl": 160, "3xl": 180,
    "4xl": 200, "5xl": 220, "full": BODY, "50%": BODY / 2, "33px": 33,
}  # fmt: skip
LINE = 22.4  # the height of 16 px of text
HOW = "(one, name) => getComputedStyle(one)[name]"


def row(*contents: Part, **more: Any) -> Part:
    return {"type": "box", "layout": "horizontal", "contents": [*contents], **more}


def column(*contents: Part, **more: Any) -> Part:
    return row(*contents, layout="vertical", **more)


def text(said: str = "A", **more: Any) -> Part:
    return {"type": "text", "text": said, **more}


def image(**more: Any) -> Part:
    return {"type": "image", "url": URL, **more}


def button(**more: Any) -> Part:
    return {"type": "button", "action": says("OK"), **more}


def says(said: str) -> Part:
    return {"type": "message", "label": said, "text": said}


def bubble(body: Part, **more: Any) -> Part:
    return {"type": "bubble", "body": body, **more}


def places(shown: Any, boxes: str) -> list[list[Box]]:
    """For each of these boxes: its components' places, from where the box's content begins."""
    found: list[list[Box]] = shown.locator(boxes).evaluate_all(
        """boxes => boxes.map((box) => [...box.children].map((child) => {
          const corner = box.getBoundingClientRect(), style = getComputedStyle(box);
          const { x, y, width, height } = child.getBoundingClientRect();
          return { x: x - corner.x - parseFloat(style.paddingLeft),
                   y: y - corner.y - parseFloat(style.paddingTop), width, height };
        }))"""
    )
    return found


def parts(stage: Stage, body: Part, **more: Any) -> list[Box]:
    return places(stage.flex(bubble(body, **more)), ".fx-body > .fx-box")[0]


def of(name: str, boxes: list[Box]) -> list[Any]:
    return [pytest.approx(box[name], abs=0.1) for box in boxes]


def test_a_bubble_is_as_wide_as_its_size(stage: Stage) -> None:
    for size, width in BUBBLES.items():
        assert stage.flex(bubble(column(), size=size)).bounding_box()["width"] == width


def test_components_of_a_horizontal_box_share_its_width(stage: Stage) -> None:
    def widths(*contents: Part, **more: Any) -> list[float]:
        return of("width", parts(stage, row(*contents, **more)))

    assert widths(text(), button(), image()) == [BODY / 3] * 3
    assert widths(text(LONG, flex=2), text(flex=3)) == [BODY * 2 / 5, BODY * 3 / 5]
    assert widths(text("Hello", flex=0), text(LONG), text(LONG, flex=3)) == [40, 55, 165]
    assert widths(text(flex=0), text(), spacing="20px") == [8, BODY - 28]
    assert widths(column(width="60px", flex=5), text()) == [60, BODY - 60]
    assert widths(column(width="25%"), text()) == [BODY / 4, BODY * 3 / 4]
    assert widths(column(text("AB"), height="9px", flex=3), text()) == [16, BODY - 16]
    assert widths(column(width="200px", maxWidth="90px"), column(maxWidth="50px")) == [90, 50]
    assert widths(button(height="sm", flex=3), text()) == [BODY * 3 / 4, BODY / 4]
    assert widths(text(LONG, flex=0)) == [BODY]


def test_components_of_a_vertical_box_share_its_free_height(stage: Stage) -> None:
    free = 202.4 - 3 * LINE
    boxes = parts(stage, column(text(flex=2), text(flex=3), text(), height="241.4px"))
    assert of("height", boxes) == [LINE + free * 2 / 5, LINE + free * 3 / 5, LINE]
    assert of("width", boxes) == [BODY] * 3
    fixed = column(height="90px", maxHeight="30px"), column(text(), height="50px", width="50%")
    boxes = parts(stage, column(*fixed))
    assert of("height", boxes) == [30, 50]
    assert of("width", boxes) == [BODY, BODY / 2]


def test_spaces_have_their_pixels(stage: Stage) -> None:
    one = text(flex=0)
    rows = [row(one, one, one | {"margin": "3px"}, spacing=step) for step in STEPS]
    inner = [column(one, paddingAll=step) for step in STEPS]
    columns = [
        column(
            one | {"margin": step}, one, box, row(offsetTop=step, offsetStart=step), spacing=step
        )
        for step, box in zip(STEPS, inner, strict=True)
    ]
    shown = stage.flex(bubble(column(*rows, row(*columns))))
    across = places(shown, ".fx-body > .fx-box > .fx-horizontal:not(:last-child)")
    down = places(shown, ".fx-horizontal > .fx-vertical")
    for space, beside, below in zip(STEPS.values(), across, down, strict=True):
        assert of("x", beside) == [0, 8 + space, 16 + space + 3]
        last = 3 * LINE + 7 * space  # three spacings, the margin, two paddings and the offset
        assert of("y", below) == [space, 2 * space + LINE, 3 * space + 2 * LINE, last]
        assert of("x", below)[3] == space


def test_blocks_are_in_order_and_have_their_paddings(stage: Stage) -> None:
    blocks = {name: column(text(name)) for name in ("footer", "body", "header")}
    shown = stage.flex({"type": "bubble", "hero": image(size="full"), **blocks})
    assert shown.evaluate("one => [...one.children].map((block) => block.className)") == [
        f"fx-block fx-{name}" for name in ("header", "hero", "body", "footer")
    ]
    paddings = [one.evaluate(HOW, "padding") for one in shown.locator(".fx-box").all()]
    assert paddings == ["20px", "19px 20px 10px", "10px"]
    own = row(text(), paddingAll="80px", paddingTop="4px", paddingStart="10%")
    padding = stage.flex(bubble(own)).locator(".fx-box").evaluate(HOW, "padding")
    assert padding == "4px 80px 80px 30px"


def test_free_space_goes_as_justify_content_and_align_items_say(stage: Stage) -> None:
    boxes = [column(width=width, height="30px") for width in ("40px", "20px", "50px")]
    for how, starts in {
        "flex-start": [0, 40, 60],
        "center": [75, 115, 135],
        "flex-end": [150, 190, 210],
        "space-between": [0, 115, 210],
        "space-around": [25, 115, 185],
        "space-evenly": [37.5, 115, 172.5],
    }.items():
        assert of("x", parts(stage, row(*boxes, justifyContent=how))) == starts
    high, low = column(width="10px", height="100px"), column(width="10px", height="30px")
    for how, share in (("flex-start", 0), ("center", 0.5), ("flex-end", 1)):
        assert of("y", parts(stage, row(high, low, alignItems=how))) == [0, 70 * share]
        assert of("x", parts(stage, column(high, alignItems=how))) == [250 * share]


def test_texts_spans_and_icons_have_their_pixels(stage: Stage) -> None:
    def line(size: str) -> Part:
        icon = {"type": "icon", "url": URL, "size": size}
        span = {"type": "span", "text": "A", "size": size}
        plain = text(size=size, flex=0)
        contents = icon, icon | {"aspectRatio": "2:1"}, plain, plain | {"contents": [span]}
        return row(*contents, layout="baseline")

    shown = stage.flex(bubble(column(*map(line, FONTS))))
    for pixels, boxes in zip(FONTS.values(), places(shown, ".fx-baseline"), strict=True):
        assert of("width", boxes) == [pixels, pixels * 2, pixels / 2, pixels / 2]
        # The icon's bottom is on the base line, 0.2 and 0.8 of the font's size below the top.
        assert boxes[0]["y"] + boxes[0]["height"] == pytest.approx(boxes[2]["y"] + pixels, abs=1.1)


def test_images_have_their_pixels_and_ratio(stage: Stage) -> None:
    images = [image(size=size, aspectRatio="20:13") for size in IMAGES]
    areas = places(stage.flex(bubble(column(*images))), ".fx-image")
    for pixels, [area] in zip(IMAGES.values(), areas, strict=True):
        assert of("width", [area]) == [pixels]
        assert of("height", [area]) == [pixels * 13 / 20]
        assert of("x", [area]) == [(BODY - pixels) / 2]


def test_an_image_is_no_wider_than_its_component_and_takes_its_mode(stage: Stage) -> None:
    moving = image(flex=0, size="xs", animated=True)
    shown = stage.flex(bubble(row(image(size="5xl"), image(aspectMode="cover"), moving)))
    boxes = [one.bounding_box() for one in shown.locator(".fx-picture").all()]
    assert of("width", boxes) == of("height", boxes) == [100, 100, 60]
    drawn = shown.locator(".fx-picture > *").all()
    assert [one.evaluate(HOW, "objectFit") for one in drawn] == ["contain", "cover", "contain"]
    # What is not said to be animated shows its first frame only.
    assert [one.evaluate("one => one.tagName") for one in drawn] == ["CANVAS", "CANVAS", "IMG"]
    broken = image(size="full", aspectRatio="2:1") | {"url": "https://example.com/none"}
    missing = stage.flex(bubble(column(broken))).locator(".fx-missing")
    assert [missing.bounding_box()[name] for name in ("width", "height")] == [260, 130]
    assert missing.locator("img").is_hidden()


def test_a_text_wraps_only_if_it_may(stage: Stage) -> None:
    wrapped = [
        *(text(LONG, wrap=True), text("1\n2\n3", wrap=True), text("x" * 40, wrap=True)),
        *(text(LONG * 3, wrap=True, maxLines=2), text("1\n2\n3", wrap=True, lineSpacing="20px")),
    ]
    boxes = parts(stage, column(text(LONG), text("1\n2"), *wrapped))
    lines = [*(LINE * n for n in (1, 1, 2, 3, 2, 2)), LINE * 3 + 40]
    assert of("height", boxes) == lines


def test_align_and_gravity(stage: Stage) -> None:
    tall = column(height="100px", width="20px")
    for gravity, align, share in (
        ("top", "start", 0),
        ("center", "center", 0.5),
        ("bottom", "end", 1),
    ):
        look = {"gravity": gravity, "align": align}
        small = button(gravity=gravity, height="sm")
        shown = stage.flex(bubble(row(tall, image(size="40px", **look), text("AB", **look), small)))
        edge, area, line, pressed = (
            shown.locator(one).bounding_box()
            for one in (".fx-image", ".fx-picture", "p >> nth=0", "button")
        )
        assert area["x"] - edge["x"] == pytest.approx(40 * share, abs=0.1)
        assert area["y"] - edge["y"] == pytest.approx(60 * share, abs=0.1)
        assert line["y"] - edge["y"] == pytest.approx((100 - LINE) * share, abs=0.1)
        assert pressed["y"] - edge["y"] == pytest.approx(60 * share, abs=0.1)
        assert shown.locator("p").first.evaluate(HOW, "textAlign") == align


def test_an_absolute_component_takes_no_place(stage: Stage) -> None:
    where = {"position": "absolute", "offsetTop": "10px", "offsetEnd": "20px", "margin": "9px"}
    boxes = parts(stage, column(text(), row(text("AB"), **where), text(), spacing="md"))
    assert of("y", boxes) == [0, 10 - 19, LINE + 8]
    assert (boxes[1]["width"], boxes[1]["x"]) == pytest.approx((16, 300 - 20 - 16 - 20), abs=0.1)


def test_the_direction_turns_what_is_horizontal(stage: Stage) -> None:
    contents = text(flex=0), text(flex=0, margin="10px"), row(offsetStart="5px", width="20px")
    boxes = parts(stage, row(*contents, paddingStart="40px"), direction="rtl")
    assert of("x", boxes) == [232, 214, 189]


def test_separators_and_fillers(stage: Stage) -> None:
    one, line = text(flex=0), {"type": "separator", "margin": "lg"}
    assert of("x", parts(stage, row(one, FILLER, one, spacing="md"))) == [0, 8, BODY - 8]
    assert of("y", parts(stage, column(one, line, one))) == [0, LINE + 12, LINE + 12]
    assert of("x", parts(stage, row(one, line, one))) == [0, 20, 20]


def test_a_shrunk_text_fits_and_a_scaled_one_follows_the_browsers_font(stage: Stage) -> None:
    shrunk, scaled = text(LONG, adjustMode="shrink-to-fit"), text(scaling=True, size="xl")
    shown = stage.flex(bubble(column(shrunk, text(LONG), scaled)))
    lines = shown.locator("p").all()
    stage.page.wait_for_function("() => document.querySelector('.fx-line').style.length")
    assert [one.evaluate("p => p.scrollWidth <= p.clientWidth") for one in lines] == [1, 0, 1]
    page = stage.page.locator("html")
    page.evaluate("page => page.style.setProperty('font-size', '24px')")
    assert [one.evaluate(HOW, "fontSize") for one in lines[1:]] == ["16px", "33px"]
    page.evaluate("page => page.style.removeProperty('font-size')")


def test_bubbles_of_a_carousel_are_in_order_and_of_one_height(stage: Stage) -> None:
    footer = column(button())
    high = bubble(column(text("1\n2\n3\n4\n5", wrap=True)), footer=footer)
    bubbles = [high, bubble(column(text()), footer=footer), {"type": "bubble", "footer": footer}]
    shown = stage.flex({"type": "carousel", "contents": bubbles})
    boxes = [one.bounding_box() for one in shown.locator(".fx-bubble").all()]
    assert of("height", boxes) == [19 + 5 * LINE + 10 + 72] * 2 + [72]
    assert [box["x"] - boxes[0]["x"] for box in boxes] == [0, 309, 618]
    ends = [one.bounding_box()["y"] for one in shown.locator(".fx-footer").all()]
    assert ends[0] == ends[1]
    assert shown.evaluate("one => one.scrollWidth > one.clientWidth")


def test_the_action_of_the_innermost_part_is_done(stage: Stage) -> None:
    inner = row(text("inner"), action=says("箱"))
    body = column(text("outer"), inner, image(action=says("絵")))
    shown = stage.flex(bubble(body, action=says("全体")))
    said = stage.page.locator("li.mine .text")
    shown.get_by_text("outer").click()
    said.get_by_text("全体").wait_for()
    shown.get_by_text("inner").click()
    said.get_by_text("箱").wait_for()
    shown.locator(".fx-image").press("Enter")
    said.get_by_text("絵").wait_for()
    assert said.all_inner_texts() == ["全体", "箱", "絵"]


def test_a_video_is_played_and_then_offers_its_action(stage: Stage) -> None:
    action = {"type": "uri", "label": "詳しく", "uri": "https://example.com/"}
    video = {"type": "video", "url": "https://example.com/v.mp4", "previewUrl": URL}
    more = {"altContent": image(), "aspectRatio": "16:9", "action": action}
    shown = stage.flex({"type": "bubble", "hero": video | more})
    play, link = (shown.get_by_role("button", name=name) for name in ("再生", "詳しく"))
    assert (shown.bounding_box()["height"], link.count()) == (168.75, 0)
    play.click()
    shown.locator("video").dispatch_event("ended")
    link.wait_for()
    play.click()
    shown.locator("video").dispatch_event("error")
    shown.locator(".fx-image").wait_for()


def test_hostile_values_are_not_set_and_texts_are_no_html(stage: Stage) -> None:
    """linemessages refuses such values; the page would not set them either."""
    for bad in ("red", "red;background:url(https://example.com/x)"):
        looks = dict.fromkeys(("color", "size", "margin", "flex", "width", "aspectRatio"), bad)
        gradient = {"type": "linearGradient", "angle": bad, "startColor": bad, "endColor": bad}
        foreign = image() | looks | {"url": "javascript:red"}
        contents = [text("<b>") | looks, foreign, {"type": "toString"}]
        body = row(*contents) | looks | {"background": gradient, "layout": bad}
        made = stage.page.evaluate(
            """async (bubble) => (await import("/page/flex.js")).drawFlex(bubble, {}).outerHTML""",
            bubble(body, size=bad, direction=bad),
        )
        assert "red" not in made
        assert "&lt;b&gt;" in made


def test_a_bubble_stays_white_in_the_dark(stage: Stage) -> None:
    stage.page.emulate_media(color_scheme="dark")
    shown = stage.flex(bubble(column()))
    colours = [shown.evaluate(HOW, name) for name in ("backgroundColor", "color")]
    stage.page.emulate_media(color_scheme="light")
    assert colours == ["rgb(255, 255, 255)", "rgb(17, 17, 17)"]
