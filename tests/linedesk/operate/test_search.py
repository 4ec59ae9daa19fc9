"""The search finds people by names, and everything by the start of its id."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo.errors import OperationFailure

from linedesk.operate import find
from linedesk.operate.conversation import names_of, with_names
from linedesk.operate.find import folded, scope_of, search
from linedesk.operate.text import NotOneConversation
from linedesk.page.format import short
from linedesk.store.documents import CALLS, CONVERSATIONS, DEADLETTERS, RECVQ
from linedesk.store.errors import UNAUTHORIZED
from tests.rows import Db

NOW = datetime.now(UTC).replace(microsecond=0)
HANAKO = "U0864363934356778dfdf79e33dc1a8f1"
TARO = "U0864363934356778dfdf79e33dc1a8f2"
OTHER = "U99999999999999999999999999999999"
GROUP = "C0864363934356778dfdf79e33dc1a8f1"
EVENT = "01M8085TA7H96V2V5DRG8BY3M8"
MESSAGE = "468789577898262530"
REQUEST = "a3dd3507-b187-4b62-a039-eae64724c928"


def a_conversation(id_: str, kind: str, name: str | None, days: int, **more: Any) -> dict[str, Any]:
    profile = {"displayName": name} if name else None
    channel, _, key = id_.partition("/")
    at = NOW - timedelta(days=days)
    whose = {"channel": channel, "key": key, "kind": kind}
    return {"_id": id_, **whose, "profile": profile, "at": at, **more}


@pytest.fixture
def people(database: Db) -> Db:
    """Conversations of a channel, one of another, and an event with all its ids."""
    members = {TARO: {"displayName": "Ｔａｒｏ Yamada"}, OTHER: {"displayName": "ﾊﾅｺ"}}
    database[CONVERSATIONS].insert_many(
        [
            a_conversation(f"main/{HANAKO}", "user", "佐藤花子", 1),
            a_conversation(f"main/{TARO}", "user", "SATO 太郎", 2),
            a_conversation(f"main/{GROUP}", "group", "ねこの会", 3, members=members),
            a_conversation(f"shop/{OTHER}", "user", "花子", 4),
        ]
    )
    message = {"type": "message", "message": {"type": "text", "id": MESSAGE, "text": "?"}}
    whose = {"channel": "main", "key": HANAKO}
    row = {"_id": ObjectId(), "eventId": EVENT, **whose, "acceptTime": NOW, "event": message}
    database[RECVQ].insert_one(row)
    call = {"at": NOW, "endpoint": "/v2/bot/message/push", "status": 200, "requestId": REQUEST}
    database[CALLS].insert_one({**call, "eventId": EVENT, "key": HANAKO})
    effect = {"eventId": EVENT, "type": "send"}
    database[DEADLETTERS].insert_one({"_id": f"{EVENT}/0", **whose, "effect": effect})
    return database


def found(database: Db, word: str) -> tuple[str, ...]:
    return tuple(hit.id for hit in search(database, word, channel="main").hits)


def test_a_part_of_a_name_is_found_whatever_its_width_and_case(people: Db) -> None:
    hanako, taro, cats, other = (
        *(f"main/{HANAKO}", f"main/{TARO}", f"main/{GROUP}", f"shop/{OTHER}"),
    )
    names = {
        **dict.fromkeys(("佐藤花子", "藤花"), (hanako,)),
        # A whole name goes before a part of one.
        **dict.fromkeys(("花子", "花"), (other, hanako)),
        **dict.fromkeys(("sato", "ｓａｔｏ", "sato太"), (taro,)),
        **dict.fromkeys(("ハナコ", "ﾅｺ", "taro yama", "ねこ"), (cats,)),
        **dict.fromkeys(("花子花子", "三郎", "$where", ".*"), ()),
    }
    assert {word: found(people, word) for word in names} == names


def test_accents_are_folded_and_the_marks_of_kana_are_not() -> None:
    assert folded("Jose\u0301 Müller") == folded("José müller") == "josemuller"
    assert folded("ﾊﾟｻ") == "パサ" != folded("ハサ")


def test_an_id_is_found_by_its_start_and_as_a_screen_shows_it(people: Db) -> None:
    hanako, taro, other = f"main/{HANAKO}", f"main/{TARO}", f"shop/{OTHER}"
    events = (EVENT, EVENT[:9], short(EVENT), short(f"{EVENT}/0"), MESSAGE, MESSAGE[:7])
    ids = {
        short(TARO).replace("…", "..."): (taro,),
        **dict.fromkeys((HANAKO, hanako, short(HANAKO)), (hanako,)),
        **dict.fromkeys((HANAKO[:-1], f"{HANAKO[:12]}…"), (hanako, taro)),
        **dict.fromkeys((short(TARO), f"main/{short(TARO)}"), (taro,)),
        **dict.fromkeys(("U999", "U999…", "shop/"), (other,)),
        **dict.fromkeys((*events, REQUEST, REQUEST[:8], short(REQUEST)), (EVENT,)),
        **dict.fromkeys((f"…{TARO[-6:]}", f"{TARO[:3]}…{TARO[-6:]}", "…", REQUEST[:3]), ()),
    }
    assert {word: found(people, word) for word in ids} == ids


def test_a_search_that_runs_out_of_time_has_read_the_newest_and_says_how_many_are_left(
    people: Db, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "NAMES_SECONDS", 0.0)
    monkeypatch.setattr(find, "BATCH", 2)
    told = search(people, "花", channel="main")
    assert ([hit.id for hit in told.hits], told.unseen) == ([f"shop/{OTHER}"], 2)
    assert search(people, HANAKO, channel="main").unseen == 0
    # Another one may have the same name.
    with pytest.raises(NotOneConversation, match="2 older conversations were not read") as refused:
        scope_of(people, "花子", channel="main")
    assert refused.value.found == (f"shop/{OTHER} user 花子",)
    assert str(scope_of(people, HANAKO[:-1] + "1", channel="main")) == f"main/{HANAKO}"


def test_an_act_is_for_a_whole_name_and_names_whom_a_part_could_mean(people: Db) -> None:
    assert str(scope_of(people, "佐藤花子", channel="main")) == f"main/{HANAKO}"
    with pytest.raises(NotOneConversation, match="only a part of a name") as refused:
        scope_of(people, "佐藤", channel="main")
    assert refused.value.found == (f"main/{HANAKO} user 佐藤花子",)
    with pytest.raises(NotOneConversation):
        scope_of(people, f"main/{HANAKO[:8]}…000000", channel="main")


def test_a_group_without_a_name_is_called_by_its_first_members(database: Db) -> None:
    members = {f"U{n}": {"displayName": name} for n, name in enumerate("一二三四五")}
    database[CONVERSATIONS].insert_one({"_id": "main/C1", "kind": "group", "members": members})
    assert names_of(database, ["main/C1"]) == {"main/C1": "一、二、三 +2"}


def test_without_the_right_to_read_conversations_ids_are_shown() -> None:
    class Refusing:
        def __getitem__(self, name: str) -> Refusing:
            return self

        def find(self, *asked: Any) -> Iterator[Mapping[str, Any]]:
            raise OperationFailure("not authorized on line_bot", UNAUTHORIZED)

    database: Any = Refusing()
    assert with_names(database, [{"key": HANAKO}], channel="main") == [
        {"key": HANAKO, "name": None}
    ]
