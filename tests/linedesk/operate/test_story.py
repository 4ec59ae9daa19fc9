"""The story of one event: found by any id, in order, with its missing parts named."""

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from bson import ObjectId

from linedesk.commands.trace import page
from linedesk.operate.events.rows import Present, Rows
from linedesk.operate.events.story import Story, story_of, tell
from linedesk.operate.find import event_of, key_of, scope_of
from linedesk.operate.format import as_json
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
)
from tests.rows import Db
from tests.servers import one_for_all

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


def advice(told: Story) -> str:
    shown = {label: list(lines) for label, lines in page(told)}
    return shown["to do"][0]


def test_an_answered_event_is_told_from_the_webhook_to_the_request_id() -> None:
    told = story(runs=[a_run(at=NOW + timedelta(milliseconds=3))], calls=[a_call(at=LATER)])
    assert (told.outcome.result, told.channel, told.key) == ("answered", "main", HANAKO)
    assert str(told.outcome) == "answered: LINE took one send after 110 ms"
    assert kinds(told) == ["received", "run", "call"]
    assert told.steps[2].facts["requestId"] == "req-1"
    assert told.what == "message text"


TAPPED: Any = {"calls": [a_call(at=LATER)], "was_applied": True}
SEND = {"id": "01E/0", "type": "send", "way": "push", "at": LATER}
CONTENT = "/v2/bot/message/{messageId}/content"
DOING = {"name": "worker-03", "doing": "handler", "eventId": "01E", "since": ago(5)}
WAITS = {"channel": "main", "key": HANAKO, "eventId": "01E", "why": "12 answers go first"}
FIRST = {**WAITS, "eventId": "01D", "why": "its outbox is full"}


@pytest.mark.parametrize(
    ("known", "outcome"),
    [
        (
            {**TAPPED, "answer": {"state": "waiting", "at": LATER}},
            "waiting: a button is shown, and the answer waits for a tap on it",
        ),
        ({**TAPPED, "answer": {"state": "taken", "at": LATER, "by": "01T"}}, "answered: "),
        ({"runs": [a_run()], "calls": [a_call(status=409)]}, "answered: "),
        (
            {"runs": [a_run(outcome="gathered", effects=0, gatheredWith="01D")]},
            "answered: handled together with 01D",
        ),
        ({"runs": [a_run(outcome="finished", effects=0)]}, "no reply: no message was sent"),
        (
            {"runs": [a_run(outcome="unheard", effects=0)], "was_unsent": True},
            "no reply: its message was taken back",
        ),
        # A call that fetched a photo is no answer.
        (
            {"runs": [a_run(effects=0)], "calls": [a_call(method="GET", endpoint=CONTENT)]},
            "no reply: no message was sent",
        ),
        # An effect that was given up is told beside what went out.
        (
            {
                "runs": [a_run(effects=2)],
                "calls": [a_call()],
                "letters": [a_letter("01E/1", cause="quota", effect={"way": "push"})],
            },
            "failed: quota: the month's messages are used up (one of its sends or timers)",
        ),
        (
            {"runs": [a_run()], "calls": [a_call(at=LATER, status=429)], "effects": [SEND]},
            "waiting: one of its sends waits in the outbox",
        ),
        (
            {"runs": [a_run()], "effects": [SEND], "leader": a_dispatcher(waiting=[WAITS])},
            "waiting: one of its sends waits in the outbox: 12 answers go first",
        ),
        ({"leader": a_dispatcher(threads=[DOING])}, "waiting: handler on worker-03 for 5 s"),
        (
            {"leader": a_dispatcher(waiting=[FIRST])},
            "waiting: behind 01D of its conversation: its outbox is full",
        ),
        ({"leader": {}}, "waiting: no running dispatcher holds the lease"),
        # The pause of another is none of its.
        ({"leader": {}, "pauses": Pauses((Pause(Scope("main", "U2")),))}, "waiting: no running"),
    ],
)
def test_its_outcome_has_a_reason(known: dict[str, Any], outcome: str) -> None:
    assert str(story(**known).outcome).startswith(outcome)


def test_each_failed_try_is_told_and_what_it_came_to() -> None:
    failed = {"outcome": "failed", "error": "ValueError", "place": "bot.py:13"}
    runs = [a_run(at=NOW + timedelta(seconds=n), attempt=n, **failed) for n in (1, 2, 3)]
    why = {"cause": "handler_error", "about": {"error": "ValueError"}}
    told = story(runs=runs, letter=a_letter(lastAt=NOW + timedelta(seconds=4), **why))
    assert str(told.outcome) == "failed: handler: ValueError, bot.py:13"
    released = story(runs=runs, letter=a_letter(cause="released"))
    assert "bot.py" not in str(released.outcome)
    assert kinds(told) == ["received", "run", "run", "run", "letter"]
    assert told.steps[3].words == "the handler failed, try 3: ValueError, bot.py:13 in 2.0 ms"
    assert "`linedesk dead replay 01E`" in advice(told)


