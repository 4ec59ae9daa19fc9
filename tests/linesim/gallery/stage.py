"""Messages of a bot, sent through the simulator and drawn on its page in Chromium.

So that pictures are equal on all machines, all texts are set in a font whose glyphs are boxes, half
an em wide, or one em for Japanese; the bold ones are higher. The URLs of images say their sizes.
"""

import base64
import re
from pathlib import Path
from typing import Any

import requests

import linesim
from linesim.model.media import sample

HERE = Path(__file__).parent
SIZE = re.compile(r"/(\d+)(?:x(\d+)\.png)?$")
PLANT = """
for (const [weight, data] of Object.entries(%s)) {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  document.fonts.add(new FontFace("Boxes", bytes, { weight }));
}
const sheet = new CSSStyleSheet();
sheet.replaceSync("* { font-family: Boxes !important; transition: none !important }");
document.adoptedStyleSheets = [sheet];
"""
# Both pictures as pixels: the share of those that differ by more than antialiasing does.
COMPARE = """
async (pictures) => {
  const [one, other] = await Promise.all(pictures.map(async (data) => {
    const file = await fetch(`data:image/png;base64,${data}`);
    const picture = await createImageBitmap(await file.blob());
    const canvas = new OffscreenCanvas(picture.width, picture.height);
    const context = canvas.getContext("2d");
    context.drawImage(picture, 0, 0);
    return context.getImageData(0, 0, picture.width, picture.height);
  }));
  if (one.width !== other.width || one.height !== other.height) return 1;
  let different = 0;
  for (let at = 0; at < one.data.length; at += 4) {
    const apart = [0, 1, 2, 3].map((part) => Math.abs(one.data[at + part] - other.data[at + part]));
    if (Math.max(...apart) > 40) different += 1;
  }
  return (different * 4) / one.data.length;
}
"""


class Stage:
    """One page; `draw` puts a message there."""

    def __init__(self, browser: Any, sim: linesim.Sim) -> None:
        self.user = sim.add_user("太郎")
        self._sim = sim
        self._context = browser.new_context(
            viewport={"width": 1100, "height": 1400}, locale="ja-JP"
        )
        self._context.set_default_timeout(10_000)
        self._blank = self._context.new_page()
        self.page = self._context.new_page()
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda said: said.type == "error" and self._note(said))
        fonts = {"400": "boxes.ttf", "700": "boxes-bold.ttf"}
        data = {
            weight: base64.b64encode((HERE / name).read_bytes()).decode()
            for weight, name in fonts.items()
        }
        self.page.add_init_script(PLANT % data)
        self.page.route(re.compile("^https:"), _serve)
        self.page.goto(f"{sim.url}/#{self.user.user_id}")
        self.page.locator("#title", has_text="太郎").wait_for()

    def _note(self, said: Any) -> None:
        if "404" not in said.text:  # an image that is meant to be missing
            self.errors.append(said.text)

    def draw(self, message: dict[str, Any]) -> Any:
        """The element that shows this message, alone in the chat, with all its images."""
        self.page.locator("#bubbles").evaluate("list => list.replaceChildren()")
        sent = requests.post(
            f"{self._sim.url}/v2/bot/message/push",
            json={"to": self.user.user_id, "messages": [message]},
            headers={"authorization": f"Bearer {self._sim.token}"},
            timeout=10,
        )
        assert sent.status_code == 200, sent.text
        element = self.page.locator("#bubbles li.bot .line > :not(.aside)")
        element.wait_for()
        self.page.wait_for_function(
            "() => [...document.images].every((image) => image.complete) && document.fonts.ready"
        )
        return element

    def flex(self, contents: dict[str, Any]) -> Any:
        return self.draw({"type": "flex", "altText": "？", "contents": contents})

    def differing(self, *pictures: bytes) -> float:
        """The share of two PNGs' pixels that differ; 1 if their sizes do."""
        share: float = self._blank.evaluate(
            COMPARE, [base64.b64encode(picture).decode() for picture in pictures]
        )
        return share

    def close(self) -> None:
        self._context.close()


def _serve(route: Any) -> None:
    """A picture with a circle and four corners of different colours; else LINE's stock answer."""
    if route.request.url.endswith(".mp4"):
        route.fulfill(body=sample("video").data, content_type="video/mp4")
    elif size := SIZE.search(route.request.url):
        route.fulfill(body=_svg(*map(int, size.groups(size[1]))), content_type="image/svg+xml")
    else:
        route.fulfill(status=404)


def _svg(width: int, height: int) -> str:
    x, y = width / 2, height / 2
    corners = zip(
        ("#f4a261", "#2a9d8f", "#e9c46a", "#457b9d"), (0, x, 0, x), (0, 0, y, y), strict=True
    )
    boxes = "".join(
        f'<rect x="{left}" y="{top}" width="{x}" height="{y}" fill="{colour}"/>'
        for colour, left, top in corners
    )
    circle = f'<circle cx="{x}" cy="{y}" r="{min(x, y) * 0.6}" fill="#fff"/>'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}">'
    return f"{head}{boxes}{circle}</svg>"
