"""The redacted form of an unsent message: the function, and the update in a capped collection."""

import copy
from datetime import UTC, datetime
from typing import Any

import pytest

from linedesk.store.documents import RECVQ, make_document
from linedesk.store.redaction import emptying, redacted
from tests.rows import Db

NOW = datetime(2026, 1, 31, 9, tzinfo=UTC)
SECRET = "ひみつのことば"
CONTENTS: list[dict[str, Any]] = [
    {"type": "text", "text": SECRET, "quoteToken": SECRET, "emojis": [{"emojiId": SECRET}]},
    {"type": "text", "text": "x", "mention": {"mentionees": [{"userId": SECRET}]}},
    {"type": "file", "fileName": SECRET, "fileSize": 3},
    {"type": "location", "title": SECRET, "address": SECRET, "latitude": 35.6, "longitude": 139.7},
    {"type": "image", "contentProvider": {"type": "external", "originalContentUrl": SECRET}},
    {"type": "sticker", "keywords": [SECRET], "text": SECRET},
    {"type": "of tomorrow", "what": {"LINE": ["adds", SECRET]}},
]


def a_message(**content: Any) -> dict[str, Any]:
    event = {
        "type": "message",
        "webhookEventId": "01E",
        "timestamp": 1,
        "source": {"type": "user", "userId": "U1"},
        "replyToken": "r",
        "message": {"id": "42", **content},
    }
    return make_document(event, channel="main", accept_time=NOW)


@pytest.mark.parametrize("content", CONTENTS, ids=lambda content: content["type"])
def test_nothing_of_the_content_is_left_and_all_that_names_the_event_is(
    content: dict[str, Any],
) -> None:
    document = a_message(**content)
    before = copy.deepcopy(document)

    left = redacted(document)

    assert SECRET not in str(left)
    assert left["event"]["message"] == {"type": content["type"], "id": "42"}
    assert left["unsent"] is True
    assert document == before
    assert {k: v for k, v in left["event"].items() if k != "message"} == {
        k: v for k, v in before["event"].items() if k != "message"
    }
    assert {k: v for k, v in left.items() if k not in ("event", "unsent")} == {
        k: v for k, v in before.items() if k != "event"
    }


def test_an_emptied_document_keeps_names_that_mongodb_takes_in_an_insert_only(database: Db) -> None:
    document = a_message(type="text", text=SECRET)
    document["event"]["$odd.name"] = {"$set": {"a.b": 1}}
    database[RECVQ].insert_one(document)

    database[RECVQ].update_one({"_id": document["_id"]}, {"$set": emptying(document)})

    assert database[RECVQ].find_one({"_id": document["_id"]}) == redacted(document)
