"""docs/reference/bot-api.md has each public name of `linedesk` and `linedesk.testing`, no other.

Methods are on the page with all their parameters and defaults.
"""

import inspect
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import linedesk
import linedesk.testing
from jobworker.bot.talk import TalkContext
from jobworker.record.conversations import StoredConversation
from linedesk import Bot, Talk
from linedesk.store.documents import make_document
from linedesk.testing import BotTest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "bot-api.md").read_text("utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", PAGE))
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
# For linedesk itself, which reads the rules of a bot and the decision of a talk.
INTERNAL = {
    Bot: {
        *("gathers", "has_states", "is_async", "has_timer", "on_failed", "rule_in", "rules"),
        *("rules_for", "starts", "timers"),
        *("sends_by_itself", "timeouts", "per_member", "settings", "check_settings", "secrets"),
    },
    Talk: {
        *("about", "decision", "forgot", "gathered", "know_friend", "know_profile", "leave_state"),
        *("document_name", "is_async", "may_be_late", "raws", "read", "timed_by"),
    },
    BotTest: {"bot", "secrets", "settings"},
}


def a_talk() -> Talk:
    event = {"type": "follow", "source": {"type": "user", "userId": "U1"}, "webhookEventId": "1"}
    document = make_document(event, channel="main", accept_time=datetime.now(UTC))
    return Talk(
        document,
        TalkContext(lambda: StoredConversation("main/U1"), api=lambda: None, content=lambda: None),
    )


MADE = {Bot: Bot(), Talk: a_talk(), BotTest: BotTest(Bot())}


def public(kind: type) -> set[str]:
    """The names of a class that bots and their tests may use."""
    names = {*dir(kind), *vars(MADE[kind])}
    return {name for name in names if not name.startswith("_")} - INTERNAL[kind]


def signature(function: Callable[..., Any]) -> str:
    """Names and defaults of the parameters, without types."""
    found = inspect.signature(function)
    plain = [
        one.replace(annotation=one.empty) for one in found.parameters.values() if one.name != "self"
    ]
    if plain and plain[-1].name == "send_check":
        plain = [one.replace(default=START) if one.name == "start" else one for one in plain]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


class _Start:
    """The default of BotTest's `start` has a name in the kit."""

    def __repr__(self) -> str:
        return "START"


START = _Start()


@pytest.mark.parametrize("package", [linedesk, linedesk.testing], ids=["linedesk", "testing"])
def test_each_name_of_the_package_is_on_the_page(package: Any) -> None:
    assert {name for name in package.__all__ if f"`{name}" not in PAGE} == set()


def test_each_class_or_error_that_begins_an_entry_is_a_name_of_the_package() -> None:
    rows = set(re.findall(r"^- `([A-Z]\w+)`", PAGE, re.MULTILINE))
    assert rows <= {*linedesk.__all__, *linedesk.testing.__all__}


@pytest.mark.parametrize(("kind", "before"), [(Bot, "bot."), (Talk, "talk."), (BotTest, "")])
def test_each_method_is_on_the_page_with_all_its_parameters(kind: type, before: str) -> None:
    methods = {
        f"{before}{name}{signature(getattr(kind, name))}"
        for name in public(kind)
        if inspect.isfunction(inspect.getattr_static(kind, name, None))
    }
    assert methods - CODE == set()


@pytest.mark.parametrize("kind", [Bot, BotTest, linedesk.ApiClient])
def test_each_constructor_is_on_the_page_with_all_its_parameters(kind: type) -> None:
    assert f"{kind.__name__}{signature(kind)}" in CODE


def test_the_japanese_page_has_the_same_code() -> None:
    page = (DOCS / "ja" / "reference" / "bot-api.md").read_text("utf-8")
    assert set(re.findall(r"`([^`\n]+)`", page)) == CODE
    block = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
    assert block.findall(page) == block.findall(PAGE)


@pytest.mark.parametrize(("kind", "before"), [(Bot, "bot"), (Talk, "talk")])
def test_the_page_has_each_name_of_bot_and_talk_and_no_other(kind: type, before: str) -> None:
    assert set(re.findall(rf"(?<![\w-]){before}\.([a-z]\w*)", PROSE)) == public(kind)
