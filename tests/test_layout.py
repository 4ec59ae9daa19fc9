"""The house: which room may import which."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAY_IMPORT = {
    "recvq": set(),
    "frontdesk": {"recvq"},
    "scheduler": {"recvq"},
    "dispatcher": {"recvq", "linedesk.contract"},
    "jobworker": {"recvq", "linedesk.contract"},
    "bots": {"jobworker"},
    "linesim": set(),
    "console": {"recvq", "jobworker"},
    "linedesk": {
        *("recvq", "frontdesk", "scheduler", "dispatcher", "jobworker", "bots", "linesim"),
        "console",
    },
}


def imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


@pytest.mark.parametrize("room", MAY_IMPORT)
def test_a_room_imports_only_what_it_may_know(room: str) -> None:
    for path in (ROOT / room).rglob("*.py"):
        if path.name == "__main__.py":
            continue
        names = set(imported(path)) - MAY_IMPORT[room]
        rooms = {name.partition(".")[0] for name in names} & MAY_IMPORT.keys() - {room}
        assert rooms <= MAY_IMPORT[room], path


def test_the_contract_knows_the_word_for_a_document_only() -> None:
    own = [
        name for name in imported(ROOT / "linedesk/contract.py") if name.split(".")[0] in MAY_IMPORT
    ]
    assert own == ["linedesk.store.documents"]


def test_a_bot_uses_the_public_api_only() -> None:
    for path in (ROOT / "bots").rglob("*.py"):
        names = [name for name in imported(path) if name.startswith("jobworker")]
        assert set(names) <= {"jobworker"}, path
