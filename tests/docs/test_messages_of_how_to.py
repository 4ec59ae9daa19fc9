"""The messages that the how-to pages explain are those of the code, in both languages of the pages.

Each has its fixed words here; the pages show values in their place as `…` or as an example.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("docs/how-to", "docs/ja/how-to")
PACKAGES = ("dispatcher", "jobworker", "linedesk")

WORDS = {
    # Results of `linedesk trace`, and why a send waits.
    "no-answer.md": (
        "given up: ",
        "decided, but ",
        "one of its sends or timers was",
        ", and replayed since as ",
        "waits: no dispatcher runs that holds the lease",
        " is paused",
        " others of its conversation",
        "stored; a dispatcher reads it next, or handles it now",
        "in progress",
        "in the outbox",
        "; LINE's last answer was ",
        "decided; a button is shown, and the answer waits for a tap on it",
        " after it came",
        ": LINE took ",
        "handled together with ",
        "; its story has the sends",
        "handled; no message was sent",
        "passed over: its message was taken back, or its timer was set anew",
        "decided; nothing is carried out, since the channel was in standby",
        "its result is not known: the rows about it are overwritten",
        "waits for its turn at the gate",
        "answers with valid reply tokens",
        " for the month's limit, and LINE's count of this month has to be read",
        "LINE fails, and linedesk tries a single call now and then",
        "LINE refuses the access token",
        "travels in one multicast to ",
        "is on its way to LINE",
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
        "no dead letters match",
        " dead letters match: say --yes",
        "dead letters go in a week",
    ),
    "pause-and-release.md": (
        "no dispatcher has confirmed yet",
        "new events are held until you resume",
        " is not stuck",
        "; nothing was released",
        "nothing of it waits",
        "no dispatcher runs, so it is not known what waits",
    ),
    "month-quota.md": (
        "the month's messages are used up: replies only, until a reading shows room",
        "the month has room again",
    ),
    "capacity.md": ("of the gate's turns are used, ", "the gate lets at most "),
    "console.md": (
        "Paused while you select text",
        "State unknown",
        "no connection",
        "pause everything",
        "Resume everything",
        "Queue retention left",
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
    text = (ROOT / folder / page).read_text("utf-8")
    assert [one for one in WORDS[page] if one.strip() not in text] == []
