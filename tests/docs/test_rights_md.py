"""The table of rights in docs/reference/collections.md is what `linedesk init` makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from linedesk.setup.rights import EVERY, USERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "collections.md"


def table() -> Iterator[str]:
    yield "| user | where | may |"
    yield "| --- | --- | --- |"
    for user in USERS:
        for name, actions in user.own.items():
            yield f"| `{user.name}` | {name if name != EVERY else 'all'} | {', '.join(actions)} |"
        if user.oplog:
            yield f"| `{user.name}` | local.oplog.rs | {', '.join(user.oplog)} |"
        if user.server:
            yield f"| `{user.name}` | the server | {', '.join(user.server)} |"


def test_the_table_of_rights_is_that_of_the_code() -> None:
    assert "\n".join(table()) in PAGE.read_text("utf-8")
