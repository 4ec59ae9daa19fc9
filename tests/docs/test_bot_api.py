"""docs/reference/bot-api.md has each public name of `linedesk` and `linedesk.testing`, no other.

Methods are on the page with all their parameters and defaults.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import linedesk
import linedesk.testing
from jobworker.bot.talk import TalkContext
from jobworker.record.conversations import StoredConversation
from linedesk import Bot, Content, MonthlyQuota, Talk, TimerEvent
from linedesk.store.documents import make_document
from linedesk.testing import Answers, BotTest, Sent, Waiting

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "bot-api.md").read_text("utf-8")
CODE = set(re.findall(r"`([^`\n]+)`", PAGE))
PROSE = re.sub(r"^```.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
# For linedesk itself, which reads the rules of a bot and the decision of a talk.
INTERNAL = {
    Bot: {
        *("gathers", "has_states", "has_timer", "rule_for", "rule_in", "rules", "timers"),
        *("sends_by_itself", "timeouts", "per_member", "settings", "check_settings", "secrets"),
    },
    Talk: {
        *("decision", "forgot", "gathered", "know_friend", "know_profile", "leave_state"),
        *("may_be_late", "raws", "timed_by"),
    },
    BotTest: {"bot", "secrets", "settings"},
    TimerEvent: {"from_raw"},
    Waiting: {"from_row"},
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
    names = {*dir(kind), *vars(MADE.get(kind, object)), *_fields(kind)}
    return {name for name in names if not name.startswith("_")} - INTERNAL.get(kind, set())


def _fields(kind: Any) -> set[str]:
    return {one.name for one in fields(kind)} if hasattr(kind, "__dataclass_fields__") else set()


def signature(function: Callable[..., Any]) -> str:
    """Names and defaults of the parameters, without types."""
    found = inspect.signature(function)
    plain = [
        one.replace(annotation=one.empty) for one in found.parameters.values() if one.name != "self"
    ]
    if plain and plain[-1].name == "slow_answers":
        plain = [one.replace(default=START) if one.name == "start" else one for one in plain]
    return str(found.replace(parameters=plain, return_annotation=found.empty))


class _Start:
    """The default of BotTest's `start` has a name in the kit."""

    def __repr__(self) -> str:
        return "START"


START = _Start()


def methods(kind: type) -> dict[str, str]:
    """The methods of a class with their parameters."""
    return {
        name: f"{name}{signature(getattr(kind, name))}"
        for name in public(kind)
        if inspect.isfunction(inspect.getattr_static(kind, name, None))
    }


@pytest.mark.parametrize("package", [linedesk, linedesk.testing], ids=["linedesk", "testing"])
def test_each_name_of_the_package_is_on_the_page(package: Any) -> None:
    assert {name for name in package.__all__ if f"`{name}" not in PAGE} == set()


def test_each_class_or_error_that_begins_an_entry_is_a_name_of_the_package() -> None:
    names = {*linedesk.__all__, *linedesk.testing.__all__}
    rows = set(re.findall(r"^- `([A-Z]\w+)`", PAGE, re.MULTILINE))
    assert len(rows) > 15
    assert rows <= names


@pytest.mark.parametrize(("kind", "before"), [(Bot, "bot."), (Talk, "talk."), (BotTest, "")])
def test_each_method_is_on_the_page_with_all_its_parameters(kind: type, before: str) -> None:
    missing = {f"{before}{method}" for method in methods(kind).values()} - CODE
    assert missing == set()


@pytest.mark.parametrize("kind", [Bot, BotTest, linedesk.ApiClient])
def test_each_constructor_is_on_the_page_with_all_its_parameters(kind: type) -> None:
    assert f"{kind.__name__}{signature(kind)}" in CODE


@pytest.mark.parametrize(("kind", "before"), [(Bot, "bot"), (Talk, "talk")])
def test_the_page_has_each_name_of_bot_and_talk_and_no_other(kind: type, before: str) -> None:
    named = set(re.findall(rf"(?<![\w-]){before}\.([a-z]\w*)", PROSE))
    assert named == public(kind)


def test_each_attribute_of_the_smaller_classes_is_on_the_page() -> None:
    for kind, before in ((TimerEvent, "event."), (Content, "content."), (MonthlyQuota, "")):
        named = {name for name in public(kind) if f"`{before}{name}`" in PAGE}
        assert named == public(kind), kind


@pytest.mark.parametrize("kind", [Answers, Sent, Waiting])
def test_each_attribute_of_what_a_test_reads_is_in_the_entry_of_its_class(kind: type) -> None:
    (row,) = re.findall(rf"^- `{kind.__name__}`: (.*)$", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) - {"reply", "push", "multicast"} == public(kind)


def test_each_attribute_of_the_kit_is_on_the_page() -> None:
    rest = public(BotTest) - methods(BotTest).keys()
    assert {name for name in rest if f"`{name}`" not in PAGE} == set()


def test_each_fixture_of_pytest_is_on_the_page() -> None:
    source = Path(linedesk.testing.__file__).with_name("pytest_plugin.py").read_text("utf-8")
    fixtures = set(re.findall(r"^@pytest\.fixture\ndef (\w+)", source, re.MULTILINE))
    assert fixtures == {"bot", "bot_settings", "bot_secrets", "bot_test"}
    assert {name for name in fixtures if f"`{name}`" not in PAGE} == set()


def test_the_packages_that_it_names_are_those_that_are_installed() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8")
    packages = re.search(r"^packages = \[(.*)\]$", project, re.MULTILINE)
    assert packages is not None
    (line,) = re.findall(r"^linedesk's own packages are (.*)\. Its", PAGE, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", line)) == set(re.findall(r'"(\w+)"', packages[1]))
