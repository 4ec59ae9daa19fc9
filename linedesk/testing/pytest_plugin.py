"""pytest's fixtures for bot authors: `bot_test`, in memory or, with `--real-stack`, against the
real processes.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from linedesk.testing.people import People
    from linedesk.testing.real_stack import RealStack

# Imports happen only in tests that use them: every run of pytest loads this module.

PACKAGES = ("frontdesk", "dispatcher", "jobworker")


def _import_ours() -> None:
    """Import our packages before pytest prepends the test folders to the import path.

    Otherwise a bot author's dispatcher.py would replace ours. linesim is omitted, since its import
    is slow.
    """
    sys.path.insert(0, str(Path(__file__).parents[2]))
    for name in PACKAGES:
        importlib.import_module(name)
    del sys.path[0]


_import_ours()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("linedesk")
    group.addoption(
        "--bot",
        metavar="MODULE:NAME",
        help="the bot for the fixture bot_test, unless a fixture `bot` returns another",
    )
    group.addoption(
        "--real-stack",
        action="store_true",
        help="run bot_test against the real processes, with a simulated LINE",
    )


@pytest.fixture
def bot(request: pytest.FixtureRequest) -> Any:
    """The bot under test: a Bot, or its `module:name`. Tests may override this fixture."""
    named = request.config.getoption("--bot")
    if named is None:
        pytest.fail("bot_test needs a fixture `bot` that returns the Bot, or --bot=module:name")
    return named


@pytest.fixture
def bot_settings() -> Mapping[str, Any]:
    """The bot's own settings, as set by an operator; the defaults unless overridden."""
    return {}


@pytest.fixture
def bot_secrets() -> Mapping[str, str]:
    """The bot's declared secrets; a test with such a bot overrides this."""
    return {}


@pytest.fixture
def bot_test(
    request: pytest.FixtureRequest,
    bot: Any,
    bot_settings: Mapping[str, Any],
    bot_secrets: Mapping[str, str],
) -> Iterator[People]:
    """The bot in conversations of this test (see `linedesk.testing`)."""
    if request.config.getoption("--real-stack"):
        yield request.getfixturevalue("real_bot_test")
        return
    from linedesk.bots.load import load_bot
    from linedesk.testing.bot_test import BotTest

    made = load_bot(bot) if isinstance(bot, str) else bot
    yield BotTest(made, settings=bot_settings, secrets=bot_secrets)


@pytest.fixture
def real_bot_test(
    bot: Any,
    bot_settings: Mapping[str, Any],
    bot_secrets: Mapping[str, str],
    linedesk_stack: RealStack,
) -> Iterator[People]:
    """Like `bot_test` with `--real-stack`, regardless of the options."""
    from linedesk.testing.real_stack import RealBotTest

    test = RealBotTest(bot, settings=bot_settings, secrets=bot_secrets, stack=linedesk_stack)
    yield test
    test.close()


@pytest.fixture(scope="session")
def linedesk_stack(request: pytest.FixtureRequest) -> Iterator[RealStack]:
    """The real processes, started once for all tests.

    Without mongod tests are skipped, but fail with `--real-stack` or CI=true.
    """
    from linedesk.setup.private_mongod import MongodNotFound
    from linedesk.testing.real_stack import real_stack

    with ExitStack() as started:
        try:
            stack = started.enter_context(real_stack())
        except MongodNotFound as error:
            if request.config.getoption("--real-stack") or os.environ.get("CI") == "true":
                raise
            pytest.skip(str(error))
        yield stack
