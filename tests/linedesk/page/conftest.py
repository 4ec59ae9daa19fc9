"""A console on a database that has rows of everything, in a real browser."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.linedesk.operate import a_day
from tests.linedesk.operate.serving import served
from tests.rows import Db

Open = Callable[..., Any]


@pytest.fixture
def full(database: Db) -> Db:
    a_day.fill(database)
    return database


@pytest.fixture
def url(full: Db) -> Iterator[str]:
    with served(full) as url:
        yield url


@pytest.fixture
def open_page(browser: Any, url: str) -> Iterator[Open]:
    """Opens a page; whatever it reports as an error fails the test."""
    contexts, errors = [], []

    def open_page(path: str = "/", **more: Any) -> Any:
        size = {"width": 1240, "height": 900}
        context = browser.new_context(
            **{"viewport": size, "locale": "en-US", "base_url": url}
            | {"http_credentials": {"username": "hanako", "password": ""}}
            | more
        )
        context.set_default_timeout(10_000)
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
