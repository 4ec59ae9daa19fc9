"""429: the calls that it holds back, for how long, and the calls that continue meanwhile."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import linesim
from jobworker.bot.talk import Talk
from jobworker.line.answer import LineAnswer
from jobworker.line.rate_limits import Bucket, RateLimits
from jobworker.sending.conversation_outbox import ConversationOutbox
from linedesk import Bot
from linedesk.operate.text import known
from linesim import Sim
from tests.jobworker.worker_harness import Rooms, texts
from tests.waiting import Now, eventually

BUSY = '{"message":"The API rate limit has been exceeded. Try again later."}'
FLOOD = {"message": "You have sent too many messages to the same user."}
PUSH, REPLY = "/v2/bot/message/push", "/v2/bot/message/reply"


@pytest.fixture
def held(now: Now) -> RateLimits:
    return RateLimits(monotonic=now)


def test_a_retry_after_is_kept_to_the_second_for_that_endpoint_alone(
    held: RateLimits, now: Now
) -> None:
    held.note(PUSH, LineAnswer(429, BUSY, retry_after=7.0))
    assert (held.seconds(PUSH), held.seconds(REPLY)) == (7.0, 0.0)
    now.seconds += 7.0
    assert held.seconds(PUSH) == 0.0


@pytest.mark.parametrize("retry_after", [None, 0.0])
def test_without_one_each_time_in_a_row_is_longer_up_to_a_minute(
    held: RateLimits, now: Now, retry_after: float | None
) -> None:
    pauses = []
    for _ in range(10):
        held.note(PUSH, LineAnswer(429, BUSY, retry_after=retry_after))
        pauses.append(held.seconds(PUSH))
        now.seconds += pauses[-1]
    longest = [0.5, 1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert all(0.8 * most <= got <= most for got, most in zip(pauses, longest, strict=True))


@settings(deadline=None)
@given(
    at_once=st.integers(1, 8),
    moves=st.lists(st.tuples(st.booleans(), st.floats(0.0, 0.03), st.floats(0.0, 0.2))),
)
def test_line_s_own_bucket_never_runs_out_whatever_threads_and_network_do(
    at_once: int, moves: list[tuple[bool, float, float]]
) -> None:
    """Each move: whether a thread asks or one that asked calls, what time passes, and how long the
    call is on its way to LINE.
    """
    now, asked, arrived = 0.0, 0, []
    bucket = Bucket(20, at_once=at_once, now=now)
    # As many as can be called at once, and then any.
    for asks, seconds, delay in [(True, 0.0, 0.2), (False, 0.0, 0.2)] * 40 + moves:
        now += seconds
        if asks and asked < at_once:
            asked += bucket.seconds(now) == 0
        elif asked:
            asked -= 1
            bucket.count(now)
            arrived.append(now + delay)
    line = linesim.model.endpoints.Bucket(linesim.Rate(20), now=0.0)
    assert all(line.take(at) for at in sorted(arrived))


def a_bot() -> Bot:
    """It pushes texts that begin with p, and replies to all others."""
    bot = Bot()

    @bot.default()
    def handler(event: Any, talk: Talk) -> None:
        text = talk.raw["message"]["text"]
        talk.push(text) if text.startswith("p") else talk.reply(text)

    return bot


def test_a_held_back_endpoint_is_not_called_while_the_others_continue(
    room: Rooms, sim: Sim, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[str] = []
    plan = ConversationOutbox.plan

    def counted(self: ConversationOutbox, *args: Any) -> Any:
        planned.append(self.sends[0].send.id)
        return plan(self, *args)

    monkeypatch.setattr(ConversationOutbox, "plan", counted)
    sim.answer_next("push", 429, BUSY, headers={"Retry-After": "300"})
    pushed = [sim.add_user(f"客{n}") for n in range(20)]
    replied = [sim.add_user(f"客{n}") for n in range(20)]
    before = len(sim.calls)
    desk = room(a_bot())
    desk.says(pushed[0], "p")
    eventually(lambda: desk.desk.line.rate_limits.seconds(PUSH) > 200)
    for user in pushed[1:]:
        desk.says(user, "p")
    for user in replied:
        desk.says(user, "r")
    sim.wait_for(lambda: all(texts(sim, user) == ["r"] for user in replied))
    desk.until_decided()
    # Sent effects leave their outbox a moment later.
    eventually(lambda: desk.desk.gate.waiting == 0 and len(desk.effects()) == 20)
    assert [call.endpoint for call in sim.calls[before:]].count("push") == 1
    # Each asked once before its record and once in a turn, and then waits for the clock without a
    # turn: no spin. The first one returns from its own pause.
    assert len(planned) <= 2 * (20 + 20) + 2


def test_one_user_s_limit_holds_back_that_user_alone(room: Rooms, sim: Sim) -> None:
    flooded, other = sim.add_user("花子"), sim.add_user("太郎")
    sim.answer_next("push", 429, FLOOD, headers={"Retry-After": "300"})
    desk = room(a_bot())
    desk.says(flooded, "p")
    eventually(lambda: any("answered 429" in known(row["why"]) for row in desk.desk.waiting()))
    assert desk.calls_noted() == []
    desk.says(other, "p")
    sim.wait_for(lambda: texts(sim, other) == ["p"])
    assert texts(sim, flooded) == []
    assert desk.desk.line.rate_limits.seconds(PUSH) == 0.0
