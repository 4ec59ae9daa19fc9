"""Each step of docs/tutorial is run as the page tells it.

Pages 1 to 3 run here in full. Of page 4 this file checks that
tests/booted/tutorial.py, which runs the page on a booted Debian, has a step for each command.
"""

from pathlib import Path

import pytest

from tests.booted.tutorial import STEPS
from tests.conftest import need_mongod
from tests.docs.walkthrough import Learner, Walk, blocks, lines_of, put, undated
from tests.waiting import eventually

PAGES = ("1-first-bot", "2-conversation-and-timers", "3-tests", "4-production")


def page(name: str, *, folder: str = "docs/tutorial") -> str:
    return f"{folder}/{name}.md"


@pytest.fixture(autouse=True, scope="module")
def has_mongod() -> None:
    need_mongod()


# Pages 1 and 2 take half a minute, and longer on a busy machine.
@pytest.mark.long
@pytest.mark.timeout(300)
def test_pages_1_and_2_end_with_a_bot_that_reminds(tmp_path: Path) -> None:
    with Learner.in_folder(tmp_path) as learner:
        first_bot(learner, Walk(page("1-first-bot")))


def first_bot(learner: Learner, walk: Walk) -> None:
    demo = learner.types(walk.next("console", "cd ~/linedesk"))
    assert all(line in demo for line in lines_of(walk.next("text")))
    learner.types(walk.next("console", "mkdir ~/salon"))
    learner.puts(walk.next("python"), "salon")
    learner.puts(walk.next("toml"), "salon")
    learner.in_each_terminal(walk.next("console", "cd ~/salon"))
    learner.starts(walk.next("console", "linedesk sim")).wait_for("serving")
    up = learner.starts(walk.next("console", "linedesk up"))
    up.wait_for("dispatcher ready", *learner.here(walk.next("text").text).splitlines())
    chat = learner.chat()
    chat.play(walk.next("text"))
    status = walk.next("console", "linedesk status")
    # In its first second a process has not reported yet.
    eventually(lambda: is_ok(learner.types(status, codes=(0, 1))), seconds=30)
    learner.puts(walk.next("python"), "salon")
    eventually(lambda: up.output.count("INFO dispatcher ready") == 2, seconds=60)
    chat.play(walk.next("text"))
    walk.end()

    walk = Walk(page("2-conversation-and-timers"))
    learner.puts(walk.next("python"), "salon")
    eventually(lambda: up.output.count("INFO dispatcher ready") == 3, seconds=60)
    chat.play(walk.next("text"))
    up.ctrl_c()
    up = learner.starts(walk.next("console", "linedesk up"))
    up.wait_for("dispatcher ready", "Webhook:")
    chat.play(walk.next("text"))
    shown = undated(learner.types(walk.next("console", "linedesk conversation show 花子")))
    assert all(line in shown for line in lines_of(walk.next("text"))), shown
    chat.play(walk.next("text"))
    chat.play(walk.next("text"))
    walk.end()


def is_ok(status: str) -> bool:
    return status.splitlines()[0].endswith("OK")


@pytest.mark.long
def test_page_3_tests_the_bot_of_page_2(tmp_path: Path) -> None:
    learner, folder = Learner.in_folder(tmp_path), tmp_path / "salon"
    folder.mkdir()
    (salon,) = (one for one in blocks(page("2-conversation-and-timers")) if one.kind == "python")
    put(salon, folder)
    (toml,) = (one for one in blocks(page("1-first-bot")) if one.kind == "toml")
    learner.puts(toml, "salon")
    (setup,) = (
        one for one in blocks(page("1-first-bot")) if one.text.startswith("cd ~/salon\nsource")
    )
    learner.in_each_terminal(setup)
    walk = Walk(page("3-tests"))
    learner.puts(walk.next("python", "# test_salon.py"), "salon")
    runs(learner, walk)
    learner.puts(walk.next("python", "# test_closed_days.py"), "salon")
    runs(learner, walk, code=1)
    learner.puts(walk.next("python", "# salon.py, in place of"), "salon")
    learner.puts(walk.next("python", "# salon.py, before"), "salon")
    runs(learner, walk)
    walk.end()


def runs(learner: Learner, walk: Walk, *, code: int = 0) -> None:
    """Run pytest as the next block does, and compare its last line with what the page shows."""
    output = learner.types(walk.next("console", "pytest"), codes=(code,))
    assert walk.next("text").text.strip() in output.splitlines()[-1], output


def test_each_command_of_page_4_is_run_on_the_booted_machine() -> None:
    """tests/booted/tutorial.py takes the blocks of the page in order, with none left out."""
    shells = [one for one in blocks(page("4-production")) if one.kind == "console"]
    assert len(shells) == len(STEPS)
    for block, step in zip(shells, STEPS, strict=True):
        assert block.text.startswith(step.beginning), block.text


@pytest.mark.parametrize("name", PAGES)
def test_both_languages_show_the_same_blocks(name: str) -> None:
    assert blocks(page(name)) == blocks(page(name, folder="docs/ja/tutorial"))
