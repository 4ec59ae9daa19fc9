"""The story of one event: found by any id, in order, with its missing parts named."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId
from pymongo.database import Database

from linedesk.commands.trace import page
from linedesk.operate.events.rows import Present, Rows
from linedesk.operate.events.story import Story, story_of, tell
from linedesk.operate.find import event_of, key_of, scope_of, search
from linedesk.operate.text import NotDone, NotOneConversation
from linedesk.store.client import Client
from linedesk.store.control import Pause, Pauses, Scope
from linedesk.store.documents import Document
from linedesk.store.records.effects import place_of
from tests.linedesk.operate.hand import (
    HANAKO,
    NOW,
    TEXT,
    a_call,
    a_dispatcher,
    a_run,
    ago,
    an_event,
    one_for_all,
)

LATER = NOW + timedelta(milliseconds=20)


def story(
    *,
    text: bool = False,
    leader: Document | None = None,
    pauses: Pauses | None = None,
    **known: Any,
) -> Story:
    rows = Rows(**{"name": "01E", "document": an_event(), **known})
    row = a_dispatcher() if leader is None else leader
    present = Present(row, pauses or Pauses())
    return story_of(rows, present, asked="01E", now=NOW, text=text)


def a_letter(id_: str = "01E", **more: Any) -> Document:
    row = {"_id": id_, "channel": "main", "key": HANAKO, "cause": "handler: ValueError"}
    return {**row, "attempts": 3, "firstAt": NOW, "lastAt": LATER, **more}


def kinds(told: Story) -> list[str]:
    return [step.kind for step in told.steps]


# How it ends.


def test_an_answered_event_is_told_from_the_webhook_to_the_request_id() -> None:
    told = story(runs=[a_run(at=NOW + timedelta(milliseconds=3))], calls=[a_call(at=LATER)])
    assert (told.outcome.result, told.channel, told.key) == ("answered", "main", HANAKO)
    assert str(told.outcome) == "answered: LINE took one send after 110 ms"
    assert kinds(told) == ["received", "run", "call"]
    assert told.steps[2].facts["requestId"] == "req-1"
    assert told.what == "message text"


def test_an_answer_that_waits_for_a_tap_is_not_answered_yet() -> None:
    decided = {"calls": [a_call(at=LATER)], "was_applied": True}
    told = story(**decided, answer={"state": "waiting", "at": LATER})
    assert told.outcome.result == "waiting"
    assert str(told.outcome) == "waiting: a button is shown, and the answer waits for a tap on it"
    assert "the answer waits for a tap on its button, for a day at most" in words_of(told)
    told = story(**decided, answer={"state": "taken", "at": LATER, "by": "01T"})
    assert told.outcome.result == "answered"
    assert "a tap brought the answer to the outbox: 01T" in words_of(told)


def words_of(told: Story) -> list[str]:
    return [step.words for step in told.steps]


def test_a_handler_that_returned_nothing_is_the_reason_for_no_answer() -> None:
    told = story(runs=[a_run(outcome="finished", effects=0)])
    assert str(told.outcome) == "no reply: no message was sent"


def test_each_failed_try_is_told_and_what_it_came_to() -> None:
    runs = [
        a_run(at=NOW + timedelta(seconds=n), attempt=n, outcome="failed", error="ValueError")
        for n in (1, 2, 3)
    ]
    told = story(runs=runs, letter=a_letter(lastAt=NOW + timedelta(seconds=4)))
    assert told.outcome.result == "failed"
    assert str(told.outcome) == "failed: handler: ValueError"
    assert kinds(told) == ["received", "run", "run", "run", "letter"]
    assert told.steps[3].words == "the handler failed, try 3: ValueError in 2.0 ms"
    shown = {label: list(lines) for label, lines in page(told)}
    assert "`linedesk dead replay 01E`" in shown["to do"][0]
    # Its handler never returned, so that a run of its own gave it up.
    told = story(runs=[a_run(outcome="recorded", effects=1)], letter=a_letter())
    assert told.steps[1].words == "recorded that it is given up in 2.0 ms"


def test_a_replayed_letter_says_so_and_names_its_replays() -> None:
    told = story(letter=a_letter(replays=2, replayedAt=LATER))
    assert told.outcome.result == "replayed"
    assert str(told.outcome) == "replayed: handler: ValueError"
    assert advice(told) == "`linedesk trace replay:01E:2` shows its result"
    assert told.related == ["replay:01E:1", "replay:01E:2"]
    assert "replayed as replay:01E:2" in [step.words for step in told.steps]


def test_a_replay_that_was_not_confirmed_is_to_be_asked_for_again() -> None:
    told = story(letter=a_letter(replays=1, replaying=1))
    assert told.outcome.result == "failed"
    assert str(told.outcome).endswith("a replay was begun and is not confirmed")
    assert "`linedesk dead replay 01E`" in advice(told)


def test_advice_names_the_letters_of_effects_and_only_those_not_replayed() -> None:
    done = a_letter("01E/0", replays=1, replayedAt=LATER)
    told = story(runs=[a_run(effects=2)], letters=[done, a_letter("01E/1")])
    assert told.outcome.result == "failed"
    assert "`linedesk dead replay 01E/1`" in advice(told)
    told = story(runs=[a_run()], letters=[done])
    assert (told.outcome.result, told.letters) == ("replayed", [])
    assert "`linedesk trace replay:01E/0:1`" in advice(told)


def advice(told: Story) -> str:
    shown = {label: list(lines) for label, lines in page(told)}
    return shown["to do"][0]


def test_a_replay_names_what_it_is_a_replay_of() -> None:
    send = {**a_letter("01E/0"), "effect": {"way": "push", "eventId": "01E"}}
    told = story(name="replay:01E/0:1", replayed=send)
    assert told.related[0] == "01E"


def test_a_send_that_line_refuses_waits_in_the_outbox() -> None:
    effects = [
        {"id": "01E/0", "type": "send", "way": "push", "at": LATER, "messages": [{"text": TEXT}]}
    ]
    told = story(runs=[a_run()], calls=[a_call(at=LATER, status=429)], effects=effects)
    assert told.outcome.result == "waiting"
    assert str(told.outcome) == "waiting: one of its sends waits in the outbox"
    assert TEXT not in json.dumps(told.as_json(), ensure_ascii=False)


def test_an_effect_that_was_given_up_is_told_beside_what_went_out() -> None:
    told = story(
        runs=[a_run(effects=2)], calls=[a_call()], letters=[a_letter("01E/1", cause="400")]
    )
    assert str(told.outcome) == "failed: 400 (one of its sends or timers)"


def test_a_message_that_was_taken_back_ends_without_its_handler() -> None:
    told = story(runs=[a_run(outcome="unheard", effects=0)], was_unsent=True)
    assert str(told.outcome).startswith("no reply: its message was taken back")
    assert "unsend" in kinds(told)
    assert told.what == "message text (unsent)"


def test_a_message_that_was_handled_with_another_names_that_one() -> None:
    told = story(runs=[a_run(outcome="gathered", effects=0, gatheredWith="01D")])
    assert told.related == ["01D"]
    assert str(told.outcome) == "answered: handled together with 01D"
    assert "handled together with 01D" in told.steps[-1].words


def test_a_409_counts_as_sent() -> None:
    told = story(runs=[a_run()], calls=[a_call(status=409)])
    assert told.outcome.result == "answered"


# The sends in a call, and its cost.

MULTICAST, PUSH = "/v2/bot/message/multicast", "/v2/bot/message/push"


def company(*event_ids: str, key: str = HANAKO) -> list[Document]:
    return [{"eventId": event_id, "key": key} for event_id in event_ids]


def call_words(**call: Any) -> str:
    told = story(runs=[a_run()], calls=[a_call(**call)])
    return next(step.words for step in told.steps if step.kind == "call")


ANSWERED = "LINE answered 200 in 90 ms"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ({}, f"POST /v2/bot/message/reply: {ANSWERED}"),
        ({"paid": 0}, f"POST /v2/bot/message/reply: {ANSWERED}, free"),
        ({"endpoint": PUSH, "paid": 1}, f"POST {PUSH}: {ANSWERED}, 1 counted message"),
        (
            {"endpoint": PUSH, "paid": None},
            f"POST {PUSH}: {ANSWERED}, counted, only LINE knows for how many people",
        ),
        (
            {"paid": 0, "also": company("01F", "01G", "01H"), "class": "live", "waitedMs": 420.0},
            f"POST /v2/bot/message/reply: {ANSWERED}, free",
        ),
        (
            {
                "event_id": "01D",
                "endpoint": MULTICAST,
                "paid": 3,
                "also": [*company("01E"), *company("02", key="U2"), *company("03", key="U3")],
                "key": "U4",
            },
            f"POST {MULTICAST}: {ANSWERED}, 3 counted messages",
        ),
    ],
)
def test_a_call_shows_its_cost(call: dict[str, Any], words: str) -> None:
    assert call_words(**call) == words


def test_a_call_that_line_did_not_take_has_no_cost() -> None:
    words = call_words(status=429, endpoint=MULTICAST, also=company("02", key="U2"))
    assert words == f"POST {MULTICAST}: LINE answered 429 in 90 ms"


def test_an_event_whose_sends_travelled_in_one_call_was_answered_with_all_of_them() -> None:
    together = a_call(event_id="01D", at=LATER, also=company("01E", "01E", "01F"), paid=0)
    told = story(runs=[a_run(effects=2)], calls=[together])
    assert str(told.outcome) == "answered: LINE took 2 sends after 110 ms"
    call = told.steps[-1]
    assert (call.kind, call.facts["sends"]) == ("call", 4)
    # The others are events of other people.
    assert "01F" not in json.dumps(told.as_json())


def test_a_call_that_fetched_a_photo_is_no_answer() -> None:
    content = "/v2/bot/message/{messageId}/content"
    told = story(runs=[a_run(effects=0)], calls=[a_call(method="GET", endpoint=content)])
    assert str(told.outcome) == "no reply: no message was sent"


@pytest.mark.parametrize(
    ("cause", "meaning"),
    [
        ("quota", "the month's messages are used up"),
        ("late", "its reply token had expired, and today's limit for late replies is used up"),
        ("expired", "it was not tried before the moment that the bot had set"),
    ],
)
def test_a_cause_that_is_a_word_is_explained(cause: str, meaning: str) -> None:
    told = story(runs=[a_run()], letters=[a_letter("01E/0", cause=cause, effect={"way": "push"})])
    assert str(told.outcome) == f"failed: {cause}: {meaning} (one of its sends or timers)"
    assert told.steps[-1].words == f"send push given up after 3 tries: {cause}: {meaning}"
    assert told.steps[-1].facts["cause"] == cause


def test_a_waiting_send_shows_the_dispatchers_reason() -> None:
    why = "a send waits for its turn, class chat: 12 answers with live reply tokens go first"
    waiting = {"channel": "main", "key": HANAKO, "eventId": "01E", "why": why}
    effects = [{"id": "01E/0", "type": "send", "way": "push", "at": LATER}]
    told = story(runs=[a_run()], effects=effects, leader=a_dispatcher(waiting=[waiting]))
    assert str(told.outcome) == f"waiting: one of its sends waits in the outbox: {why}"
    told = story(runs=[a_run()], effects=effects * 2, leader={})
    assert str(told.outcome) == "waiting: 2 of its sends wait in the outbox"


# The reasons of a wait.


def test_a_pause_is_the_reason_before_any_other() -> None:
    pause = Pause(Scope("main"), by="taro", why="too loud", at=ago(90))
    held = {"_id": 1, "n": 3, "why": "paused", "since": NOW, "channel": "main", "key": HANAKO}
    told = story(pauses=Pauses((pause,)), held=held, before=2)
    assert str(told.outcome) == "waiting: main is paused for 1 min 30 s by taro (too loud)"
    assert told.steps[-1].words == "waits in held, behind 2 of its conversation: paused"


def test_a_pause_of_another_is_none_of_its() -> None:
    pauses = Pauses((Pause(Scope("main", "U2")),))
    assert "paused" not in str(story(pauses=pauses).outcome)


def test_in_hand_says_since_when_and_on_which_thread() -> None:
    doing = {"name": "worker-03", "doing": "handler", "eventId": "01E", "since": ago(5)}
    told = story(leader=a_dispatcher(threads=[doing]))
    assert str(told.outcome) == "waiting: handler on worker-03 for 5 s"


def test_what_waits_behind_another_names_it() -> None:
    first = {"channel": "main", "key": HANAKO, "eventId": "01D", "why": "its outbox is full"}
    told = story(leader=a_dispatcher(waiting=[first]))
    assert str(told.outcome) == "waiting: behind 01D of its conversation: its outbox is full"


def test_without_a_dispatcher_that_is_the_reason() -> None:
    assert str(story(leader={}).outcome) == "waiting: no running dispatcher holds the lease"


def test_a_predecessors_letter_in_the_outbox_is_told() -> None:
    letter = {"id": "01E", "type": "deadletter", "cause": "handler: KeyError", "lastAt": LATER}
    told = story(effects=[letter], was_applied=True)
    assert "its dead letter is being written" in told.steps[-1].words


def test_what_was_overwritten_is_judged_by_the_other_rows() -> None:
    told = story(document=None, in_recvq=False, runs=[a_run()], calls=[a_call()])
    assert (told.what, told.key) == ("message", HANAKO)


def test_text_shows_only_where_it_is_asked_for() -> None:
    send = {"id": "01E/0", "type": "send", "way": "reply", "token": "a token", "messages": [TEXT]}
    plain, asked = (
        json.dumps(story(text=text, effects=[send]).as_json(), ensure_ascii=False)
        for text in (False, True)
    )
    assert TEXT not in plain
    assert asked.count(TEXT) == 2
    assert "a token" not in plain + asked


@pytest.mark.parametrize("event", [None, 5, {"message": 7, "timestamp": "x", "timer": []}])
def test_an_event_made_by_hand_breaks_nothing(event: Any) -> None:
    odd = {**an_event(), "event": event, "acceptTime": None}
    told = story(document=odd, runs=[{"at": NOW, "outcome": None}], calls=[{"at": NOW}])
    assert json.dumps(told.as_json())


# In the database.


@pytest.fixture(scope="module")
def told_of(client: Client) -> Iterator[Database[Any]]:
    """One event with all that belongs to it, and another of the same conversation that waits."""
    with one_for_all(client) as database:
        _fill(database)
        yield database


def _fill(database: Database[Any]) -> None:
    first, second = an_event("01E", at=ago(60)), an_event("01F", at=ago(50))
    nameless = {k: v for k, v in an_event("", at=ago(40)).items() if k != "eventId"}
    database.recvq.insert_many([first, second, nameless])
    database.jobs.insert_one(a_run(at=ago(59)))
    database.calls.insert_one(a_call(at=ago(58)))
    database.conversations.insert_one(
        {
            "_id": f"main/{HANAKO}",
            "channel": "main",
            "key": HANAKO,
            "profile": {"displayName": "花子"},
            "applied": ["01E"],
            "unsent": [],
            "answers": {"01E": {"state": "taken", "at": ago(57), "by": "01T"}},
            "outbox": {
                place_of(7, n): {"id": id_, "type": "send", "eventId": id_[:3], "way": "push"}
                for n, id_ in enumerate(("01E/1", "01X/0"))
            },
            "call": {"at": NOW, "as": "push", "members": [place_of(7, 0)]},
        }
    )
    timer = {"_id": f"main/{HANAKO}/egg", "name": "egg", "runAt": NOW, "setBy": "01E", "n": 1}
    database.schedule.insert_one(timer)
    held = {"n": 1, "channel": "main", "key": HANAKO, "why": "slow", "since": ago(30)}
    database.held.insert_many(
        [
            {**held, "_id": ObjectId(), "document": an_event("01D")},
            {**held, "_id": second["_id"], "n": 2, "document": second},
        ]
    )
    effect = {"way": "push", "eventId": "01E", "type": "send"}
    database.deadletters.insert_one({**a_letter("01E/2", cause="quota"), "effect": effect})


def test_an_event_is_found_by_every_id_that_belongs_to_it(told_of: Database[Any]) -> None:
    document = told_of.recvq.find_one({"eventId": "01E"}, {"_id": 1})
    assert document is not None
    assert event_of(told_of, "01D") == "01D"
    assert tell(told_of, "01D").key == HANAKO
    ids = ["01E", str(document["_id"]), "m-01E", "01E/1", "01E/2", f"main/{HANAKO}/egg", "req-1"]
    assert [event_of(told_of, id_) for id_ in ids] == ["01E"] * len(ids)
    nameless = told_of.recvq.find_one({"eventId": None}, {"_id": 1})
    assert nameless is not None
    assert event_of(told_of, str(nameless["_id"])) == str(nameless["_id"])
    with pytest.raises(NotDone, match="01NONE"):
        event_of(told_of, "01NONE")


def test_a_story_gathers_all_that_belongs_to_it_and_nothing_else(told_of: Database[Any]) -> None:
    told = tell(told_of, "req-1")
    assert (told.asked, told.event_id) == ("req-1", "01E")
    assert sorted(kinds(told)) == [
        *("call", "letter", "received", "run", "send", "send", "timer"),
    ]
    cause = "quota: the month's messages are used up"
    assert str(told.outcome) == f"failed: {cause} (one of its sends or timers)"
    tapped, waiting = sorted(step.words for step in told.steps if step.kind == "send")[::-1]
    assert tapped == "a tap brought the answer to the outbox: 01T"
    assert waiting == "a push waits in the outbox: a try is of unknown outcome"
    held = tell(told_of, "01F")
    assert held.steps[-1].words == "waits in held, behind 1 of its conversation: slow"


def test_a_story_tells_whether_a_send_was_tried(client: Client) -> None:
    send = {"id": "01E/0", "type": "send", "eventId": "01E", "way": "push", "messages": []}
    own = {"_id": f"main/{HANAKO}", "channel": "main", "key": HANAKO, "applied": ["01E"]}
    claim = {"at": NOW, "batch": "B", "members": [place_of(7, 1)]}

    def tries(database: Database[Any], **conversation: Any) -> list[bool]:
        database.conversations.replace_one({"_id": own["_id"]}, own | conversation, upsert=True)
        sends = [step for step in tell(database, "01E").steps if step.kind == "send"]
        return ["unknown outcome" in step.words for step in sends]

    with one_for_all(client) as database:
        database.recvq.insert_one(an_event("01E", at=ago(60)))
        claimed = {"outbox": {place_of(7, 1): send}, "call": claim}
        assert tries(database, **claimed) == [False]
        database.batches.insert_one({"_id": "B", "state": "ready"})
        assert tries(database, **claimed) == [True]


def test_progress_shows_what_is_finished_without_a_trace(told_of: Database[Any]) -> None:
    told_of.recvq.insert_one(an_event("01G", key="U2"))
    ids = {row.get("eventId"): row["_id"] for row in told_of.recvq.find({})}
    assert tell(told_of, "01G").outcome.result == "waiting"
    told_of.progress.insert_one(
        {"_id": "dispatcher", "finished": [ids["01G"]], "after": ids["01E"]}
    )
    assert str(tell(told_of, "01G").outcome) == "no reply: no message was sent"


def test_a_word_is_looked_up_whatever_it_is(told_of: Database[Any]) -> None:
    def meanings(word: str) -> list[tuple[str, str]]:
        return [(hit.kind, hit.id) for hit in search(told_of, word, channel="main").hits]

    conversation = [("conversation", f"main/{HANAKO}")]
    assert meanings(" 花子 ") == meanings(HANAKO) == meanings(HANAKO[:5]) == conversation
    assert meanings("m-01E") == [("event", "01E")]
    assert meanings("nobody") == []


def test_an_unknown_word_is_no_channel_to_pause(told_of: Database[Any]) -> None:
    def scope(word: str | None) -> Scope:
        return scope_of(told_of, word, channel="main")

    assert scope(None) == scope("all") == Scope()
    assert scope("main") == Scope("main")
    assert scope("main/U9") == Scope("main", "U9")
    assert scope("花子") == scope(f"main/{HANAKO[:5]}") == Scope("main", HANAKO)
    # A pause is ended by the words that began it.
    started = Scope("main", HANAKO[:5])
    told_of.control.insert_one({"_id": started.id, "act": "pause"})
    assert scope(str(started)) == started
    assert scope(f"main/{HANAKO[:5]}…") == scope(f"{HANAKO[:5]}…") == Scope("main", HANAKO)
    for nobody in ("U9", "main/U9…", "", " "):
        with pytest.raises(NotOneConversation):
            scope(nobody)
    assert key_of(told_of, "U9", channel="main") == "U9"
    assert key_of(told_of, "花子", channel="main") == HANAKO


def test_a_send_is_found_in_the_call_of_another_event(told_of: Database[Any]) -> None:
    also = [{"eventId": "01K", "key": "U5"}, {"eventId": "01L", "key": "U6"}]
    told_of.calls.insert_one(a_call("01J", at=ago(5), key="U4", requestId="req-9", also=also))
    told_of.recvq.insert_one(an_event("01L", key="U6", at=ago(6)))
    [call] = [step for step in tell(told_of, "01L").steps if step.kind == "call"]
    assert call.facts["requestId"] == "req-9"
    # Overwritten in recvq, and known by its call alone.
    assert event_of(told_of, "01K") == "01K"


def test_no_look_by_id_scans_recvq(told_of: Database[Any]) -> None:
    for query in ({"eventId": "01E"}, {"event.message.id": "m-01E"}):
        plan = told_of.recvq.find(query).limit(1).explain()["queryPlanner"]["winningPlan"]
        assert "COLLSCAN" not in json.dumps(plan, default=str)
