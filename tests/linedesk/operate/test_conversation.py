"""The name of a conversation."""

from __future__ import annotations

from typing import Any

from pymongo.database import Database

from linedesk.operate.conversation import names_of
from linedesk.store.documents import CONVERSATIONS


def test_users_have_their_own_names_and_groups_those_of_their_members(
    database: Database[Any],
) -> None:
    database[CONVERSATIONS].insert_many(
        [
            {"_id": "main/U1", "kind": "user", "profile": {"displayName": "佐藤花子"}},
            {"_id": "main/U2", "kind": "user"},
            {"_id": "main/C1", "kind": "group", "members": {"U1": {"displayName": "花子"}}},
        ]
    )
    found = names_of(database, ["main/U1", "main/U2", "main/U3", "main/C1", "main/C1"])
    assert found == {"main/U1": "佐藤花子", "main/C1": "花子"}
