"""A real browser, and a console on a database that has rows of everything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pymongo.database import Database

from tests.linedesk.console import a_day
from tests.linedesk.console.serving import served

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
Open = Callable[..., Any]


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
    if path is None:
        if os.environ.get("CI"):
            pytest.fail("no chromium on this machine (apt install chromium)")
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def full(database: Database[dict[str, Any]]) -> Database[dict[str, Any]]:
    a_day.fill(database)
    return database


@pytest.fixture
def url(full: Database[dict[str, Any]]) -> Iterator[str]:
    with served(full) as url:
        yield url


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Open]:
    """Opens a page; whatever it reports as an error fails the test."""
    contexts, errors = [], []

    def open_page(path: str = "/", **more: Any) -> Any:
        size = {"width": 1240, "height": 900}
        context = browser.new_context(
            **{"viewport": size, "locale": "ja-JP", "base_url": url} | more
        )
        context.set_default_timeout(10_000)
        context.add_cookies([{"name": "linedesk_name", "value": "hanako", "url": url}])
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda said: said.type == "error" and errors.append(said.text))
        page.goto(path)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []
