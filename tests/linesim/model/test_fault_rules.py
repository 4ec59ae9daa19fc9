"""Faults by rule: the affected calls, how often, and the calls that LINE still carries out."""

import pytest
import requests

import linesim
from linesim import Late, Rule
from linesim.model import faults
from linesim.model.endpoints import BY_NAME
from tests.line_openapi import check_answer

STATUSES = {
    "server_error": (faults.server_error(), 500),
    "html_error": (faults.html_error(), 502),
    "garbage_error": (faults.garbage(500), 500),
    "too_many": (faults.too_many(), 429),
    "too_many_later": (faults.too_many(7), 429),
    "monthly_limit": (faults.monthly_limit(), 429),
    "too_many_to_one": (faults.too_many_to_one(), 429),
    "too_many_at_once": (faults.too_many_at_once(), 429),
    "unauthorized": (faults.unauthorized(), 401),
    "bad_request": (faults.bad_request(), 400),
}
LINES_OWN = tuple(name for name in STATUSES if name not in ("html_error", "garbage_error"))


def statuses(line, user, times):
    return [line.push(user.user_id).status_code for _ in range(times)]


@pytest.mark.parametrize("name", STATUSES)
def test_a_rule_answers_instead_of_line_and_nothing_is_done(sim, line, taro, name):
    outcome, status = STATUSES[name]
    sim.misbehave(Rule(outcome=outcome))
    assert statuses(line, taro, 2) == [status, status]
    assert not sim.answers(taro)
    assert [call.accepted for call in sim.calls] == [False, False]


@pytest.mark.parametrize("name", LINES_OWN)
@pytest.mark.parametrize("endpoint", ["push", "reply", "multicast", "profile"])
def test_what_claims_to_be_lines_is_what_line_describes(name, endpoint):
    outcome, status = STATUSES[name]
    known = BY_NAME[endpoint]
    path = known.path.replace("user_id", "userId")
    check_answer(known.method, path, status, outcome.body)


@pytest.mark.parametrize("places", [(0,), (1,), (2,), (0, 2)])
def test_a_bad_member_is_named_by_her_place(sim, line, taro, hanako, places):
    ids = [hanako.user_id if place in places else taro.user_id for place in range(3)]
    sim.misbehave(Rule(outcome=linesim.BadMember(), user=hanako.user_id, endpoint="multicast"))
    answer = line.multicast(ids)
    assert (answer.status_code, answer.json()) == (
        400,
        {
            "message": f"The property, to[{places[0]}], in the request body is invalid "
            "(line: -, column: -)"
        },
    )
    assert not sim.answers(taro)
    assert line.multicast([taro.user_id]).status_code == 200
    with pytest.raises(ValueError, match="400"):
        Rule(outcome=linesim.BadMember(), accept=True)


@pytest.mark.parametrize("accept", [False, True])
def test_a_late_answer_is_of_what_was_done_before_or_after_the_wait(sim, line, taro, accept):
    sim.misbehave(Rule(outcome=Late(0.2), accept=accept))
    assert line.push(taro.user_id).status_code == 200
    (call,) = sim.calls
    accepted_before = call.finished - call.accepted_at
    accepted_after = call.accepted_at - call.started
    # Two clocks: the loop's may wake it a moment early by the other.
    assert (accepted_before if accept else accepted_after) > 0.19


def test_a_rule_is_about_one_user_however_the_call_names_him(sim, line, taro, hanako):
    token = sim.say(taro, "やあ").events[0]["replyToken"]
    sim.misbehave(Rule(user=taro.user_id, outcome=faults.server_error()))
    assert line.push(hanako.user_id).status_code == 200
    assert line.multicast([hanako.user_id]).status_code == 200
    assert line.push(taro.user_id).status_code == 500
    assert line.reply(token).status_code == 500
    assert line.multicast([hanako.user_id, taro.user_id]).status_code == 500
    assert line.get(f"/v2/bot/profile/{taro.user_id}").status_code == 500


def test_the_same_seed_draws_the_same_and_another_does_not(sim, line, taro):
    runs = []
    for seed in (1, 1, 2):
        sim.behave()
        sim.misbehave(Rule(probability=0.5, outcome=faults.server_error()), seed=seed)
        runs.append(statuses(line, taro, 40))
    assert runs[0] == runs[1] != runs[2]
    assert 5 < runs[0].count(500) < 35


# From other processes.


def post(sim, path, body):
    return requests.post(f"{sim.url}/sim/{path}", json=body, timeout=10)


@pytest.mark.parametrize(
    ("rule", "status"),
    [
        ({"outcome": "server_error"}, 500),
        ({"outcome": "html_error", "status": 503}, 503),
        ({"outcome": "garbage", "status": 500, "accept": True}, 500),
        ({"outcome": "too_many", "retryAfter": 3}, 429),
        ({"outcome": "unauthorized"}, 401),
        ({"outcome": "bad_request"}, 400),
        ({"outcome": "late", "seconds": 0.01}, 200),
    ],
)
def test_another_process_sets_and_ends_rules(sim, line, taro, rule, status):
    made = {"rules": [{**rule, "endpoint": "push"}], "seed": 1}
    assert post(sim, "misbehave", made).json() == {"added": 1}
    assert statuses(line, taro, 1) == [status]
    assert requests.delete(f"{sim.url}/sim/misbehave", timeout=10).ok
    assert statuses(line, taro, 1) == [200]


@pytest.mark.parametrize(
    "rule",
    [
        {"outcome": "sneeze"},
        {"outcome": "close", "endpoint": "puhs"},
        {"outcome": "bad_request", "accept": True},
        {"outcome": "close", "probability": 2},
    ],
)
def test_a_rule_that_cannot_be_is_422_and_none_is_set(sim, line, taro, rule):
    good = {"outcome": "server_error"}
    assert post(sim, "misbehave", {"rules": [good, rule]}).status_code == 422
    assert statuses(line, taro, 1) == [200]


def test_a_call_knows_its_connection_and_whether_its_caller_hung_up(bot):
    with linesim.running(webhook_url=bot.url) as sim, requests.Session() as session:
        session.headers["authorization"] = f"Bearer {sim.token}"
        for _ in range(2):
            session.get(f"{sim.url}/v2/bot/info", timeout=10)
        sim.delay_next("info", 0.4)
        with pytest.raises(requests.ReadTimeout):
            session.get(f"{sim.url}/v2/bot/info", timeout=(5, 0.05))
        last = sim.wait_for(lambda: sim.calls[-1].finished and sim.calls[-1])
    first, second, _ = sim.calls
    assert first.connection == second.connection is not None
    assert first.hung_up is second.hung_up is None
    assert last.started < last.hung_up < last.finished
