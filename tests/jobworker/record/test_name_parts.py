"""Names become searchable: those of new events, of an older release and of a backup."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pymongo.database import Database

from dispatcher.commit.committer import Committer
from jobworker.bot.talk import Talk
from jobworker.record import looks
from jobworker.record.looks import NameParts
from linedesk import Bot
from linedesk.console.conversation import by_name
from linedesk.store.documents import CONVERSATIONS
from linedesk.store.records.conversations import NAME_PARTS
from linesim import Sim
from tests.jobworker.worker_harness import Room, lead

Rooms = Callable[..., Room]
USER = {"_id": "main/U1", "kind": "user", "profile": {"displayName": "ﾊﾅｺ"}}
GROUP = {"_id": "main/C1", "kind": "group", "members": {"U1": {"displayName": "Ｓａｔｏ Taro"}}}


def found(database: Database[Any], word: str) -> list[str]:
    """By the index only: a conversation without parts is not found."""
    cut = {row["_id"] for row in database[CONVERSATIONS].find({NAME_PARTS: {"$exists": True}})}
    return [row["_id"] for row in by_name(database, word) if row["_id"] in cut]


def names(database: Database[Any]) -> NameParts:
    return NameParts(lead(Committer(database)))


def naming_bot() -> Bot:
    bot = Bot(profiles=True)

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        if talk.raw["message"]["text"] == "forget":
            talk.forget()
        talk.reply(f"{talk.display_name}さん")

    return bot


def test_a_database_of_an_older_release_is_filled_in_bit_by_bit(
    database: Database[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(looks, "MOST_AT_ONCE", 2)
    nameless = [{"_id": f"main/U{n}"} for n in range(2, 6)]
    database[CONVERSATIONS].insert_many([USER, GROUP, *nameless])
    parts = names(database)
    assert found(database, "ハナ") == []
    for _ in range(4):
        parts.look()
    assert database[CONVERSATIONS].count_documents({NAME_PARTS: {"$exists": False}}) == 0
    assert (found(database, "ハナ"), found(database, "tota")) == (["main/U1"], ["main/C1"])
    row = database[CONVERSATIONS].find_one({"_id": "main/U2"})
    assert row == {"_id": "main/U2", NAME_PARTS: [""]}


def test_a_missing_index_is_left_alone_and_the_next_look_is_later(
    database: Database[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    database[CONVERSATIONS].insert_one(USER)
    database[CONVERSATIONS].drop_index(NAME_PARTS)
    try:
        parts = names(database)
        parts.look()
        # Read themselves meanwhile.
        assert [row["_id"] for row in by_name(database, "ナコ")] == ["main/U1"]
    finally:
        database[CONVERSATIONS].create_index(NAME_PARTS, name=NAME_PARTS)
    parts.look()
    assert found(database, "ナコ") == []
    monkeypatch.setattr(looks.time, "monotonic", lambda: 10.0**9)
    parts.look()
    assert found(database, "ナコ") == ["main/U1"]


def test_a_name_that_changes_is_found_by_the_new_name_only(
    database: Database[Any], room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("佐藤花子")
    place = {"channel": "main", "key": user.user_id, "kind": "user"}
    id_, before = f"main/{user.user_id}", datetime.now(UTC) - timedelta(days=2)
    profile = {"displayName": "鈴木花子", "at": before}
    database[CONVERSATIONS].insert_one({"_id": id_, **place, "profile": profile})
    names(database).look()
    assert found(database, "鈴木") == [id_]
    desk = room(naming_bot())
    desk.says(user, "?")
    desk.until_quiet()
    assert found(database, "鈴木") == []
    names(database).look()
    assert found(database, "藤花") == [id_]
    row = database[CONVERSATIONS].find_one({"_id": id_}) or {}
    assert "鈴木" not in row[NAME_PARTS]


def test_a_message_of_a_known_user_writes_nothing_for_the_names(
    database: Database[Any], room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("佐藤花子")
    desk = room(naming_bot())
    desk.says(user, "?")
    desk.until_quiet()
    names(database).look()
    oplog = database.client["local"]["oplog.rs"]
    before = oplog.find_one(sort=[("$natural", -1)])
    assert before is not None
    desk.says(user, "!")
    desk.until_quiet()
    names(database).look()
    own = {"ts": {"$gt": before["ts"]}, "o.applyOps.ns": f"{database.name}.{CONVERSATIONS}"}
    entries = list(oplog.find(own))
    assert any("佐藤花子さん" in str(one) for one in entries)
    assert not [one for one in entries if NAME_PARTS in str(one)]


def test_a_forgotten_name_leaves_nothing_to_be_found_by(
    database: Database[Any], room: Rooms, sim: Sim
) -> None:
    user = sim.add_user("佐藤花子")
    desk = room(naming_bot())
    desk.says(user, "?")
    desk.until_quiet()
    id_ = f"main/{user.user_id}"
    names(database).look()
    assert found(database, "花子") == [id_]
    desk.says(user, "forget")
    desk.until_quiet()
    row = database[CONVERSATIONS].find_one({"_id": id_}) or {}
    # None, or already written again by the worker's own thread.
    assert (row["profile"], row.get(NAME_PARTS, [""])) == (None, [""])


def test_a_name_that_changes_while_its_parts_are_made_is_made_again(
    database: Database[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    conversations = database[CONVERSATIONS]
    conversations.insert_one(USER)
    cut = looks.name_parts

    def then_renamed(names: Any) -> list[str]:
        renamed = {"$set": {"profile.displayName": "鈴木"}, "$unset": {NAME_PARTS: ""}}
        conversations.update_one({"_id": "main/U1"}, renamed)
        return cut(names)

    with monkeypatch.context() as renaming:
        renaming.setattr(looks, "name_parts", then_renamed)
        names(database).look()
    assert found(database, "ハナ") == found(database, "鈴木") == []
    names(database).look()
    assert (found(database, "ハナ"), found(database, "鈴木")) == ([], ["main/U1"])
