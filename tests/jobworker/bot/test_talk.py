"""A handler's decisions through `talk`, before anything is recorded."""

from datetime import UTC, datetime
from typing import Any

import pytest
from bson import ObjectId

from jobworker.bot.messages import MessageCheck, refuse_wrong
from jobworker.bot.talk import Talk, TalkContext
from jobworker.record.conversations import MOST_MEMBERS, Decision, StoredConversation
from linedesk import BotError, TalkEnded
from linedesk.store.documents import make_document

ACCEPTED = datetime(2026, 11, 21, tzinfo=UTC)
USER = {"type": "user", "userId": "U1"}
GROUP = {"type": "group", "groupId": "C1", "userId": "U1"}


def talk_on(
    event: dict[str, Any] | None = None,
    stored: dict[str, Any] | None = None,
    *,
    check: MessageCheck = refuse_wrong,
    **more: Any,
) -> Talk:
    raw = {"webhookEventId": "E1", "replyToken": "T", "source": USER, **(event or {}), **more}
    document = make_document(raw, channel="main", accept_time=ACCEPTED)
    around = TalkContext(
        load=lambda: StoredConversation.from_document("main/U1", stored),
        api=lambda: None,
        content=lambda: None,
        check=check,
    )
    return Talk(document, around)


def ways(decision: Decision) -> list[tuple[str, int]]:
    return [(effect["way"], len(effect["messages"])) for effect in decision.effects]


def test_a_reply_uses_the_event_s_token() -> None:
    talk = talk_on()
    talk.reply("はい")
    (effect,) = talk.decision().effects
    assert effect["way"] == "reply"
    assert (effect["token"], effect["tokenFrom"], effect["to"]) == ("T", ACCEPTED, "U1")
    assert (effect["id"], effect["eventId"]) == ("E1/0", "E1")
    assert not {"triedAt", "as"} & effect.keys()


def test_messages_that_do_not_fit_the_reply_are_pushed() -> None:
    talk = talk_on()
    talk.reply(*"1234")
    talk.reply(*"56")
    talk.reply("7")
    assert ways(talk.decision()) == [("reply", 4), ("push", 2), ("push", 1)]


def test_a_reply_that_the_quota_counts_is_warned_of_once_with_its_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for _ in range(2):
        talk = talk_on()
        talk.push("先に", to="U2")
        talk.reply("無料")
        talk.push("次に")
        talk.reply("有料")
        assert ways(talk.decision())[-1] == ("push", 1)
    (record,) = caplog.records
    line = test_a_reply_that_the_quota_counts_is_warned_of_once_with_its_line.__code__
    assert f"at={__file__}:{line.co_firstlineno + 8}" in record.getMessage()


def test_a_replay_has_the_events_own_id_and_sends_of_its_own() -> None:
    talk = talk_on(webhookEventId="replay:replay:E1:1:2")
    talk.push("もう一度")
    assert talk.event_id == "E1"
    assert talk.decision().effects[0]["id"] == "replay:replay:E1:1:2/0"


@pytest.mark.parametrize(
    "source", [None, "U1", [], {}, {"type": "user"}, {"type": "group", "groupId": 5}]
)
def test_an_event_without_a_source_can_only_be_answered_with_a_receiver(source: Any) -> None:
    talk = talk_on(source=source)
    with pytest.raises(BotError, match="no source"):
        talk.reply("はい")
    with pytest.raises(BotError, match="no source"):
        talk.push("はい")
    talk.push("はい", to="U9")
    assert talk.decision().effects[0]["to"] == "U9"


def test_the_name_is_the_sender_s_in_private_and_in_groups() -> None:
    stored = {"profile": {"displayName": "花子"}, "members": {"U1": {"displayName": "太郎"}}}
    assert talk_on(stored=stored).display_name == "花子"
    assert talk_on(source=GROUP, stored=stored).display_name == "太郎"
    assert talk_on(source={**GROUP, "userId": "U2"}, stored=stored).display_name is None


def test_a_group_keeps_the_profiles_of_its_last_members() -> None:
    stored = {"members": {f"U{n}": {"displayName": str(n)} for n in range(100, 100 + MOST_MEMBERS)}}
    talk = talk_on(source=GROUP, stored=stored)
    talk.know_profile({"displayName": "太郎"})
    decision = talk.decision()
    assert decision.changes == {"members.U1": {"displayName": "太郎"}}
    assert decision.gone == ["members.U100"]


@pytest.mark.parametrize("to", ["", ObjectId(), b"U1", 1, {"userId": "U1"}])
def test_a_send_to_what_is_no_id_is_refused(to: Any) -> None:
    with pytest.raises(BotError, match="not the id"):
        talk_on().push("はい", to=to)


def test_sends_and_timers_after_the_end_are_refused_and_not_lost_silently() -> None:
    talk = talk_on()
    talk.reply("in time")
    decision = talk.decision()
    for late in (
        lambda: talk.reply("late"),
        lambda: talk.push("late"),
        lambda: talk.after(5, "late"),
        lambda: talk.cancel("late"),
    ):
        with pytest.raises(TalkEnded):
            late()
    assert [one["text"] for one in decision.effects[0]["messages"]] == ["in time"]
