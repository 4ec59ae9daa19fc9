"""All parts of a leader know the same conversation: its mailbox, stored state and outbox."""

from __future__ import annotations

import gc
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

from dispatcher.conversations.conversations import Conversation
from jobworker.bot.talk import Talk
from linedesk import Bot
from linesim import Sim
from tests.jobworker.worker_harness import CHANNEL, Room
from tests.waiting import eventually

Rooms = Callable[..., Room]
KINDS = (dict, OrderedDict, defaultdict)


def test_a_conversation_has_its_job_then_its_sends_and_its_state(room: Rooms, sim: Sim) -> None:
    bot, user = Bot(), sim.add_user("花子")

    def known() -> Conversation:
        found = desk.known.find(f"{CHANNEL}/{user.user_id}")
        assert found is not None
        return found

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        talk.data["n"] = talk.data.get("n", 0) + 1
        seen.append((known(), known().mailbox is not None))
        talk.push("はい")

    seen: list[tuple[Conversation, bool]] = []
    desk = room(bot)
    with desk.desk.gate.turn():
        desk.says(user, "?")
        eventually(lambda: known().outbox is not None)
        assert known().is_busy
    desk.until_quiet()
    eventually(lambda: not known().is_busy)
    assert seen == [(known(), True)]
    stored = known().stored
    assert stored is not None
    assert stored.fields["data"] == {"n": 1}
    desk.desk._turns.unsends.learn(known().id, ["M1"])
    assert known().unsent == ("M1",)


def test_few_maps_know_a_conversation_by_its_id(room: Rooms, sim: Sim) -> None:
    """Each one more would be one more thing to keep in step, with a bound and a lock of its own."""
    bot, user = Bot(), sim.add_user("花子")
    id_ = f"{CHANNEL}/{user.user_id}"
    ids = {id_, (CHANNEL, user.user_id)}

    def maps() -> list[Any]:
        dicts = [one for one in gc.get_objects() if type(one) in KINDS]
        return [one for one in dicts if any(one_id in one for one_id in ids)]

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        while_handled.extend(maps())
        talk.push("はい")
        talk.after(60, "egg")

    bot.timer("egg")(lambda event, talk: None)
    while_handled: list[Any] = []
    desk = room(bot)
    with desk.desk.gate.turn():
        desk.says(user, "?")
        eventually(lambda: (known := desk.known.find(id_)) and known.outbox is not None)
        while_sent = maps()
    desk.until_quiet()
    assert [len(found) for found in (while_handled, while_sent)] == [1, 1]
    assert while_handled[0] is while_sent[0] is desk.known._by_id
