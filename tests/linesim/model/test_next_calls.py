"""Faults of the next calls: each outcome, before and after acceptance."""

import time

import pytest
import requests

import linesim


@pytest.fixture
def taro(sim):
    return sim.add_user("太郎")


@pytest.mark.parametrize("accept", [False, True])
def test_a_planned_status_before_or_after_acceptance(sim, line, taro, accept):
    sim.answer_next("push", 500, accept=accept)
    answer = line.push(taro.user_id)
    assert (answer.status_code, answer.json()) == (500, {"message": "Internal server error"})
    assert answer.headers["x-line-request-id"] == sim.calls[-1].request_id
    assert sim.calls[-1].accepted is accept
    assert len(sim.answers(taro)) == accept
    assert line.push(taro.user_id).status_code == 200


def test_a_key_accepted_under_a_planned_500_is_409_afterwards(sim, line, taro):
    key = "123e4567-e89b-12d3-a456-426614174000"
    sim.answer_next("push", 500, accept=True)
    first = line.push(taro.user_id, retry_key=key)
    second = line.push(taro.user_id, retry_key=key)
    assert (first.status_code, second.status_code) == (500, 409)
    assert second.headers["x-line-accepted-request-id"] == first.headers["x-line-request-id"]


def test_a_planned_status_may_have_any_body_and_header(sim, line, taro):
    sim.answer_next("push", 429, {"message": "slow down"}, headers={"retry-after": "3"})
    sim.answer_next("push", 502, "<html>壊れた".encode("shift_jis"))
    first, second = line.push(taro.user_id), line.push(taro.user_id)
    assert (first.json(), first.headers["retry-after"]) == ({"message": "slow down"}, "3")
    assert second.content == "<html>壊れた".encode("shift_jis")


@pytest.mark.parametrize("accept", [False, True])
def test_a_connection_closed_without_an_answer(sim, line, taro, accept):
    sim.close_next("push", accept=accept)
    with pytest.raises(requests.ConnectionError):
        line.push(taro.user_id)
    assert (sim.calls[-1].status, sim.calls[-1].accepted) == (None, accept)
    assert len(sim.answers(taro)) == accept


def test_a_call_that_met_a_fault_is_recorded_with_body_and_address(sim, line, taro):
    token = sim.say(taro, "やあ").events[0]["replyToken"]
    sim.answer_next("*", 500, times=2)
    line.push(taro.user_id, "1")
    line.reply(token, "2")
    assert [call.body["messages"][0]["text"] for call in sim.calls] == ["1", "2"]
    assert [call.user_id for call in sim.calls] == [taro.user_id, taro.user_id]
    assert sim.calls[1].event_id == sim.chat(taro)[0].event_id
    assert line.reply(token).status_code == 200


@pytest.mark.parametrize("accept", [False, True])
def test_a_late_answer_comes_after_the_caller_gave_up(sim, taro, accept):
    sim.delay_next("push", 0.3, accept=accept)
    body = {"to": taro.user_id, "messages": [{"type": "text", "text": "x"}]}
    headers = {"authorization": f"Bearer {sim.token}"}
    with pytest.raises(requests.ReadTimeout):
        requests.post(
            f"{sim.url}/v2/bot/message/push", json=body, headers=headers, timeout=(5, 0.1)
        )
    assert len(sim.answers(taro)) == accept
    sim.wait_for(lambda: sim.answers(taro))
    call = sim.wait_for(lambda: sim.calls[-1].finished and sim.calls[-1])
    assert call.finished - call.started >= 0.3


def test_times_and_the_wildcard(sim, line, taro):
    sim.answer_next("push", 500)
    sim.answer_next("*", 503, times=2)
    statuses = [line.push(taro.user_id).status_code for _ in range(4)]
    assert statuses == [500, 503, 503, 200]


def test_faults_are_cleared(sim, line, taro):
    sim.answer_next("push", 500, times=9)
    sim.clear_faults()
    assert line.push(taro.user_id).status_code == 200


def test_an_unknown_endpoint_is_refused_at_once(sim):
    with pytest.raises(ValueError, match="no endpoint 'puhs'"):
        sim.answer_next("puhs", 500)


def test_latency_delays_every_answer_and_not_what_it_does(bot):
    with linesim.running(webhook_url=bot.url, latency_ms=200) as sim:
        headers = {"authorization": f"Bearer {sim.token}"}
        began = time.monotonic()
        requests.get(f"{sim.url}/v2/bot/info", headers=headers, timeout=10)
        assert time.monotonic() - began >= 0.2


def test_stopping_cuts_a_late_answer_short(bot):
    with linesim.running(webhook_url=bot.url) as sim:
        sim.delay_next("info", 60)
        with requests.Session() as session:
            session.headers["authorization"] = f"Bearer {sim.token}"
            with pytest.raises(requests.ReadTimeout):
                session.get(f"{sim.url}/v2/bot/info", timeout=(5, 0.05))
        began = time.monotonic()
    assert time.monotonic() - began < 2
