"""An answered message amid dead processes, elections, outages and hand edits: decided once, sent
once.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pytest

import linesim
from jobworker.bot.talk import Talk
from jobworker.record.conversations import ConversationStore, Recorded, Recording
from jobworker.sending import sender
from jobworker.sending.verdict import ReplyUnknown
from linedesk import Bot
from linedesk.setup.collections import create_collections
from linedesk.store.client import connect
from linedesk.store.collections import MEGABYTE
from linedesk.store.errors import StoreUnavailable
from linesim import HandClock, Sim
from tests.jobworker.worker_harness import Room
from tests.linedesk.store.lagging import lagging_set
from tests.servers import frozen, throwaway_mongod
from tests.waiting import eventually

Rooms = Callable[..., Room]


def counter() -> Bot:
    """It numbers the messages of each user."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.data["count"] = talk.data.get("count", 0) + 1
        talk.reply(str(talk.data["count"]))

    return bot


def texts(sim: Sim, user: Any) -> list[str | None]:
    return [bubble.text for bubble in sim.answers(user)]


def all_answered_once(room: Room, users: Sequence[Any], messages: int) -> None:
    room.until_quiet(seconds=90)
    numbers = [str(n + 1) for n in range(messages)]
    assert [texts(room.sim, user) for user in users] == [numbers] * len(users)
    assert (room.letters(), room.calls_noted()) == ([], [])
    for found in room.database.conversations.find():
        assert len(set(found["applied"])) == len(found["applied"]) == messages


def test_a_token_that_expires_between_record_and_call_is_not_used(
    database: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    since_boot, clock, passed = sender.boottime, HandClock(), 0.0
    monkeypatch.setattr(sender, "boottime", lambda: since_boot() + passed)
    with linesim.running(rate_limits=False, clock=clock) as sim:
        user = sim.add_user("花子")
        with Room(database, sim, counter()) as desk:
            with desk.desk.gate.turn():
                desk.says(user, "?")
                eventually(desk.effects)
                passed = 61.0
                clock.advance(61)
            all_answered_once(desk, [user], 1)
        assert [call.endpoint for call in sim.calls] == ["push"]


@pytest.mark.parametrize("reply_unknown", list(ReplyUnknown))
def test_a_call_stored_with_a_record_of_unknown_outcome_was_not_made(
    database: Any, monkeypatch: pytest.MonkeyPatch, reply_unknown: ReplyUnknown
) -> None:
    """This process knows that it has not called LINE, whatever became of the token meanwhile."""
    clock, recorded, late = HandClock(), ConversationStore.recorded, list[Recorded]()

    def made_too_late(mine: ConversationStore, recording: Recording, **more: Any) -> Recorded:
        result = recorded(mine, recording, **more)
        if recording.call is not None and not late:
            late.append(result)
            clock.advance(91)
            raise StoreUnavailable("MongoDB is away for a while, and has made it")
        return result

    monkeypatch.setattr(ConversationStore, "recorded", made_too_late)
    with linesim.running(rate_limits=False, clock=clock) as sim:
        user = sim.add_user("花子")
        with Room(database, sim, counter(), reply_unknown=reply_unknown) as desk:
            desk.says(user, "?")
            desk.until_quiet()
            assert desk.figures()["unprovedReplies"] == 0
        assert late
        assert [call.endpoint for call in sim.calls] == ["reply", "push"]
        assert texts(sim, user) == ["1"]


@pytest.mark.long
@pytest.mark.timeout(240)
def test_an_election_amid_answers_loses_nothing_and_repeats_nothing(
    mongod: object, request: pytest.FixtureRequest, sim: Sim
) -> None:
    lagging = lagging_set(request.config)
    database = lagging.client[f"test_{uuid.uuid4().hex[:12]}"]
    create_collections(database, capped_bytes=MEGABYTE)
    users = [sim.add_user(f"{n}") for n in range(20)]
    with lagging.electing(), Room(database, sim, counter()) as room:
        for user in users * 10:
            room.says(user, "?")
        eventually(lambda: sum(len(texts(sim, user)) for user in users) > 30)
        lagging.step_down()
        all_answered_once(room, users, 10)
    lagging.client.drop_database(database.name)


@pytest.mark.long
def test_a_thousand_answers_around_an_outage_arrive_once_and_their_ends_follow(
    mongod: object, sim: Sim
) -> None:
    """MongoDB stops amid them for some seconds, and every command under way is of unknown
    outcome.
    """
    users = [sim.add_user(f"{n}") for n in range(100)]
    with (
        throwaway_mongod() as server,
        connect(server.uri, app_name="tests", server_selection_seconds=20) as client,
    ):
        database = client["answered"]
        create_collections(database, capped_bytes=MEGABYTE)
        with Room(database, sim, counter()) as room:
            for user in users * 10:
                room.says(user, "?")
            eventually(lambda: sum(len(texts(sim, user)) for user in users) > 100)
            with frozen(server.pid):
                threading.Event().wait(4.0)
            all_answered_once(room, users, 10)


# An operator edits the conversation in the mongo shell.


def edited(room: Room, user: Any, count: int, **more: Any) -> None:
    id_ = {"_id": room.conversation(user.user_id)["_id"]}
    changed = room.database.conversations.update_one(id_, {"$set": {"data.count": count}, **more})
    assert changed.modified_count == 1


def test_an_edit_that_counts_while_the_handler_runs_is_not_overwritten(
    room: Rooms, sim: Sim
) -> None:
    user, begun, go_on = sim.add_user("花子"), threading.Event(), threading.Event()
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.data["count"] = talk.data.get("count", 0) + 1
        if talk.raw["message"]["text"] == "wait":
            begun.set()
            assert go_on.wait(15)
        talk.reply(str(talk.data["count"]))

    desk = room(bot)
    desk.says(user, "?")
    desk.until_quiet()
    desk.says(user, "wait")
    assert begun.wait(15)
    edited(desk, user, 40, **{"$inc": {"n": 1}})
    go_on.set()
    desk.until_quiet()
    assert texts(sim, user) == ["1", "41"]
    assert desk.conversation(user.user_id)["data"] == {"count": 41}