def test_a_replayed_letter_says_so_and_names_its_replays() -> None:
    told = story(letter=a_letter(replays=2, replayedAt=LATER))
    assert str(told.outcome) == "replayed: handler: ValueError"
    assert advice(told) == "`linedesk trace replay:01E:2` shows its result"
    assert told.related == ["replay:01E:1", "replay:01E:2"]
    send = {**a_letter("01E/0"), "effect": {"way": "push", "eventId": "01E"}}
    assert story(name="replay:01E/0:1", replayed=send).related[0] == "01E"


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


def test_an_event_whose_sends_travelled_in_one_call_was_answered_with_all_of_them() -> None:
    also = [{"eventId": id_, "key": HANAKO} for id_ in ("01E", "01E", "01F")]
    together = a_call(event_id="01D", at=LATER, also=also, paid=0)
    told = story(runs=[a_run(effects=2)], calls=[together])
    assert str(told.outcome) == "answered: LINE took 2 sends after 110 ms"
    call = told.steps[-1]
    assert (call.kind, call.facts["sends"]) == ("call", 4)
    # The others are events of other people.
    assert "01F" not in json.dumps(as_json(told))


def test_a_pause_is_the_reason_before_any_other() -> None:
    pause = Pause(Scope("main"), by="taro", why="too loud", at=ago(90))
    held = {"_id": 1, "n": 3, "why": "paused", "since": NOW, "channel": "main", "key": HANAKO}
    told = story(pauses=Pauses((pause,)), held=held, before=2)
    assert str(told.outcome) == "waiting: main is paused for 1 min 30 s by taro (too loud)"
    assert told.steps[-1].words == "waits in held, behind 2 of its conversation: paused"


def test_text_shows_only_where_it_is_asked_for() -> None:
    send = {"id": "01E/0", "type": "send", "way": "reply", "token": "a token", "messages": [TEXT]}
    plain, asked = (
        json.dumps(as_json(story(text=text, effects=[send])), ensure_ascii=False)
        for text in (False, True)
    )
    assert TEXT not in plain
    assert asked.count(TEXT) == 2
    assert "a token" not in plain + asked


@pytest.mark.parametrize("event", [None, {"message": 7, "timestamp": "x", "timer": []}])
def test_an_event_made_by_hand_breaks_nothing(event: Any) -> None:
    odd = {**an_event(), "event": event, "acceptTime": None}
    told = story(document=odd, runs=[{"at": NOW, "outcome": None}], calls=[{"at": NOW}])
    assert json.dumps(as_json(told))


@pytest.fixture(scope="module")
def told_of(client: Client) -> Iterator[Db]:
    """One event with all that belongs to it, and another of the same conversation that waits."""
    with one_for_all(client) as database:
        _fill(database)
        yield database


def _fill(database: Db) -> None:
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


def test_an_event_is_found_by_every_id_that_belongs_to_it(told_of: Db) -> None:
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


def test_a_story_gathers_all_that_belongs_to_it_and_nothing_else(told_of: Db) -> None:
    told = tell(told_of, "req-1")
    assert (told.asked, told.event_id) == ("req-1", "01E")
    assert sorted(kinds(told)) == [*("call", "letter", "received", "run", "send", "send", "timer")]
    cause = "quota: the month's messages are used up"
    assert str(told.outcome) == f"failed: {cause} (one of its sends or timers)"
    tapped, waiting = sorted(step.words for step in told.steps if step.kind == "send")[::-1]
    assert tapped == "a tap brought the answer to the outbox: 01T"
    assert waiting == "a push waits in the outbox: a try is of unknown outcome"
    held = tell(told_of, "01F")
    assert held.steps[-1].words == "waits in held, behind 1 of its conversation: slow"


def test_an_unknown_word_is_no_channel_to_pause(told_of: Db) -> None:
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


def test_no_look_by_id_scans_recvq(told_of: Db) -> None:
    for query in ({"eventId": "01E"}, {"event.message.id": "m-01E"}):
        plan = told_of.recvq.find(query).limit(1).explain()["queryPlanner"]["winningPlan"]
        assert "COLLSCAN" not in json.dumps(plan, default=str)
