"""The messages that the how-to pages explain are those of the code, in both languages of the pages.

Each has its fixed words here; the pages show values in their place as `…` or as an example.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
JAPANESE = "docs/ja/how-to"
FOLDERS = ("docs/how-to", JAPANESE)
PACKAGES = ("dispatcher", "jobworker", "linedesk")

WORDS = {
    # Results of `linedesk trace`, and why a send waits.
    "no-answer.md": (
        " (one of its sends or timers)",
        "no running dispatcher holds the lease",
        " is paused",
        " others of its conversation",
        "in the outbox",
        "a button is shown, and the answer waits for a tap on it",
        "LINE took one send",
        "handled together with ",
        "no message was sent",
        "the rows about it are overwritten",
        "waits for its turn at the gate",
        " for the month's limit, and LINE's count of this month has to be read",
        "LINE fails, and linedesk tries a single call now and then",
        "LINE refuses the access token",
    ),
    # Causes.
    "dead-letters.md": (
        "handler: ",
        ", after it had called LINE itself: another try would send twice",
        "took its worker down",
        "poison: took the process down",
        "LINE refused it with ",
        "released by an operator",
        "not fetched",
        "outcome unknown for 23 hours",
        "no verdict of LINE's in ",
        "not sent within 3 days",
        "MongoDB refuses the write",
        "restored: ",
        "dead letters expire in a week",
    ),
    "pause-and-release.md": (
        "no dispatcher has confirmed yet",
        "new events are held until you resume",
        " is not stuck",
        "; nothing was released",
    ),
    "month-quota.md": (
        "the month's messages are used up: replies only, until a reading shows room",
        "the month has room again",
    ),
    "capacity.md": ("of the gate's turns are used, ", "the gate lets at most "),
    "console.md": (
        "State unknown",
        "no connection",
        "pause everything",
        "Resume everything…",
        "Queue retention left",
    ),
}

# The same in Japanese, with the texts of the console.
IN_JAPANESE = {
    "no-answer.md": (
        "送信またはタイマー",
        "一時停止中",
        "件の後で待機中: ",
        "リースを持つ動作中のディスパッチャーなし",
        "件の送信が送信待ち(outbox)にあります",
        "ボタンを表示中で、応答はタップを待っています",
        "件の送信を受理",
        "とまとめて処理しました",
        "メッセージは送信していません",
        "関連する記録は上書きされました",
        "ゲートで順番待ち(",
        "LINEがアクセストークンを拒否しています",
    ),
    "console.md": (
        "重大",
        "警告",
        "正常",
        "解放",
        "キューの残り保持時間",
        "監査記録",
        "すべて一時停止",
        "すべて再開…",
        "状態不明",
        "接続なし",
    ),
}


@cache
def source() -> str:
    """The code, with texts that continue on the next line in one piece."""
    files = (
        path
        for package in PACKAGES
        for suffix in ("py", "html", "js")
        for path in (ROOT / package).rglob(f"*.{suffix}")
    )
    code = "".join(path.read_text("utf-8") for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", code)


@pytest.mark.parametrize("page", WORDS)
def test_each_message_on_the_page_is_one_of_the_code(page: str) -> None:
    assert [one for one in WORDS[page] if one not in source()] == []


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("page", WORDS)
def test_each_message_is_on_the_page(page: str, folder: str) -> None:
    if (folder, page) == (JAPANESE, "console.md"):
        return  # That page shows the Japanese texts.
    text = (ROOT / folder / page).read_text("utf-8")
    assert [one for one in WORDS[page] if one.strip() not in text] == []


@pytest.mark.parametrize("page", IN_JAPANESE)
def test_each_japanese_message_is_one_of_the_catalogue_and_on_the_page(page: str) -> None:
    source = (ROOT / "linedesk/locale/ja/LC_MESSAGES/linedesk.po").read_text("utf-8")
    catalogue = source.replace('"\n"', "")
    assert [one for one in IN_JAPANESE[page] if one not in catalogue] == []
    text = (ROOT / JAPANESE / page).read_text("utf-8")
    assert [one for one in IN_JAPANESE[page] if one not in text] == []
