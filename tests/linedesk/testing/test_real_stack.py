"""The same conversations in memory and with every real part."""

from __future__ import annotations

import signal
from collections.abc import Callable
from datetime import timedelta
from random import Random
from typing import Any

import pytest

from linedesk import Bot
from linedesk.testing import Answers, BotTest, HandlerFailed, KitError, People
from linedesk.testing.real_stack import RealBotTest, RealStack, name_of_bot
from tests.linedesk.testing.kit_bot import bot as kit_bot


@pytest.fixture
def bot() -> Bot:
    return kit_bot


@pytest.fixture(params=["in memory", "real"])
def talk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> People:
    """As a test of a bot author's gets it, without and with the flag."""
    monkeypatch.setattr(request.config.option, "real_stack", request.param == "real")
    found: People = request.getfixturevalue("bot_test")
    return found


def test_a_conversation_goes_the_same_way_in_memory_and_with_every_real_part(
    talk: People, request: pytest.FixtureRequest
) -> None:
    is_real = request.config.getoption("--real-stack")
    assert type(talk).__name__ == ("RealBotTest" if is_real else "BotTest")
    assert talk.says("U1", "やあ").replies == ["聞こえました：やあ"]
    talk.names("U1", "花子")
    assert talk.follows("U1").replies == ["ようこそ、花子さん"]
    assert talk.image("U1", b"JPEG").replies == ["image/jpeg JPEG"]

    assert talk.sticker("U1").replies == talk.sticker("U1").replies == []
    assert talk.advance(1).replies == ["スタンプ2個"]
    talk.sticker("U1")
    assert talk.says("U1", "やあ").replies == ["スタンプ1個", "聞こえました：やあ"]

    talk.says("U1", "count")
    (waiting,) = talk.timers("U1")
    assert (waiting.name, waiting.data) == ("step", {"of": 3})
    assert abs(waiting.at - talk.now - timedelta(seconds=60)) < timedelta(seconds=1)
    assert talk.advance(58).pushes == []
    assert talk.advance(to=waiting.at + timedelta(seconds=120)).pushes == ["1", "2", "3"]
    assert talk.data("U1") == {"count": 3}
    assert talk.timers("U1") == []

    talk.says("U2", "name", group="C1")
    assert talk.state("U2", group="C1") == "asking_name"
    assert talk.state("U1", group="C1") is None
    assert talk.says("U1", "やあ", group="C1").replies == ["聞こえました：やあ"]
    assert talk.says("U2", "次郎", group="C1").replies == ["次郎さんですね"]
    assert talk.data("U2", group="C1") == {"name": "次郎"}
    talk.says("U2", "name", group="C1")
    until = talk.until("U2", group="C1")
    assert until is not None
    assert talk.advance(to=until).pushes == ["また今度"]
    assert talk.sent[-1].to == "C1"

    assert f"{talk.now:%H}" == "00"
    talk.says("U1", "daily")
    assert talk.timers("U1")[0].every == "07:30 Asia/Tokyo"
    assert talk.advance(to="07:30").pushes == ["おはようございます"]
    assert talk.advance(24 * 3600).pushes == ["おはようございます"]
    talk.says("U1", "stop")
    assert talk.timers("U1") == []
    assert talk.advance(24 * 3600).sent == ()

    assert talk.says("U1", f"tell {talk.id('U1')} {talk.id('U2')}").sent[0].to == ("U1", "U2")
    with pytest.raises((RuntimeError, HandlerFailed), match="as planned"):
        talk.says("U1", "fail")
    assert "lost" not in talk.data("U1")
    assert talk.timers("U1") == []
    assert talk.says("U1", "まだ？").replies == ["聞こえました：まだ？"]
    talk.says("U1", "daily")


def test_a_test_begins_at_nine_in_tokyo_with_nothing_left_of_the_one_before(talk: People) -> None:
    assert f"{talk.now:%H:%M}" == "00:00"
    assert talk.sent == []
    assert talk.advance(48 * 3600).sent == ()


Act = Callable[[People], Answers]
TEXTS = ("やあ", "count", "name", "花子", "daily", "stop", "tell U1 U2", "fail")
# Sums of these are no times of a timer, so none is due at the end of one.
SPANS = (71.0, 131.0, 313.0, 86_417.0)


