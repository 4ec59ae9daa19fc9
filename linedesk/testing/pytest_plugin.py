"""pytest's fixture for bot authors: `bot_test`, with the fixtures that a test overrides for it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from linedesk.testing.bot_test import BotTest

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


@pytest.fixture
def bot() -> Any:
    """The bot under test. Tests override this fixture."""
    pytest.fail("bot_test needs a fixture `bot` that returns the Bot")


@pytest.fixture
def bot_settings() -> Mapping[str, Any]:
    """The bot's own settings, as set by an operator; the defaults unless overridden."""
    return {}


@pytest.fixture
def bot_secrets() -> Mapping[str, str]:
    """The bot's declared secrets; a test with such a bot overrides this."""
    return {}


@pytest.fixture
def bot_test(bot: Any, bot_settings: Mapping[str, Any], bot_secrets: Mapping[str, str]) -> BotTest:
    """The bot in conversations of this test (see `linedesk.testing`)."""
    from linedesk.testing.bot_test import BotTest

    return BotTest(bot, settings=bot_settings, secrets=bot_secrets)
