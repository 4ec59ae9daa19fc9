"""docs/reference/line-endpoints.md has each endpoint that linedesk calls, and only LINE's."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "line-endpoints.md").read_text("utf-8")
NAMED = set(re.findall(r"`((?:GET|POST) /v2/[^`]+)`", PAGE))
CALLED = re.compile(r'(?<!f)"(/v2/bot/[^"]*[\w}])"')
OF_OTHERS = {"gated_client.py"}
"""Modules whose paths are those that a bot of line-bot-sdk calls."""


def test_each_endpoint_is_one_of_lines() -> None:
    api = yaml.safe_load((ROOT / "tests" / "line-openapi" / "messaging-api.yml").read_text("utf-8"))
    known = {
        f"{method.upper()} {path}"
        for path, methods in api["paths"].items()
        for method in methods
        if method in ("get", "post")
    }
    assert len(NAMED) > 10
    assert known >= NAMED


def test_each_endpoint_in_the_code_is_on_the_page() -> None:
    sources = [
        path.read_text("utf-8")
        for package in ("jobworker", "linedesk")
        for path in (ROOT / package).rglob("*.py")
        if path.name not in OF_OTHERS
    ]
    called = {path for source in sources for path in CALLED.findall(source)}
    named = {re.sub(r"\{\w+\}", "{}", one.split(" ")[1]) for one in NAMED}
    assert len(called) > 10
    assert {re.sub(r"\{\w+\}", "{}", path) for path in called} <= named