def an_act(chance: Random) -> Act:
    """Something that a user does, or time that passes."""
    user, group = chance.choice(("U1", "U2")), chance.choice((None, "C1"))
    text, seconds = chance.choice(TEXTS), chance.choice(SPANS)
    others: tuple[Act, ...] = (
        lambda test: test.follows(user),
        lambda test: test.unfollows(user),
        lambda test: test.image(user, b"JPEG", group=group),
        lambda test: test.presses(user, "a=1", group=group),
        lambda test: test.member_joins(user, group="C1"),
        lambda test: test.sends(user, {"type": "follow", "mode": "standby"}),
        lambda test: (test.sticker(user, group=group), test.advance(3))[1],
        lambda test: (test.sticker(user, group=group), test.says(user, text, group=group))[1],
        lambda test: test.advance(seconds),
    )
    says: Act = lambda test: test.says(user, text, group=group)  # noqa: E731
    return chance.choice((*others, *[says] * len(others)))


def what_came_of(act: Act, test: People) -> Any:
    """The sends that users of a test see after an act, and the data that the bot keeps of them."""
    try:
        # The order between different users is not promised.
        sent = sorted(
            [(one.to, one.way, one.shown) for one in act(test).sent], key=lambda one: str(one[0])
        )
    except (RuntimeError, HandlerFailed) as error:
        return "as planned" in str(error)
    places = [("U1", None), ("U2", None), ("U1", "C1"), ("U2", "C1")]
    kept = [
        (
            test.state(user, group=group),
            test.data(user, group=group),
            [(one.name, one.every, one.data) for one in test.timers(user, group=group)],
        )
        for user, group in places
    ]
    return sent, kept


@pytest.mark.parametrize("seed", range(4))
def test_what_the_kit_says_is_what_the_real_processes_do(
    real_bot_test: RealBotTest, seed: int
) -> None:
    acts = [an_act(Random(f"{seed}/{number}")) for number in range(40)]
    in_memory = BotTest(kit_bot)
    for number, act in enumerate(acts):
        expected = what_came_of(act, in_memory)
        assert what_came_of(act, real_bot_test) == expected, number


@pytest.mark.usefixtures("real_bot_test")
@pytest.mark.parametrize(
    ("collection", "on_its_way"),
    [
        ("conversations", {"outbox": {"0000000001-0000000000": {"id": "E1/0"}}}),
        ("recvq", {"key": "U1"}),
    ],
)
def test_what_is_on_its_way_is_waited_for(
    linedesk_stack: RealStack, collection: str, on_its_way: dict[str, Any]
) -> None:
    assert linedesk_stack.is_quiet()
    dispatcher = linedesk_stack._processes["dispatcher"]
    # It would finish the document at once.
    dispatcher.send_signal(signal.SIGSTOP)
    linedesk_stack.database[collection].insert_one({"_id": "test", **on_its_way})
    try:
        assert not linedesk_stack.is_quiet()
    finally:
        dispatcher.send_signal(signal.SIGCONT)
    if collection != "recvq":
        linedesk_stack.database[collection].delete_one({"_id": "test"})
    linedesk_stack.wait_until_quiet()


@pytest.mark.usefixtures("real_bot_test")
def test_a_timer_that_is_due_is_waited_for(
    linedesk_stack: RealStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    due = linedesk_stack.now() + timedelta(hours=1)
    linedesk_stack.database["schedule"].insert_one({"_id": "test", "runAt": due})
    assert linedesk_stack.is_quiet()
    # By the clock of the test alone, since the dispatcher would take the row out of the way.
    monkeypatch.setattr(linedesk_stack, "now", lambda: due)
    assert not linedesk_stack.is_quiet()
    linedesk_stack.database["schedule"].delete_one({"_id": "test"})
    assert linedesk_stack.is_quiet()


def test_a_bot_for_the_real_stack_has_to_be_found_by_a_name() -> None:
    assert name_of_bot(kit_bot) == "tests.linedesk.testing.kit_bot:bot"
    with pytest.raises(KitError, match="a global variable"):
        name_of_bot(Bot())
