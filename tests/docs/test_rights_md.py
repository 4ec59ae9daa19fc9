"""The list of rights in docs/reference/collections.md is what `linedesk init` makes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from linedesk.setup.rights import EVERY, USERS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "collections.md"


def rights() -> Iterator[str]:
    """A line for each user and set of actions, with the collections that have it."""
    for user in USERS:
        where: dict[str, list[str]] = {}
        for name, may in user.own.items():
            where.setdefault(", ".join(may), []).append(name if name != EVERY else "all")
        if user.oplog:
            where.setdefault(", ".join(user.oplog), []).append("local.oplog.rs")
        if user.server:
            where.setdefault(", ".join(user.server), []).append("the server")
        for actions, names in where.items():
            yield f"- `{user.name}` on {', '.join(names)}: {actions}"


def test_the_list_of_rights_is_that_of_the_code() -> None:
    assert "\n".join(rights()) in PAGE.read_text("utf-8")
