"""Makes the screenshots of docs/images, or of the folder named on the command line.

The chat page shows conversations through every real part. The console shows the rows
of a busy day (tests/linedesk/operate/a_day.py), in English and in Japanese.
architecture.svg is the console's picture with steps in place of figures.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import linesim  # noqa: E402
from linedesk.launch.stage import DATABASE, Stage  # noqa: E402
from linedesk.launch.supervisor import Signals, signals_on  # noqa: E402
from linedesk.page.flow_chart import OFF, PLACES, MapNode  # noqa: E402
from linedesk.page.page_context import environment  # noqa: E402
from linedesk.setup.collections import create_collections  # noqa: E402
from linedesk.setup.private_mongod import EmbeddedMongod  # noqa: E402
from linedesk.store.client import connect  # noqa: E402
from tests.conftest import CHROMIUM_ARGUMENTS  # noqa: E402
from tests.linedesk.operate import a_day  # noqa: E402
from tests.linedesk.operate.serving import served  # noqa: E402

CHAT = {"width": 1100, "height": 760}
DESK, PHONE = {"width": 1240, "height": 1180}, {"width": 390, "height": 1560}
CONSOLE = {
    "console-light": {"viewport": DESK, "locale": "en-US"},
    "console-dark": {"viewport": DESK, "locale": "en-US", "color_scheme": "dark"},
    "console-phone": {"viewport": PHONE, "locale": "en-US"},
    "console-ja": {"viewport": DESK, "locale": "ja-JP"},
}

# The boxes of architecture.svg, with the steps of architecture.md.
ARCHITECTURE = (
    ("line", "step 1"),
    ("frontdesk", "steps 1 to 3"),
    ("recvq", "steps 2 and 4"),
    ("dispatcher", "steps 4, 5, 8"),
    ("threads", "steps 6 and 7"),
    ("gate", "step 9"),
    ("api", "step 9"),
    ("spool", "step 3"),
    ("timers", "step 10"),
    ("held", "step 5"),
    ("letters", "steps 6 and 9"),
    ("outbox", "steps 7 to 9"),
)
STYLE = (
    "svg { background: #fff } "
    "text { font: 13px sans-serif; fill: #1c242b } .title { font-weight: 650 } "
    ".figure { fill: #5b6873; font-size: 11px } .sign { display: none } "
    "rect { fill: #fff; stroke: #2f5fa8; stroke-width: 1.2 } "
    ".track { fill: none; stroke: #5b6873; stroke-width: 2 } .head { fill: #5b6873 } "
    ".drops { display: none }"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser; ends the script where there is none."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        raise SystemExit("no chromium on this machine (Debian: apt install chromium)")
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield browser
        browser.close()


def chat(browser: Any, stage: Stage, says: tuple[str, ...]) -> Any:
    """The chat page after 佐藤花子 said these, each answered by the bot."""
    for name in ("佐藤花子", "田中太郎"):
        stage.sim.add_user(name)
    page = browser.new_page(viewport=CHAT, locale="ja-JP", timezone_id="Asia/Tokyo")
    page.goto(stage.sim.url)
    page.get_by_role("button", name="佐藤花子").click()
    for count, text in enumerate(says, 1):
        page.fill("#text", text)
        page.click("#send")
        page.locator("#bubbles .bot").nth(count - 1).wait_for()
    return page


@contextmanager
def stage_of(bot: str) -> Iterator[Stage]:
    """Every process of the demo with this bot."""
    signals = Signals()
    with (
        signals_on(signals),
        TemporaryDirectory(prefix="linedesk-screenshots-") as folder,
        linesim.running() as sim,
        Stage(Path(folder), sim, signals=signals) as stage,
    ):
        stage.start_mongod()
        stage.play(f"linedesk.bots.{bot}:bot")
        yield stage


def take_chats(browser: Any, target: Path) -> None:
    """chat.png and timer.png."""
    with stage_of("parrot") as stage:
        page = chat(browser, stage, ("おはよう", "今日もよろしくね"))
        page.screenshot(path=target / "chat.png")
        page.close()
    with stage_of("timer") as stage:
        page = chat(browser, stage, ("こんにちは", "180"))
        for _ in range(3):
            page.click("#clock-steps button[data-seconds='60']")
        page.locator("#chats small", has_text="180秒経ちました").wait_for()
        page.locator("#clock-moving").wait_for(state="hidden")
        page.screenshot(path=target / "timer.png")
        page.close()


def take_console(browser: Any, target: Path) -> None:
    """console-*.png: the overview."""
    with (
        TemporaryDirectory(prefix="linedesk-screenshots-") as folder,
        EmbeddedMongod(Path(folder)) as mongod,
        connect(mongod.uri, app_name="linedesk-screenshots") as client,
    ):
        create_collections(client[DATABASE])
        a_day.fill(client[DATABASE])
        with served(client[DATABASE]) as url:
            for name, options in CONSOLE.items():
                context = browser.new_context(timezone_id="Asia/Tokyo", **options)
                page = context.new_page()
                page.goto(url)
                page.locator("svg path").first.wait_for(state="attached")
                page.screenshot(path=target / f"{name}.png")
                context.close()


def draw_architecture(target: Path) -> None:
    """architecture.svg: each box with its steps in architecture.md."""
    boxes = {name: MapNode(PLACES[name], steps, OFF) for name, steps in ARCHITECTURE}
    picture: Any = environment().get_template("picture.html").make_module({"style": STYLE})
    (target / "architecture.svg").write_text(
        picture.picture(picture.wide, boxes, {}), encoding="utf-8"
    )


def main() -> None:
    """Take all screenshots."""
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "images"
    draw_architecture(target)
    with chromium() as browser:
        take_console(browser, target)
        take_chats(browser, target)
    print(f"{target.name}: {', '.join([*CONSOLE, 'chat', 'timer'])}")  # noqa: T201


if __name__ == "__main__":
    main()
